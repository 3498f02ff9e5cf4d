# Sourced with ARGUMENT OF python...: exec a Jupyter kernel in the container of the loaded module. Needs
# `ebsif_root` and the functions of common.bash. The file that describes the connection is visible in the container wherever it is.
for ebsif_argument; do
    ebsif_argument=${ebsif_argument#--f=}
    # other directories may not exist in the container
    case $ebsif_argument in
        "${HOME:-/nowhere}"/* | /tmp/* | [!/]*) ;;
        *.json)
            ebsif_folder=${ebsif_argument%/*}
            ebsif_folder=${ebsif_folder//,/\\,}
            ebsif_folder=${ebsif_folder//:/\\:}
            # either variable may have been changed since the module was loaded, and both should be equal
            ebsif_binds=${APPTAINER_BINDPATH:-}
            case ,${SINGULARITY_BINDPATH:-}, in
                ,, | ",$ebsif_binds,") ;;
                *",$ebsif_binds,"*) ebsif_binds=$SINGULARITY_BINDPATH ;;
                *)
                    [[ ",$ebsif_binds," == *",$SINGULARITY_BINDPATH,"* ]] ||
                        ebsif_binds=${ebsif_binds:+$ebsif_binds,}$SINGULARITY_BINDPATH
                    ;;
            esac
            export APPTAINER_BINDPATH=${ebsif_binds:+$ebsif_binds,}$ebsif_folder
            export SINGULARITY_BINDPATH=$APPTAINER_BINDPATH
            ;;
    esac
done
run_in_container /runscripts/conda-python-simple "$@"
