# Sourced with PROGRAM ARGUMENT...: exec it in the container of the loaded module, which must be the one of this installation.
# With --check: only check that, and set `ebsif_runtime`; with --find: only set it.
# Each wrapper reads this: keep it short, a thousand characters take 5 % of the start-up time (docs/performance.md).
ebsif_root=${BASH_SOURCE[0]%/share/ebsif/*}
# shellcheck source=without-host-modules.bash
[[ -z "${EBSIF_OWN_MODULES:-}" || ! -r "$ebsif_root/share/ebsif/without-host-modules.bash" ]] || source "$ebsif_root/share/ebsif/without-host-modules.bash"
unset -f apptainer singularity
for ebsif_runtime in apptainer singularity ''; do
    ! hash "$ebsif_runtime" 2>/dev/null || break
done
[[ "$1" != --find ]] || return 0
# shellcheck source=/dev/null  # common.bash, which sources this
[[ -n "$ebsif_runtime" && "${CONTAINERROOT:-}" -ef "$ebsif_root" && -f "${SIF:-}" && "${EBSIF_LOADED_MODULE:-}" && -e "${EBSIF_MOUNTED_USER_SOFTWARE:-$SIF}" ]] || { source "$ebsif_root/share/ebsif/common.bash" && load_or_explain "$@"; }
[[ "$1" != --check ]] || return 0
if [[ -n "${EBSIF_PYTHON_RANKS:-}${EBSIF_ACTIVATE:-}" ]]; then
    # shellcheck source=/dev/null
    source "$ebsif_root/share/ebsif/common.bash"
    prepare_program "$@"
    # shellcheck disable=SC2154
    set -- "${ebsif_words[@]}"
fi
# the entry point of the image may set variables for each rank; the runtime's exec leaves it out
set -- "$SIF" ${EBSIF_ENTRY_POINT:+"$EBSIF_ENTRY_POINT"} "$@"
# the runtime's option, and the device that a node with such GPUs has
[[ -z "${EBSIF_GPU:-}" || ! -e "${EBSIF_GPU#* }" ]] || set -- "${EBSIF_GPU%% *}" "$@"
# shellcheck source=/dev/null
[[ "${SINGULARITYENV_PREPEND_PATH:-}" == "${APPTAINERENV_PREPEND_PATH:-}" ]] ||
    { source "$ebsif_root/share/ebsif/common.bash" && join_search_paths; }
# what is for the host's Python, loader and shell; APPTAINERENV_... passes one
# shellcheck disable=SC2086  # names
unset ${EBSIF_UNSET:-}
# exec, so that the runtime receives the signals for this process
exec "$ebsif_runtime" exec "$@"
