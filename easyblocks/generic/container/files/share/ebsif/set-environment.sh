# shellcheck shell=bash
# Sourced by the container runtime whenever a container starts (/.singularity.d/env/97-ebsif.sh): set the variables in
# environment.conf, and those that say where libraries keep their caches, which may depend on the job (find-caches).
#
# The runtime's own interpreter runs this. Those of older runtimes don't know -O and -w, and assign to a local variable in
# vain, so most of the work is left to the image's shell. The caller's variables are in __exported_env__, one per line;
# afterwards the runtime restores those that are not set here, then sets those from APPTAINERENV_*.

# Set the variables in environment.conf.
ebsif_set_constants() {
    while IFS= read -r ebsif_line; do
        ebsif_kind=${ebsif_line%% *}
        ebsif_line=${ebsif_line#* }
        case $ebsif_kind:$ebsif_given in
            set:*) ;;
            # the caller has a file of their own
            file:*" ${ebsif_line%%=*} "*) continue ;;
            file:*) [ -f "${ebsif_line#*=}" ] || continue ;;
            # the runtime unsets what the caller has set, and is empty here; the image may have a value of its own
            drop:*" $ebsif_line "*)
                ! test -v "$ebsif_line" || continue
                ebsif_line=$ebsif_line=
                ;;
            *) continue ;;
        esac
        # shellcheck disable=SC2163
        export "$ebsif_line"
    done </runscripts/environment.conf
}

# Set the variables that find-caches prints, given those of the caller that it knows.
ebsif_set_caches() {
    local IFS=$'\n'
    # nothing of what the image sets
    for ebsif_line in $(/usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin "HOME=$HOME" "UID=$UID" "$@" \
        /bin/sh /runscripts/find-caches); do
        # shellcheck disable=SC2163
        export "$ebsif_line"
    done
}

ebsif_set_environment() {
    local IFS=$'\n'
    ebsif_names='' ebsif_given=' '
    if [ -r /runscripts/caches.conf ] && [ -r /runscripts/find-caches ] && [ -f /usr/bin/env ] && [ -f /bin/sh ]; then
        # the first line: the names of all variables that matter
        read -r ebsif_names </runscripts/caches.conf
    fi
    set -o noglob
    set --
    for ebsif_line in ${__exported_env__:-}; do
        case $ebsif_line in
            *=?*) ebsif_given="$ebsif_given${ebsif_line%%=*} " ;;
        esac
        case " $ebsif_names " in
            *" ${ebsif_line%%=*} "*) set -- "$@" "$ebsif_line" ;;
        esac
    done
    [ ! -r /runscripts/environment.conf ] || ebsif_set_constants
    [ -z "$ebsif_names" ] || ebsif_set_caches "$@"
    set +o noglob
}
ebsif_set_environment
unset -f ebsif_set_constants ebsif_set_caches ebsif_set_environment
unset ebsif_names ebsif_given ebsif_line ebsif_kind
