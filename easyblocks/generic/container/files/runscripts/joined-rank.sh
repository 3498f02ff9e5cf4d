# shellcheck shell=sh
# Run the program of a rank in a container that ranks share; started by one-container.bash.
#
# Usage: sh joined-rank.sh IN OUT ERR GOGC PROGRAM ARGUMENT...
#   IN    number of the file from which signals for the program are read; if it ends, the program is killed
#   OUT   of the file to which the program's process ID is written, and its exit status in the end
#   ERR   of the program's standard error
#   GOGC  the caller's value of this variable, or nothing; one-container.bash has set another one for the runtime
#
# A signal kills the runtime, and with it its child (not the children of that). So the shell that waits for the program is
# not its child, but that of another shell.
in=$1 out=$2 err=$3 garbage=$4
shift 4
unset APPTAINER_CONFIGDIR SINGULARITY_CONFIGDIR APPTAINER_INSTANCE SINGULARITY_INSTANCE
# unless there is a value for the container
if [ "${GOGC:-}" = off ]; then
    unset GOGC
    [ -z "$garbage" ] || export GOGC="$garbage"
fi

# Send signals to the program; end it if nobody is left who sends some.
forward() {
    trap '' HUP INT QUIT USR1 USR2 ALRM TERM XCPU
    eval "exec <&$in $in<&- $out>&- $err>&-"
    read -r program || return
    while read -r signal; do
        kill -s "$signal" "$program"
    done
    kill -s KILL "$program"
}

start() {
    # $$ is the first shell's
    read -r program rest </proc/self/stat
    eval "echo $program >&$out"
    eval 'exec "$@"' "2>&$err $in<&- $out>&- $err>&-"
}

# shells report how their children end
exec 2>/dev/null
(
    trap : HUP INT QUIT USR1 USR2 ALRM TERM XCPU
    forward &
    (start "$@")
    status=$?
    kill -s KILL $!
    eval "echo $status >&$out"
)
exit
