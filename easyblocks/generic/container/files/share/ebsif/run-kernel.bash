# Sourced with ARGUMENT OF python...: exec a Jupyter kernel in the container of the loaded module. Needs `root`, and the
# functions of common.bash. The file that describes the connection is visible in the container wherever it is.
for argument; do
    argument=${argument#--f=}
    # other directories may not exist in the container
    case $argument in
        "${HOME:-/nowhere}"/* | /tmp/* | [!/]*) ;;
        *.json)
            folder=${argument%/*}
            folder=${folder//,/\\,}
            folder=${folder//:/\\:}
            # either variable may have been changed since the module was loaded, and both should be equal
            binds=${APPTAINER_BINDPATH:-}
            case ,${SINGULARITY_BINDPATH:-}, in
                ,, | ",$binds,") ;;
                *",$binds,"*) binds=$SINGULARITY_BINDPATH ;;
                *) [[ ",$binds," == *",$SINGULARITY_BINDPATH,"* ]] || binds=${binds:+$binds,}$SINGULARITY_BINDPATH ;;
            esac
            export APPTAINER_BINDPATH=${binds:+$binds,}$folder
            export SINGULARITY_BINDPATH=$APPTAINER_BINDPATH
            ;;
    esac
done
# not one of the ranks of a job that Jupyter runs in
unset EBSIF_ONE_CONTAINER_PER_NODE
run_in_container /runscripts/conda-python-simple "$@"
