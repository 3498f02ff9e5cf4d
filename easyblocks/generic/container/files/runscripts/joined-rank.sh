# shellcheck shell=sh
# Run the program of a rank in a container that ranks share; started by one-container.bash.
#
# Usage: sh joined-rank.sh IN OUT ERR PROGRAM ARGUMENT...
#   IN    number of the file from which signals for the program are read; if it ends, the program is killed
#   OUT   of the file to which the program's process ID is written, and its exit status in the end
#   ERR   of the program's standard error
#
# EBSIF_PAST_RUNTIME has commands that set variables of the caller that don't pass through the runtime: give NAME 'VALUE'.
#
# A signal kills the runtime, and with it its child (not the children of that). So the shell that waits for the program is
# not its child, but that of another shell.
ebsif_in=$1 ebsif_out=$2 ebsif_err=$3
shift 3

# give NAME VALUE: set a variable as the runtime does: a value of the container wins, but an empty one unsets it.
# shellcheck disable=SC2317  # EBSIF_PAST_RUNTIME calls it
give() {
    eval "
        if [ -z \"\${$1+set}\" ]; then
            export $1=\"\$2\"
        elif [ -z \"\$$1\" ]; then
            unset $1
        fi"
}

unset APPTAINER_CONFIGDIR SINGULARITY_CONFIGDIR APPTAINER_INSTANCE SINGULARITY_INSTANCE
eval "$EBSIF_PAST_RUNTIME"
unset EBSIF_PAST_RUNTIME

# Send signals to the program; end it if nobody is left who sends some.
forward() {
    trap '' HUP INT QUIT USR1 USR2 ALRM TERM XCPU
    # the time limit of `read` in some shells
    unset TMOUT
    eval "exec <&$ebsif_in $ebsif_in<&- $ebsif_out>&- $ebsif_err>&-"
    read -r program || return
    while read -r signal; do
        kill -s "$signal" "$program"
    done
    kill -s KILL "$program"
}

start() {
    # $$ is the first shell's
    # not _, which is the caller's
    # shellcheck disable=SC2034
    read -r ebsif_program ebsif_rest </proc/self/stat
    eval "echo $ebsif_program >&$ebsif_out"
    eval 'exec "$@"' "2>&$ebsif_err $ebsif_in<&- $ebsif_out>&- $ebsif_err>&-"
}

# shells report how their children end
exec 2>/dev/null
(
    trap : HUP INT QUIT USR1 USR2 ALRM TERM XCPU
    forward &
    (start "$@")
    status=$?
    kill -s KILL $!
    eval "echo $status >&$ebsif_out"
)
exit
