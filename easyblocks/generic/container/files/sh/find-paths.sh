# shellcheck shell=sh
# Print a line `mask NUMBER PATH` for each match of the patterns, and `folder MODE PATH` for each directory above it. Links
# in the path of its directory are resolved, because an overlay must contain the real directories.
# Usage: PATTERN...
number=0
IFS=
for pattern; do
    # shellcheck disable=SC2086  # expand the pattern; nothing is split because IFS is empty
    for path in $pattern; do
        [ -e "$path" ] || [ -L "$path" ] || continue
        folder=$(cd "${path%/*}/" && pwd -P) || exit
        printf 'mask %s %s/%s\n' "$number" "${folder%/}" "${path##*/}"
        while [ -n "${folder%/}" ]; do
            printf 'folder %s %s\n' "$(stat -c %a "$folder" 2>/dev/null || echo 755)" "$folder"
            folder=${folder%/*}
        done
    done
    number=$((number + 1))
done
