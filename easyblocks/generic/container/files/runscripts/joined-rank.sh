# shellcheck shell=sh
# Run the program of a rank in a container that ranks share; started by one-container.bash.
#
# Usage: sh joined-rank.sh IN OUT ERR CONFIG CONFIG PROGRAM ARGUMENT...
#   IN      number of the file from which signals for the program are read; if it ends, the program is killed
#   OUT     of the file to which the program's process ID is written, and its exit status in the end
#   ERR     of the program's standard error
#   CONFIG  values of APPTAINER_CONFIGDIR and SINGULARITY_CONFIGDIR, or "unset"
#
# A signal kills the runtime, and with it its child (not the children of that). So the shell that waits for the program is
# not its child, but that of another shell.
in=$1 out=$2 err=$3
unset APPTAINER_CONFIGDIR SINGULARITY_CONFIGDIR APPTAINER_INSTANCE SINGULARITY_INSTANCE
[ "$4" = unset ] || export APPTAINER_CONFIGDIR="$4"
[ "$5" = unset ] || export SINGULARITY_CONFIGDIR="$5"
shift 5

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
