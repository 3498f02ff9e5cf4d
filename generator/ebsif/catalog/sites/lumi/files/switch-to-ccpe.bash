# shellcheck shell=bash disable=SC2086,SC2154
# SWITCHTOCCPE: `eval $SWITCHTOCCPE` at the beginning of a job script goes on with the script in the container, without
# the modules of the host. Written as init-ccpe.bash is. What it does is what the variable does in the easyconfigs of
# LUMI-EasyBuild-containers (c/ccpe).
test -e /.singularity.d || exec "$CONTAINERROOT/bin/ccpe-exec" "$0" "$@";
eval $INITCCPE;
unset SLURM_EXPORT_ENV;
