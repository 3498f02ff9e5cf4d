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

# True in a container of Apptainer or SingularityCE.
in_container() {
    [[ -e /.singularity.d ]]
}

# Set `runtime` to the container runtime. `type -P` looks at files only: a shell function of that name is not it.
# shellcheck disable=SC2034  # it is for the command that sources this
find_runtime() {
    runtime=$(type -P apptainer) || runtime=$(type -P singularity) ||
        refuse 127 "neither apptainer nor singularity is on PATH; on a cluster, try this on a compute node or load the site's module for it"
}
