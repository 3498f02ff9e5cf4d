#!/usr/bin/env bash
# without-modules.bash MODULES_TOOL MODULE...: print the environment without these modules, with a NUL after each entry.
code=$("$1" bash unload "${@:2}") || exit
# what the modules tool prints is for a shell to evaluate
eval "$code" >&2
env -0
