# shellcheck shell=bash
# Sourced by the container runtime whenever a container starts (/.singularity.d/env/97-ebsif.sh): set the variables that
# say where libraries keep their caches, which may depend on the job (find-caches).
#
# The runtime's own interpreter runs this. Those of older runtimes don't know -O and -w, and assign to a local variable in
# vain, so most of the work is left to the image's shell. The caller's variables are in __exported_env__, one per line;
# afterwards the runtime restores those that are not set here.
ebsif_set_caches() {
    local IFS=$'\n'
    set -o noglob
    set --
    for ebsif_line in ${__exported_env__:-}; do
        case " $ebsif_names " in
            *" ${ebsif_line%%=*} "*) set -- "$@" "$ebsif_line" ;;
        esac
    done
    # nothing of what the image sets
    for ebsif_line in $(/usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin "HOME=$HOME" "UID=$UID" "$@" \
        /bin/sh /runscripts/find-caches); do
        # shellcheck disable=SC2163
        export "$ebsif_line"
    done
    set +o noglob
}
if [ -r /runscripts/caches.conf ] && [ -r /runscripts/find-caches ] && [ -f /usr/bin/env ] && [ -f /bin/sh ]; then
    # the first line: the names of all variables that matter
    read -r ebsif_names </runscripts/caches.conf
    ebsif_set_caches
fi
unset -f ebsif_set_caches
unset ebsif_names ebsif_line
