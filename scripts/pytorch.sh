# shellcheck shell=bash
# Sourced by build-example-image: install PyTorch for CPUs, without gigabytes for GPUs. Needs lib.sh.

# PyTorch's own index of builds for CPUs; most other indexes don't have them.
torch_index=${EBSIF_TORCH_INDEX:-https://download.pytorch.org/whl/cpu}

# install_pytorch VERSION PIP...: install the build for CPUs with the command PIP (`pip install` with options), from the
# indexes that pip is configured for, else from PyTorch's own.
install_pytorch() {
    local wanted="torch==$1+cpu"
    shift
    ! "$@" "$wanted" || return 0
    say "    pip is configured for no place that has $wanted (see above): trying $torch_index"
    "$@" --extra-index-url "$torch_index" "$wanted" ||
        die "there is no $wanted at $torch_index either. Name a place that has it: EBSIF_TORCH_INDEX=URL make demo"
}
