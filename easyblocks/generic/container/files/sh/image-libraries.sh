# shellcheck shell=sh
# Copy libraries of the image to a directory. Without names: where its loader looks for libraries.
# Usage: DIRECTORY [NAME:PATH:PATH...]...

# No file gets larger than eb reads (MOST_WRITTEN, in blocks of 512 bytes). Some shells end if they can't set a limit.
# shellcheck disable=SC3045  # all shells have it
! (ulimit -f 524288) 2>/dev/null || ulimit -f 524288

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
