# shellcheck shell=bash
# Sourced before anything else by scripts that have many variables and then start a person's program. Exported variables
# whose names begin with a lower-case letter may be the person's: keep their values, for restore_inherited. Other scripts
# name their variables ebsif_NAME. Until then, two variables don't apply that change what bash does.

ebsif_inherited=()
# failing redirections would end the shell; `read` would end before its time
for ebsif_name in POSIXLY_CORRECT TMOUT; do
    [[ -z ${!ebsif_name+set} ]] || ebsif_inherited+=("$ebsif_name=${!ebsif_name}")
    unset -v "$ebsif_name"
done
# `${!a*}` and the like would compare all variables with each other
mapfile -t ebsif_exported < <(compgen -e)
for ebsif_name in "${ebsif_exported[@]}"; do
    [[ $ebsif_name != [[:lower:]]* || $ebsif_name == ebsif_* ]] || ebsif_inherited+=("$ebsif_name=${!ebsif_name}")
done

# Overwrites variables of the script, so the program has to be known: restore_inherited; exec "$@"
restore_inherited() {
    for ebsif_name in "${ebsif_inherited[@]}"; do
        # may be an array now
        unset -v "${ebsif_name%%=*}"
        export "${ebsif_name?}"
    done
}

# unset_inherited NAME: unset a variable, also of the person's.
unset_inherited() {
    unset -v "$1"
    for ebsif_name in "${!ebsif_inherited[@]}"; do
        [[ ${ebsif_inherited[ebsif_name]} != "$1="* ]] || unset -v "ebsif_inherited[$ebsif_name]"
    done
}
