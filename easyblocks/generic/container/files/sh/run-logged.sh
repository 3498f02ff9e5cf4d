# shellcheck shell=sh
# Run pip and append what it prints also to a file, where its progress can be seen; after success, run another program with
# the same Python, in the same container, because starting one takes longer. Ends with the exit status of what failed.
# Usage: FILE PROGRAM OUTPUT PYTHON [ARGUMENT]...
#   PROGRAM  file with the other program; empty: none
#   OUTPUT   file for what that prints
file=$1 program=$2 output=$3
shift 3
exec 3>&1
status=$({ { "$@" 4>&-; echo $? >&4; } 2>&1 | tee -a -- "$file" >&3; } 4>&1)
if [ "$status" != 0 ] || [ -z "$program" ]; then
    exit "$status"
fi
exec "$1" - <"$program" >"$output"
