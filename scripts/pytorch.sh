# shellcheck shell=bash
# Sourced by build-example-image: PyTorch for CPUs, without the gigabytes of the one for GPUs. Needs lib.sh.

# PyTorch's own index of builds for CPUs. Most indexes that pip is configured for don't have these builds.
torch_index=${EBSIF_TORCH_INDEX:-https://download.pytorch.org/whl/cpu}

# install_pytorch VERSION PIP...: install the build for CPUs with a command (`pip install` with options), from where pip
# is configured to look, else from PyTorch's own index.
install_pytorch() {
    local wanted="torch==$1+cpu"
    shift
    ! "$@" "$wanted" || return 0
    say "    pip is configured for no place that has $wanted (see above): trying $torch_index"
    "$@" --extra-index-url "$torch_index" "$wanted" ||
        die "there is no $wanted at $torch_index either. Name a place that has it: EBSIF_TORCH_INDEX=URL make demo"
}
