# Sourced by run.bash, with its arguments, if python may be a rank of a run, or the image has to be activated.

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
