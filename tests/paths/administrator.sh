# shellcheck shell=bash disable=SC1090,SC1091,SC2046,SC2086,SC2091
# An administrator: a new image in the catalogue, installed, and on the web pages.
ebsif add images/pytorch-2.14.0-cpu-python-3.11.sif | tee printed
ebsif render
ebsif check --deep
$(sed -n 's/^install it with: //p' printed)
module use $EASYBUILD_PREFIX/modules/all
module load PyTorch/2.14.0
singularity exec $SIF python -c 'import numpy; print("with", numpy.__file__)'
ebsif installed --has 'numpy<99'
ebsif doctor --installed
ebsif reframe --site local -o checks
ebsif docs --site local -o pages
ebsif add images/pytorch-2.14.0-cpu-python-3.11.sif
