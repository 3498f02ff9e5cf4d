# shellcheck shell=bash disable=SC2086
# Somebody at a machine without modules of ours: an image somewhere, no EasyBuild stack, no configuration of anything.
# ebsif is installed as docs/install.md says.
ebsif add $IMAGES/pytorch.sif && ebsif install PyTorch 2>&1 | tee printed
eval "$(sed -n 's/^load it with: //p' printed)"
singularity exec $SIF python -c 'import sys; print("with", sys.prefix)'
echo "image $SIF"
# the next day
ebsif list pytorch
ebsif show PyTorch
ebsif install PyTorch
