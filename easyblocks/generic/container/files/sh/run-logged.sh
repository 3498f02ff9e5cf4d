# shellcheck shell=sh
# Run a command and append what it prints also to a file, where its progress can be seen. Ends with its exit status.
# Usage: FILE COMMAND [ARGUMENT]...
file=$1
shift
exec 3>&1
status=$({ { "$@" 4>&-; echo $? >&4; } 2>&1 | tee -a -- "$file" >&3; } 4>&1)
exit "$status"
