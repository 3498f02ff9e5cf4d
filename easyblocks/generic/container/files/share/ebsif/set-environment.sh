# shellcheck shell=bash
# Sourced by the container runtime whenever a container starts (/.singularity.d/env/97-ebsif.sh): set and unset the
# variables in module.conf, and set those that say where libraries keep their caches (find-caches).
#
# The runtime's own interpreter runs this. Those of older runtimes don't know -O and -w, and assign to a local variable in
# vain, so most of the work is left to the image's shell. All compile a pattern whenever they compare something with it, so
# there is but one for each of the caller's variables: with more, all ranks of a node wait for it (docs/performance.md).
# The caller's variables are in __exported_env__, one per line. Afterwards the runtime restores those that are not set
# here, unsets those that are empty here, then sets those from APPTAINERENV_*.

# ebsif_mark NAMES: the caller's values of these variables matter, and are in ebsif_of_NAME then.
ebsif_mark() {
    local IFS=' '
    for ebsif_name in $1; do
        export "ebsif_of_$ebsif_name="
        ebsif_marked="$ebsif_marked ebsif_of_$ebsif_name"
    done
}

ebsif_unmark() {
    local IFS=' '
    # shellcheck disable=SC2086
    unset $ebsif_marked
}

# ebsif_unset NAME: unset a variable, whether it comes from the image or from the caller.
ebsif_unset() {
    unset "$1"
    case $'\n'${__exported_env__:-} in
        *$'\n'"$1="*) export "$1=" ;;
    esac
}

# Set the variables that are always the same; the lines of those that depend on the caller's values are in
# `ebsif_conditional` then, and what find-caches needs is in `ebsif_caches`. All of it is at the start of module.conf.
ebsif_read_settings() {
    local IFS=$'\n'
    ebsif_settings=$(</share/ebsif/module.conf)
    for ebsif_line in $ebsif_settings; do
        case $ebsif_line in
            "start "*) export "${ebsif_line#start }" ;;
            "start_unset "*) ebsif_unset "${ebsif_line#* }" ;;
            start_*)
                ebsif_conditional=$ebsif_conditional$ebsif_line$IFS
                ebsif_line=${ebsif_line#* }
                ebsif_mark "${ebsif_line%%=*}"
                ;;
            "cache_reads "*)
                ebsif_mark "${ebsif_line#* }"
                ebsif_caches=${ebsif_settings#*"$IFS"cache_reads }
                ebsif_caches=${ebsif_caches%%"$IFS"module *}
                break
                ;;
            *) break ;;
        esac
    done
}

# Set those that depend on the caller's value.
ebsif_set_conditional() {
    local IFS=$'\n'
    for ebsif_line in $ebsif_conditional; do
        ebsif_kind=${ebsif_line%% *}
        ebsif_line=${ebsif_line#* }
        ebsif_name=ebsif_of_${ebsif_line%%=*}
        case $ebsif_kind in
            start_file)
                # the caller has one of their own
                [ -z "${!ebsif_name}" ] || continue
                [ -f "${ebsif_line#*=}" ] || continue
                ;;
            # the image may have a value of its own
            start_drop)
                [ -n "${!ebsif_name}" ] || continue
                ! test -v "$ebsif_line" || continue
                ebsif_line=$ebsif_line=
                ;;
        esac
        # shellcheck disable=SC2163
        export "$ebsif_line"
    done
}

# ebsif_set_caches VARIABLE=VALUE...: set the variables that find-caches prints, given the caller's.
ebsif_set_caches() {
    local IFS=$'\n'
    # without libraries that the image preloads, and a language that it may lack
    for ebsif_line in $(LC_ALL=C LD_LIBRARY_PATH='' LD_PRELOAD='' /bin/sh /runscripts/find-caches "$UID" \
        "$ebsif_caches" "$@"); do
        # shellcheck disable=SC2163
        export "$ebsif_line"
    done
}

ebsif_set_environment() {
    local IFS=$'\n'
    ebsif_marked='' ebsif_conditional='' ebsif_caches=''
    set -o noglob
    [ ! -r /share/ebsif/module.conf ] || ebsif_read_settings
    set --
    for ebsif_line in ${__exported_env__:-}; do
        ebsif_name=ebsif_of_${ebsif_line%%=*}
        ! test -v "$ebsif_name" || {
            export "ebsif_of_$ebsif_line"
            set -- "$@" "$ebsif_line"
        }
    done
    ebsif_set_conditional
    ebsif_unmark
    if [ -n "$ebsif_caches" ] && [ -r /runscripts/find-caches ] && [ -f /bin/sh ]; then
        ebsif_set_caches "$@"
    fi
    set +o noglob
}
ebsif_set_environment
unset -f ebsif_mark ebsif_unmark ebsif_unset ebsif_read_settings ebsif_set_conditional ebsif_set_caches \
    ebsif_set_environment
unset ebsif_settings ebsif_caches ebsif_name ebsif_marked ebsif_conditional ebsif_line ebsif_kind
