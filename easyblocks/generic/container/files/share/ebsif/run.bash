# Sourced with PROGRAM ARGUMENT...: become it in the container of the loaded module. Needs `root`, as ready.bash does.
# shellcheck source=/dev/null  # it returns only if the module is loaded
source "${root:?}/share/ebsif/ready.bash"
# Images that are activated by hand get that here. A fixed text: the arguments reach it as arguments.
if [[ "${SINGULARITYENV_WITH_CONDA:-}" != true ]]; then
    # shellcheck disable=SC2016
    set -- bash -p -c '[[ ! -r /runscripts/init-conda-venv ]] || source /runscripts/init-conda-venv || exit; exec "$@"' \
        "${0##*/}" "$@"
fi
# What the image's entry point sets is for every program, by rank for instance; the runtime's exec leaves it out.
[[ -z "${EBSIF_ENTRY_POINT:-}" ]] || set -- "$EBSIF_ENTRY_POINT" "$@"
set -- "$SIF" "$@"
if [[ -n "${EBSIF_GPU:-}" ]]; then
    while read -r gpu option device _; do
        [[ $gpu != "$EBSIF_GPU" || ! -e $device ]] || set -- "$option" "$@"
    done <"$root/runscripts/gpus.conf"
fi
# One of them set since the module was loaded: both are meant, that without the module's own directories goes first.
if [[ "${SINGULARITYENV_PREPEND_PATH:-}" != "${APPTAINERENV_PREPEND_PATH:-}" ]]; then
    case :${APPTAINERENV_PREPEND_PATH:-}: in
        *:/runscripts:*) APPTAINERENV_PREPEND_PATH=${SINGULARITYENV_PREPEND_PATH:-}:$APPTAINERENV_PREPEND_PATH ;;
        *) APPTAINERENV_PREPEND_PATH=${APPTAINERENV_PREPEND_PATH:-}:${SINGULARITYENV_PREPEND_PATH:-} ;;
    esac
    # an empty element would be the working directory
    APPTAINERENV_PREPEND_PATH=${APPTAINERENV_PREPEND_PATH#:}
    APPTAINERENV_PREPEND_PATH=${APPTAINERENV_PREPEND_PATH%:}
    export APPTAINERENV_PREPEND_PATH SINGULARITYENV_PREPEND_PATH=$APPTAINERENV_PREPEND_PATH
fi
# of the host's Python, loader and shell: the container's would take them for theirs (APPTAINERENV_... passes one)
unset PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONSTARTUP LD_PRELOAD LD_AUDIT BASH_ENV ENV
# exec, so that a signal for this process is one for the runtime
exec "${runtime:?}" exec "$@"
