# Sourced before a script of bash (BASH_ENV): kill -9 of the whole process group before the command KILL_AT, counted from
# 1. With KILL_AT=0 the commands are only counted, in the file COUNT.
# shellcheck shell=bash
unset BASH_ENV
points=0
reach() {
    points=$((points + 1))
    ((points != KILL_AT)) || kill -KILL 0
    ((KILL_AT)) || printf '%s\n' "$points" >"$COUNT"
}
set -o functrace
trap reach DEBUG
