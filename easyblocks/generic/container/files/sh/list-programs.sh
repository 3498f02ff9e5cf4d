# shellcheck shell=sh
# Print the names of the programs in a directory.
# Usage: DIRECTORY
for path in "$1"/*; do
    if [ -f "$path" ] && [ -x "$path" ]; then
        printf '%s\n' "${path##*/}"
    fi
done
