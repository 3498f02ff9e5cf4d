# shellcheck shell=bash disable=SC2086
# An EasyBuild person at another site: find the easyconfig, copy it, install it; start a site.
eb --search PyTorch-2.13.0
eb -a -e ContainerVenv
eb --copy-ec PyTorch-2.13.0-cpu-python-3.11-singularity-20261121.eb mine.eb
$EDITOR mine.eb
eb mine.eb --trace --rebuild
module load PyTorch/2.13.0-cpu-python-3.11-singularity-20261121
singularity exec $SIF python -c 'import numpy; print("with", numpy.__file__)'
# the profile of a site of their own
ebsif site init mysite
ebsif check --site mysite
