# Sourced by the commands in bin/: what they share. Bash only, no program is started here.
#
# The installation is found from the place of the script itself, links resolved by the caller, so a copied or moved
# tree acts on itself and never on the original.

# Print a message of the running command on standard error.
say() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
}

# End with a message: refuse STATUS MESSAGE. The statuses are part of the contract of each command.
refuse() {
    say "$2"
    exit "$1"
}

# True in a container of Apptainer or SingularityCE.
in_container() {
    [[ -e /.singularity.d ]]
}

# Set `runtime` to the container runtime. `hash` looks on PATH, without starting a process.
find_runtime() {
    unset -f apptainer singularity
    if hash apptainer 2>/dev/null; then
        runtime=apptainer
    elif hash singularity 2>/dev/null; then
        runtime=singularity
    else
        refuse 127 "neither apptainer nor singularity is on PATH; on a cluster, try this on a compute node or load the site's module for it"
    fi
}

# Check that the module of this installation (`root`) is loaded, and that what it found then is still there: the runtime
# would only say that something can't be mounted.
check_module() {
    local root=${root:?}
    [[ -n "${SIF:-}" && -n "${CONTAINERROOT:-}" ]] || refuse 1 "load the module of this container first: SIF is not set"
    [[ "$CONTAINERROOT" -ef "$root" ]] ||
        refuse 1 "this is a command of the installation $root, but the module that is loaded is that of $CONTAINERROOT"
    [[ -f "$SIF" ]] ||
        refuse 1 "the image $SIF is gone: reload the module, it then uses the site's copy if there is one"
    [[ -z "${CONTAINER_USER_SOFTWARE:-}" || -e "$CONTAINER_USER_SOFTWARE" ]] ||
        refuse 1 "$CONTAINER_USER_SOFTWARE is gone since the module was loaded: reload the module"
}

# run_in_container PROGRAM ARGUMENT...: become this program in the container of the loaded module.
run_in_container() {
    local gpu=() initialise=()
    check_module
    find_runtime
    case ${CONTAINER_GPU:-} in
        rocm) [[ ! -e /dev/kfd ]] || gpu=(--rocm) ;;
        cuda) [[ ! -e /dev/nvidiactl ]] || gpu=(--nv) ;;
    esac
    # of the host's Python, loader and shell, which the container's would take for their own; APPTAINERENV_PYTHONPATH is
    # the way to pass one
    unset PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONSTARTUP LD_PRELOAD LD_AUDIT BASH_ENV ENV
    # Images that are activated by hand get that here; where the module injects everything it is a no-op, left out. A
    # fixed text: the arguments reach it as arguments.
    if [[ "${SINGULARITYENV_WITH_CONDA:-}" != true ]]; then
        # shellcheck disable=SC2016
        initialise=(bash -p -c '[[ ! -r /runscripts/init-conda-venv ]] || source /runscripts/init-conda-venv || exit; exec "$@"'
            "${0##*/}")
    fi
    # exec, so that a signal for this process is one for the runtime
    exec "$runtime" exec "${gpu[@]}" "$SIF" "${initialise[@]}" "$@"
}
