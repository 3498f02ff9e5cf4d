# Sourced by the commands in bin/: what they share. Bash only, no program is started here.
#
# The installation is found from the place of the script itself, links resolved by the caller, so a copied or moved
# tree acts on itself and never on the original.

# Print a message of the running command on standard error.
say() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
}

# End with a message: refuse STATUS MESSAGE. The statuses are part of the contract of each command.
refuse() {
    say "$2"
    exit "$1"
}

# How to load the module anew, with every modules tool (`module load` again does nothing in Environment Modules).
# shellcheck disable=SC2034
anew="module unload ${EBSIF_LOADED_MODULE:-NAME}; module load ${EBSIF_LOADED_MODULE:-NAME}"

# True in a container of Apptainer or SingularityCE.
in_container() {
    [[ -e /.singularity.d ]]
}

# escape VALUE: set `escaped`, the value as a variable for the container (APPTAINERENV_X): a shell in it reads that.
escape() {
    escaped=${1//\\/\\\\}
    escaped=${escaped//\$/\\\$}
    # shellcheck disable=SC2034  # for who calls it
    escaped=${escaped//\`/\\\`}
}

# run_in_container PROGRAM ARGUMENT...: become this program in the container of the loaded module.
run_in_container() {
    # shellcheck source=run.bash
    source "${root:?}/share/ebsif/run.bash" "$@"
}
