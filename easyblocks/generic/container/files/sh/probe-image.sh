# shellcheck shell=sh
# Print whether the image has bash and python3, and the output of installed-packages.py, which is standard input.
for name in bash python3; do
    printf '%s\t%s\n' "$name" "$(command -v "$name")"
done
# the image may be usable even if its Python isn't
! command -v python3 >/dev/null || python3 - || :
