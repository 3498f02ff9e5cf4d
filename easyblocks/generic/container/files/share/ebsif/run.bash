# Sourced with PROGRAM ARGUMENT...: exec it in the container of the loaded module. Needs `ebsif_root`, like ready.bash.
# shellcheck source=/dev/null  # it returns only if the module is loaded
source "${ebsif_root:?}/share/ebsif/ready.bash"
# shellcheck source=program.bash
[[ -z "${EBSIF_PYTHON_RANKS:-}${EBSIF_ACTIVATE:-}" ]] || source "$ebsif_root/share/ebsif/program.bash"
# Run the image's entry point, which may set variables for each rank; the runtime's exec doesn't.
[[ -z "${EBSIF_ENTRY_POINT:-}" ]] || set -- "$EBSIF_ENTRY_POINT" "$@"
set -- "$SIF" "$@"
# the runtime's option, and the device that a node with such GPUs has
[[ -z "${EBSIF_GPU:-}" || ! -e "${EBSIF_GPU#* }" ]] || set -- "${EBSIF_GPU%% *}" "$@"
# shellcheck source=search-paths.bash
[[ "${SINGULARITYENV_PREPEND_PATH:-}" == "${APPTAINERENV_PREPEND_PATH:-}" ]] ||
    source "$ebsif_root/share/ebsif/search-paths.bash"
# These are for the host's Python, loader and shell, but would affect the container's; APPTAINERENV_... passes one.
unset VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONSTARTUP LD_PRELOAD LD_AUDIT BASH_ENV ENV
# exec, so that the runtime receives the signals for this process
exec "${ebsif_runtime:?}" exec "$@"
