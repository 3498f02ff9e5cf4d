#!/usr/bin/env bash
# is-available.bash MODULES_TOOL MODULE: exit status 0 if the modules tool finds the module.
code=$("$1" bash is-avail "$2") || exit
eval "$code" >&2
