#!/usr/bin/env bash
# is-available.bash MODULES_TOOL MODULE OTHER...: exit status 0 if the modules tool finds the module, with the other ones
# loaded as far as they are there.
for other in "${@:3}"; do
    # what the modules tool prints is for this shell
    code=$("$1" bash load "$other" 2>/dev/null) && eval "$code" >&2
done
code=$("$1" bash is-avail "$2") || exit
eval "$code" >&2
