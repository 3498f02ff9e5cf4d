# Sourced with PROGRAM ARGUMENT...: exec it in the container of the loaded module. Needs `root`, like ready.bash.
# shellcheck source=/dev/null  # it returns only if the module is loaded
source "${root:?}/share/ebsif/ready.bash"
# If the module names the launcher's variable for the number of tasks, python is a rank where there are several, unless
# the caller has set up the rank.
if [[ "${EBSIF_PYTHON_RANKS:-}" == [A-Z]*([A-Z_]) && -z "${RANK:-}" && "${!EBSIF_PYTHON_RANKS:-1}" != 1 &&
    "${1##*/}" == python?(3) ]]; then
    set -- /runscripts/conda-python-distributed "${@:2}"
fi
# Activate images that need it. The shell code is constant; program and arguments are passed as arguments.
if [[ -n "${EBSIF_ACTIVATE:-}" ]]; then
    # shellcheck disable=SC2016
    set -- bash -p -c '[[ ! -r /runscripts/init-conda-venv ]] || source /runscripts/init-conda-venv || exit; exec "$@"' \
        "${0##*/}" "$@"
fi
# Run the image's entry point, which may set variables for each rank; the runtime's exec doesn't.
[[ -z "${EBSIF_ENTRY_POINT:-}" ]] || set -- "$EBSIF_ENTRY_POINT" "$@"
set -- "$SIF" "$@"
# the runtime's option, and the device that a node with such GPUs has
[[ -z "${EBSIF_GPU:-}" || ! -e "${EBSIF_GPU#* }" ]] || set -- "${EBSIF_GPU%% *}" "$@"
# shellcheck source=search-paths.bash
[[ "${SINGULARITYENV_PREPEND_PATH:-}" == "${APPTAINERENV_PREPEND_PATH:-}" ]] ||
    source "$root/share/ebsif/search-paths.bash"
# These are for the host's Python, loader and shell, but would affect the container's; APPTAINERENV_... passes one.
unset VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONSTARTUP LD_PRELOAD LD_AUDIT BASH_ENV ENV
# shellcheck source=/dev/null  # one-container.bash returns if this process needs its own
[[ -z "${EBSIF_ONE_CONTAINER_PER_NODE:-}" ]] || source "$root/share/ebsif/one-container.bash" "$@"
# exec, so that the runtime receives the signals for this process
exec "${runtime:?}" exec "$@"
