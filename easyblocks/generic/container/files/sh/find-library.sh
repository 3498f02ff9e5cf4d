# shellcheck shell=sh
# Print a line `library PATH` for a library in the image, if it is in the loader's cache, on the search path, or at PATH.
# Not every image has ldconfig.
# Usage: NAME PATH
found=$(ldconfig -p 2>/dev/null | while read -r name rest; do
    [ "$name" != "$1" ] || printf '%s\n' "${rest##*=> }"
done | head -n 1)
IFS=:
for folder in ${LD_LIBRARY_PATH:-}; do
    [ -n "$found" ] || [ ! -e "$folder/$1" ] || found=$folder/$1
done
[ -n "$found" ] || [ ! -e "$2" ] || found=$2
[ -z "$found" ] || printf 'library %s\n' "$(readlink -f "$found")"
