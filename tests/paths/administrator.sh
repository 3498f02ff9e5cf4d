# shellcheck shell=bash disable=SC1090,SC1091,SC2046,SC2086
# An administrator: a new image in the catalog, installed, and on the web pages; images that are somewhere else.
# The site's EasyBuild is a module, which sets its naming scheme, easyblocks and robot paths.
module load EasyBuild-user/5
# status 1: something is new
ebsif scan --site local || [ $? = 1 ]
ebsif scan --site local --write
ebsif render --site local
ebsif check --deep
eb easyconfigs/p/PyTorch/PyTorch-2.14.0-*.eb
module use $EASYBUILD_INSTALLPATH_MODULES
module load PyTorch/2.14.0
singularity exec $SIF python -c 'import numpy; print("with", numpy.__file__)'
ebsif installed --has 'numpy<99'
ebsif doctor --installed
ebsif reframe --site local -o checks
ebsif docs --site local -o pages
ebsif show oras://$REGISTRY/ai/new:3
ebsif add oras://$REGISTRY/ai/new:3 2>&1 | tee printed
eval "$(sed -n 's/^install it with: //p' printed)"
ebsif scan --site local && echo all there
ebsif add images/pytorch-2.14.0-cpu-python-3.11.sif
