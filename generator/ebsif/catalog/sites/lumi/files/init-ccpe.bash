# shellcheck shell=bash disable=SC1091,SC2016,SC2086,SC2154,SC2034
# INITCCPE: `eval $INITCCPE` in the container gives a shell the modules of the container's programming environment.
#
# The file becomes one line, the value of a variable. Its users write no quotes around that variable, so that blanks are
# joined and patterns of file names are expanded: each statement ends with a semicolon, and there are no patterns. What
# is done, in which order, and the two functions are those of 99-z-init-ccpe.sh in LUMI-EasyBuild-containers
# (c/ccpe/ccpe-25.03-B-rocm-6.3-SP5-LUMI.eb, the same in all five). The binds are ours: what the runtime leaves of them in
# the environment is no use to jobs and steps that are started in the container.
if test "${EBSIF_MODULES_OF:-}" != "$EBSIF_LOADED_MODULE";
then
    source /etc/cray-pe.d/cray-pe-configuration.sh;
    source /opt/cray/pe/lmod/lmod/init/profile;
    MODULEPATH="";
    ccpe_root=/opt/cray/pe/lmod/modulefiles;
    for ccpe_path in $ccpe_root/core $ccpe_root/craype-targets/default $mpaths /opt/cray/modulefiles /opt/modulefiles;
    do
        test ! -d "$ccpe_path" || MODULEPATH="${MODULEPATH:+$MODULEPATH:}$ccpe_path";
    done;
    export MODULEPATH;
    LMOD_SYSTEM_DEFAULT_MODULES="$(echo ${init_module_list:-PrgEnv-$default_prgenv} | tr " " ":")";
    export LMOD_SYSTEM_DEFAULT_MODULES;
    source /opt/cray/pe/lmod/lmod/init/bash;
    module --initial_load --no_redirect restore;
    unset ccpe_root ccpe_path;
    export CCPE_VERSION="${EBSIF_LOADED_MODULE#ccpe/}";
    export EBSIF_MODULES_OF="$EBSIF_LOADED_MODULE";
fi;
if test -n "${EBSIF_BINDS:-}";
then
    export APPTAINER_BINDPATH="$EBSIF_BINDS" SINGULARITY_BINDPATH="$EBSIF_BINDS";
    unset APPTAINER_BIND SINGULARITY_BIND;
fi;
if test -t 0 && test "${SLURM_PROCID:-0}" = 0;
then
    echo "This is the HPE Cray Programming Environment in a container. Whoever uses it agrees to its license:";
    echo "https://downloads.hpe.com/pub/softlib2/software1/doc/p1796552785/v113125/eula-en.html";
fi;
clear-lmod() { rm -rf "$HOME/.cache/lmod"; };
ccpe-srun() {
    APPTAINERENV_PATH="$PATH" APPTAINERENV_LD_LIBRARY_PATH="$LD_LIBRARY_PATH"
    SINGULARITYENV_PATH="$PATH" SINGULARITYENV_LD_LIBRARY_PATH="$LD_LIBRARY_PATH" srun "$@";
};
