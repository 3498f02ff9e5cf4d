# shellcheck shell=sh
# Run in an image, with installed-packages.py as standard input: what of bash and python3 is there, and what python3 says.
for name in bash python3; do
    printf '%s\t%s\n' "$name" "$(command -v "$name")"
done
# the image may be of use although its Python is not
! command -v python3 >/dev/null || python3 - || :
