# shellcheck shell=sh
# Print a line `program NAME` for each program in a directory.
# Usage: DIRECTORY
for path in "$1"/*; do
    if [ -f "$path" ] && [ -x "$path" ]; then
        printf 'program %s\n' "${path##*/}"
    fi
done
