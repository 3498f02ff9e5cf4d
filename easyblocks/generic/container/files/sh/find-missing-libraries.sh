# shellcheck shell=sh
# Print which libraries of programs aren't found, each with the program.
# Usage: PROGRAM...
for program; do
    ldd "$(readlink -f "$program")" 2>/dev/null | while read -r library arrow rest; do
        [ "$arrow $rest" != '=> not found' ] || printf '%s %s\n' "$program" "$library"
    done
done
