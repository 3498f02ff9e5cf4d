# shellcheck shell=bash
# Sourced before anything else by scripts that have many variables and then start a person's program. Variables with small
# letters may be the person's: keep their values, for restore_inherited. Other scripts call their variables ebsif_NAME.
# Starts no program, and works with the oldest bash of images (4.2). Here, all variables are from the environment.

ebsif_inherited=()
for ebsif_name in ${!a*} ${!b*} ${!c*} ${!d*} ${!e*} ${!f*} ${!g*} ${!h*} ${!i*} ${!j*} ${!k*} ${!l*} ${!m*} \
    ${!n*} ${!o*} ${!p*} ${!q*} ${!r*} ${!s*} ${!t*} ${!u*} ${!v*} ${!w*} ${!x*} ${!y*} ${!z*}; do
    [[ $ebsif_name == ebsif_* ]] || ebsif_inherited+=("$ebsif_name=${!ebsif_name}")
done

# Overwrites variables of the script, so the program has to be known: restore_inherited; exec "$@"
restore_inherited() {
    for ebsif_name in "${ebsif_inherited[@]}"; do
        # may be an array now
        unset -v "${ebsif_name%%=*}"
        export "${ebsif_name?}"
    done
}
