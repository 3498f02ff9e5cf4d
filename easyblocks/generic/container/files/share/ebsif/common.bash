# Shared functions, sourced by the commands in bin/. Bash only: no program is started here.
#
# Scripts find the installation from their own path (the caller resolves links), so copies of an installation work on
# themselves and never on the original.

# Print a message of the running command to standard error.
say() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
}

# refuse STATUS MESSAGE: exit with a message. Each command documents its statuses.
refuse() {
    say "$2"
    exit "$1"
}

# help_if_asked ARGUMENT...: if the first argument asks for help, print the comment at the top of the command and exit.
help_if_asked() {
    [[ "${1:-}" == -h || "${1:-}" == --help ]] || return 0
    exec sed -n -e 1d -e '/^#/!q' -e 's/^# \{0,1\}//p' "$0"
}

# Commands to reload the module with any modules tool (a second `module load` does nothing in Environment Modules).
# shellcheck disable=SC2034
ebsif_reload="module unload ${EBSIF_LOADED_MODULE:-NAME}; module load ${EBSIF_LOADED_MODULE:-NAME}"

# True in a container of Apptainer or SingularityCE.
in_container() {
    [[ -e /.singularity.d ]]
}

# Exit in another container than that of the module; needs the module's variables.
refuse_other_container() {
    local container=${APPTAINER_CONTAINER:-${SINGULARITY_CONTAINER:-unknown}}
    # also compare the paths: the image may not be visible in the container
    [[ -n "${SIF:-}" && ("$container" == "$SIF" || "$container" -ef "$SIF") ]] || refuse 1 \
        "this is another container ($container), and containers can't be nested: leave it first"
}

# escape VALUE: set `ebsif_escaped`, the value to use in APPTAINERENV_X variables, which a shell in the container evaluates.
escape() {
    ebsif_escaped=${1//\\/\\\\}
    ebsif_escaped=${ebsif_escaped//\$/\\\$}
    ebsif_escaped=${ebsif_escaped//\`/\\\`}
}

# run_in_container PROGRAM ARGUMENT...: exec this program in the container of the loaded module.
run_in_container() {
    # shellcheck source=run.bash
    source "${ebsif_root:?}/share/ebsif/run.bash" "$@"
}
