# shellcheck shell=sh
# Run the Python of the image, after the command that activates it; the program comes from standard input.
# Usage: [COMMAND]
# eval: the command is shell code, as users of the image type it
eval "${1:-:}" >&2 && exec "$(command -v python || command -v python3)" -
