# shellcheck shell=bash
# Run a command that starts a program of others; stop it when it has run for too long, or has printed too much.
# Usage: SECONDS PRINTED COMMAND...
#   PRINTED  the most bytes of standard output, and of standard error
# Files that the command writes have no limit: the runtime unpacks images where it can't mount them.
# The exit status is that of the command; 124 or 137: too long, 141: too much output.
seconds=$1 printed=$2
shift 2
# signals from the terminal reach the command
{ timeout --foreground -k 10 "$seconds" "$@" 2>&3 3>&- | head -c "$printed" 3>&-; } 3> >(head -c "$printed" >&2)
status=${PIPESTATUS[0]}
# the command may have been killed by somebody else (137), too
if ((SECONDS >= seconds)); then
    echo "ebsif: stopped after $seconds seconds" >&2
elif ((status == 141)); then
    echo "ebsif: stopped after $printed bytes of output" >&2
fi
exit "$status"
