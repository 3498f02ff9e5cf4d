# shellcheck shell=bash
# Sourced by the container runtime whenever a container starts (/.singularity.d/env/97-ebsif.sh): set and unset the
# variables in module.conf, and set those that say where libraries keep their caches (find-caches).
#
# The runtime's own interpreter runs this. Those of older runtimes don't know -O and -w, and assign to a local variable in
# vain. All compile a pattern whenever they compare something with it, and all ranks of a node wait for that
# (docs/performance.md), so finding places for caches is left to the image's shell.
# The caller's variables are in __exported_env__, one per line. The text is long, because lists of binds are in it several
# times, so what matters here is taken out of it once (`ebsif_read`). Afterwards the runtime restores those that are not
# set here, unsets those that are empty here, then sets those from APPTAINERENV_*.

# ebsif_unset NAME: unset a variable, whether it comes from the image or from the caller.
ebsif_unset() {
    unset "$1"
    case $ebsif_read in
        *$'\n'"$1="*) export "$1=" ;;
    esac
}

# ebsif_suggest NAME=VALUE: set a variable, unless the caller has another value.
ebsif_suggest() {
    case $ebsif_read in
        *$'\n'"${1%%=*}="[!$'\n']*) ;;
        *) export "${1?}" ;;
    esac
}

# ebsif_take NAMES LINES: set `ebsif_taken` to a line break and those lines that set one of these variables.
ebsif_take() {
    ebsif_taken=$IFS
    for ebsif_variable in $2; do
        case " $1 " in
            *" ${ebsif_variable%%=*} "*) ebsif_taken=$ebsif_taken$ebsif_variable$IFS ;;
        esac
    done
}

# Set the variables at the start of module.conf; what find-caches needs of it is in `ebsif_caches` then.
ebsif_read_settings() {
    local IFS=$'\n'
    ebsif_settings=$(</share/ebsif/module.conf)
    for ebsif_line in $ebsif_settings; do
        case $ebsif_line in
            # only what matters: a string can't have more than 128 KiB, and there may be as much in hundreds of modules
            "start_reads "*)
                ebsif_take "${ebsif_line#* }" "${__exported_env__:-}"
                ebsif_read=$ebsif_taken
                ;;
            "start "*) export "${ebsif_line#start }" ;;
            # the runtime restores the caller's value
            "start_clear "*) unset "${ebsif_line#* }" ;;
            "start_file "*) [ ! -f "${ebsif_line#*=}" ] || ebsif_suggest "${ebsif_line#* }" ;;
            "start_apart "*)
                # all accounts are in it, where it is that of the host
                case $(</proc/self/uid_map) in
                    *4294967295*) ;;
                    *) ebsif_suggest "${ebsif_line#* }" ;;
                esac
                ;;
            "start_libraries "*) export "LD_LIBRARY_PATH=${ebsif_line#* }${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
            "start_path "*) export "PATH=$PATH:${ebsif_line#* }" ;;
            # the image may have a value of its own
            "start_drop "*) test -v "${ebsif_line#* }" || ebsif_unset "${ebsif_line#* }" ;;
            "start_unset "*) ebsif_unset "${ebsif_line#* }" ;;
            "cache_reads "*)
                ebsif_caches=${ebsif_settings#*"$IFS"cache_reads }
                ebsif_caches=${ebsif_caches%%"$IFS"module *}
                break
                ;;
            *) break ;;
        esac
    done
}

ebsif_set_environment() {
    local IFS=$'\n'
    ebsif_caches='' ebsif_read=''
    set -o noglob
    [ ! -r /share/ebsif/module.conf ] || ebsif_read_settings
    if [ -n "$ebsif_caches" ] && [ -r /runscripts/find-caches ] && [ -f /bin/sh ]; then
        ebsif_take "${ebsif_caches%%"$IFS"*}" "$ebsif_read"
        # without libraries that the image preloads, and a language that it may lack
        # not as arguments, which all accounts can see: among the caller's variables are credentials
        for ebsif_line in $(ebsif_caller="$ebsif_taken" LC_ALL=C LD_LIBRARY_PATH='' LD_PRELOAD='' \
            /bin/sh /runscripts/find-caches "$UID" "$ebsif_caches"); do
            # shellcheck disable=SC2163
            export "$ebsif_line"
        done
    fi
    set +o noglob
}
ebsif_set_environment
unset -f ebsif_unset ebsif_suggest ebsif_take ebsif_read_settings ebsif_set_environment
unset ebsif_settings ebsif_caches ebsif_read ebsif_taken ebsif_line ebsif_variable
