# shellcheck shell=sh
# Run the Python of the image, after the command that activates it; the program is standard input.
# Usage: [COMMAND]
# the command's words are for the shell, as users of the image write them
eval "${1:-:}" >&2 && exec "$(command -v python || command -v python3)" -
