# shellcheck shell=bash disable=SC1090,SC1091,SC2086,SC2091
# The same person, third month: a large run, a colleague, a package by hand, the next release, cleaning up.
ebsif job mine --nodes 64 --requeue --signal 300 --data images.squashfs:/data --time 2-00:00:00 -- train.py --epochs 100
ebsif lock mine >lock.json
ebsif export mine -o crate/
ebsif push mine oras://$REGISTRY/group/mine:1
ebsif pull oras://$REGISTRY/group/mine:1 --name theirs --check
ebsif extend --from-lock lock.json --name theirs 2>&1 | tee printed
eval "$(sed -n 's/^load it with: //p' printed)"
ebsif diff ./lock.json
cmp $CONTAINERROOT/user-software.squashfs ~/.local/easybuild/software/Example/*-mine-*.3/user-software.squashfs && echo "the same files"
unmake-squashfs && rm $CONTAINERROOT/user-software.squashfs
module unload Example
eval "$(sed -n 's/^load it with: //p' printed)"
singularity exec $SIF pip install -q greeting
ebsif diff ./lock.json || echo "they differ"
ebsif lock --format eb
module unload Example
ebsif upgrade mine Example/2.0 --check
ebsif remove theirs --yes
ebsif remove mine --older --yes
