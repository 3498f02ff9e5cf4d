# shellcheck shell=sh
# Copy libraries of the image to a directory. Without names: where its loader looks for libraries.
# Usage: BLOCKS DIRECTORY [NAME:PATH:PATH...]...

# No file gets larger than BLOCKS of 512 bytes, as much as eb reads. Some shells end if they can't set a limit.
# shellcheck disable=SC3045  # all shells have it
! (ulimit -f "$1") 2>/dev/null || ulimit -f "$1"
shift

folder=$1
shift
if [ $# = 0 ]; then
    printf '%s' "${LD_LIBRARY_PATH:-}" >"$folder/search-path"
    [ ! -r /etc/ld.so.cache ] || cat /etc/ld.so.cache >"$folder/cache"
fi
IFS=:
set -f
for one; do
    name=${one%%:*}
    for path in ${one#*:}; do
        if [ -f "$path" ]; then
            cat "$path" >"$folder/$name"
            printf '%s\t%s\n' "$name" "$path" >>"$folder/paths"
            break
        fi
    done
done
