# shellcheck shell=bash
# Sourced by conda-python-simple and conda-python-distributed with their arguments: show help if asked, refuse to run on the
# host, and run the script again through the image's entry point.

[[ ${1:-} != -h && ${1:-} != --help ]] || exec "${BASH_SOURCE[0]%/*}/show-help" "$0"

if [[ ! -e /.singularity.d ]]; then
    # shellcheck disable=SC2016  # the command for the user to type
    printf '%s: run this in the container: singularity exec $SIF %s ...\n' "${0##*/}" "${0##*/}" >&2
    exit 1
fi
# run through the image's entry point first, for the environment that it sets, which may depend on the rank
[[ -z ${EBSIF_ENTRY_POINT:-} || -n ${EBSIF_ENTERED:-} ]] ||
    EBSIF_ENTERED=1 exec "$EBSIF_ENTRY_POINT" "$0" "$@"
unset EBSIF_ENTERED
