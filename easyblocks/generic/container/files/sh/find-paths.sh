# shellcheck shell=sh
# Print the number of the pattern and the path for each match of the patterns. Links in the path of its directory are
# resolved, because an overlay must contain the real directories.
# Usage: PATTERN...
number=0
IFS=
for pattern; do
    # shellcheck disable=SC2086  # expand the pattern; nothing is split because IFS is empty
    for path in $pattern; do
        [ -e "$path" ] || [ -L "$path" ] || continue
        folder=$(cd "${path%/*}/" && pwd -P) || exit
        printf '%s %s/%s\n' "$number" "${folder%/}" "${path##*/}"
    done
    number=$((number + 1))
done
