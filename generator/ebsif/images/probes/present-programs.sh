# shellcheck shell=sh
# Print those of the names that are programs of the image, or in the directory of its Python.
# Usage: DIRECTORY NAME...
PATH=$1:$PATH
shift
for name; do
    ! command -v "$name" >/dev/null || printf '%s\n' "$name"
done
