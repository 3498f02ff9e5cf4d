# shellcheck shell=sh
# Run pip and append what it prints also to a file, where its progress can be seen; after success, compile bytecode and
# meanwhile list the packages with the same Python, in the same container, because starting another one takes longer. Ends
# with the exit status of what failed; bytecode isn't necessary.
# Usage: FILE FOLDER PROCESSES TIME PYTHON [ARGUMENT]...
#   FOLDER     directory with the program list.py, for the list packages.txt; empty: only run pip
#   PROCESSES  number of processes for the program compile.py in FOLDER, and TIME of the files; empty: don't compile
file=$1 folder=$2 processes=$3 time=$4
shift 4
exec 3>&1
status=$({ { "$@" 4>&-; echo $? >&4; } 2>&1 | tee -a -- "$file" >&3; } 4>&1)
if [ "$status" != 0 ] || [ -z "$folder" ]; then
    exit "$status"
fi
[ -z "$processes" ] || printf '%s\n' 'compiling bytecode' >>"$file"
# Ctrl-C doesn't end what is in the background, so that is what takes less time
"$1" - <"$folder/list.py" >"$folder/packages.txt" &
[ -z "$processes" ] || "$1" -I - "$processes" "$time" <"$folder/compile.py" || :
wait $!
