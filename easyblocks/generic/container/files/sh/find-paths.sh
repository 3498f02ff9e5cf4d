# shellcheck shell=sh
# Print for each match of the patterns the number of the pattern and the path, with the links of its directory resolved:
# an overlay has to name real directories.
# Usage: PATTERN...
number=0
IFS=
for pattern; do
    # shellcheck disable=SC2086  # a pattern: the shell expands it, and without IFS splits nothing
    for path in $pattern; do
        [ -e "$path" ] || [ -L "$path" ] || continue
        folder=$(cd "${path%/*}/" && pwd -P) || exit
        printf '%s %s/%s\n' "$number" "${folder%/}" "${path##*/}"
    done
    number=$((number + 1))
done
