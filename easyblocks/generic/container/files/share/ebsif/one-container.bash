# shellcheck shell=bash
# Sourced by run.bash with [OPTION] IMAGE PROGRAM ARGUMENT...: if this is one of several ranks of a run on this node, run
# the program in a container that they share. Returns if it needs a container of its own. Uses `ebsif_root` and
# `ebsif_runtime`.
#
# The ranks meet in a directory on the node, one for each run and kind of container:
#
#   start-N   created by the rank that starts the container; the next number if it is killed meanwhile
#   starting  a named pipe that this rank has open to write: the others wait for its end
#   state     "ready", or why the container could not be started
#   ranks     locked (shared) by each rank; the last one locks it alone, and ends the container
#   alive     a named pipe that each rank has open: if all are killed, end-container reads its end
#   turns     a named pipe with blanks, two for each CPU of the node: a rank takes one while it joins
#   config    where the runtime keeps its instances, because $HOME may be read-only or the same on all nodes; SingularityCE
#             describes them in the home directory all the same: a link leads there
#
# Locks and pipes are released however a process ends. Few programs are started, because all ranks of a node do so at once,
# and each costs 2 % of the CPU time of joining (docs/performance.md).
# shellcheck source=../../runscripts/inherited.bash
source "${ebsif_root:?}/runscripts/inherited.bash"
# shellcheck source=common.bash
source "$ebsif_root/share/ebsif/common.bash"

signals_to_forward=(HUP INT QUIT USR1 USR2 ALRM TERM XCPU)

# share_container [OPTION] IMAGE PROGRAM ARGUMENT...
share_container() {
    local local_rank=0 local_size=1 job='' step='' node='' launcher='' directory='' problem=''
    # with a terminal, the runtime has to be in the foreground
    [[ ! -t 0 ]] || return 0
    find_rank
    ((local_size > 1)) || return 0
    local options=() image
    while [[ $1 == --* ]]; do
        options+=("$1")
        shift
    done
    image=$1
    shift
    if ! can_share || ! name_run || ! meet "$image" "${options[@]}"; then
        ((local_rank)) || explain
    elif [[ "$state" == ready ]]; then
        join "$@"
        # one of the ranks
        ! mkdir -- "$place/noted" 2>/dev/null || explain
        leave
    fi
}

explain() {
    say "the ranks of this node have a container each, instead of one for all: $problem"
}

# Set local_rank, local_size, job, step and node, if a launcher tells; otherwise conda-python-distributed says what is wrong.
find_rank() {
    local here=$ebsif_root/runscripts
    fail() {
        local_size=1
        return 1
    }
    # shellcheck source=../../runscripts/rank.bash
    source "$here/rank.bash"
    resolve_rank
    node=${node:-$HOSTNAME}
}

can_share() {
    local program
    for program in flock mkfifo setsid; do
        type -P "$program" >/dev/null || {
            problem="there is no program $program"
            return 1
        }
    done
    # the runtime would move the ranks from the scheduler's control group to one of its own
    [[ $EUID != 0 || ! -d /run/systemd/system ]] || {
        problem="root's containers have control groups of their own"
        return 1
    }
}

# Set `instance`, a name for the run on this node, and `directory`, in which its ranks meet.
name_run() {
    local process='' path name template value word rest
    # several runs in a job, and even in none, may have the same numbers
    [[ "$launcher${PALS_APID:+ named}" != @(PMI|Open MPI|torchrun|PALS) ]] || find_launcher || return
    instance=ebsif-$job.$step${process:+.$process}
    # shellcheck source=../../runscripts/find-node.sh
    source "$ebsif_root/runscripts/find-node.sh"
    find_node "$ebsif_root/runscripts" || {
        problem="no directory on this node can be used (EBSIF_NODE_LOCAL sets one)"
        return 1
    }
    directory=$path
}

# Set `process` to the one that has started the ranks of this node: the first one above this that is no rank.
find_launcher() {
    local line fields
    process=$PPID
    while ((process > 1)); do
        # that of another account can't be read
        [[ -r "/proc/$process/environ" ]] && is_rank || return 0
        read -r line <"/proc/$process/stat" || break
        # the name before it may contain anything
        read -r -a fields <<<"${line##*) }"
        process=${fields[1]}
    done
    problem="the launcher does not identify the run"
    return 1
}

# True if `process` has the variables of a rank.
is_rank() {
    local variable
    while IFS= read -r -d '' variable; do
        [[ "$variable" != @(PMI_RANK|OMPI_COMM_WORLD_RANK|PALS_RANKID|TORCHELASTIC_RUN_ID)=* ]] || return 0
    done <"/proc/$process/environ"
    return 1
} 2>/dev/null

# meet IMAGE OPTION...: find the place of the ranks whose containers are made of the same things; set `place` and `state`.
meet() {
    local name made_of other number
    printf -v made_of '%q ' "$@" "$PWD" "${HOME:-}"
    for name in ${!APPTAINER*} ${!SINGULARITY*} ${!NVIDIA_*}; do
        [[ "$name" == @(APPTAINER|SINGULARITY)ENV_* ]] || printf -v made_of '%s%q ' "$made_of" "$name=${!name}"
    done
    for number in {0..9}; do
        place=$directory/ebsif-$EUID-${instance#ebsif-}-$node-$number
        enter || return
        wait_for_container "$@" || {
            leave
            return 1
        }
        IFS= read -r other <"$place/made-of"
        [[ "$made_of" != "$other" ]] || return 0
        leave
    done
    problem="there are too many different ones"
    return 1
}

# Let the container end without this rank.
leave() {
    exec {ranks}>&- {alive}>&- {turns}>&-
}

# Lock `ranks`, and open `alive` and `turns`. The directory may just be removed by the last rank of an earlier container.
enter() {
    for _ in {1..50}; do
        [[ -d "$place" ]] || mkdir -m 700 -- "$place" 2>/dev/null || [[ -d "$place" ]] || break
        [[ -O "$place" && ! -L "$place" ]] || break
        { exec {ranks}>>"$place/ranks"; } 2>/dev/null || continue
        flock --shared "$ranks" || break
        if was_killed; then
            # all ranks that see this do it, one after the other; those of the killed step are just ending
            flock --exclusive -w 5 "$ranks" || break
            [[ ! "$place/ranks" -ef "/proc/self/fd/$ranks" ]] || "$ebsif_root/share/ebsif/end-container" --now "$place"
        elif [[ "$place/ranks" -ef "/proc/self/fd/$ranks" ]] && make_pipes; then
            exec {alive}<>"$place/alive" {turns}<>"$place/turns"
            return 0
        fi
        exec {ranks}>&-
    done
    unusable
}

# True if the container has ended, but nobody was left to remove the directory, as before the same job starts again: its first
# process, or that of the runtime, has ended.
was_killed() {
    local text process line
    [[ -s "$place/state" ]] && is_described && [[ "$text" =~ \"pid\":([0-9]+),\"ppid\":([0-9]+) ]] || return
    for process in "${BASH_REMATCH[@]:1}"; do
        line=''
        { read -r line <"/proc/$process/stat"; } 2>/dev/null
        # the name before the state may contain anything
        [[ "${line##*) }" != @([ZX]*|) ]] || return 0
    done
    return 1
}

# Others may be faster.
make_pipes() {
    are_pipes || mkfifo -m 600 -- "$place/alive" "$place/starting" "$place/turns" 2>/dev/null || are_pipes
}

are_pipes() {
    [[ -p "$place/alive" && -p "$place/starting" && -p "$place/turns" ]]
}

unusable() {
    problem="$place can't be used (EBSIF_NODE_LOCAL sets another place)"
    return 1
}

# wait_for_container IMAGE OPTION...: let one of the ranks start it; set `state`.
wait_for_container() {
    local starting waiting attempt
    for attempt in {0..9}; do
        [[ ! -s "$place/state" ]] || break
        # before it is known who starts the container: nobody must read an end before
        exec {starting}<>"$place/starting"
        if create "$place/start-$attempt"; then
            start_container "$@"
        else
            exec {waiting}<"$place/starting" {starting}>&-
            read -r -u "$waiting" _
            exec {waiting}<&-
        fi
        exec {starting}>&-
    done
    { read -r state <"$place/state"; } 2>/dev/null || unusable
}

# create FILE: fails if it exists.
create() {
    local status=0
    set -o noclobber
    : >"$1" || status=1
    set +o noclobber
    return "$status"
} 2>/dev/null

# start_container IMAGE OPTION...: a process of its own, which goes on if the rank is killed: it has `alive` open, because
# the container can be ended only when it is known.
start_container() (
    echo "$made_of" >"$place/made-of"
    link_instances
    {
        exec <"$place/alive" >/dev/null 2>&1
        close_others
        exec setsid "$ebsif_root/share/ebsif/end-container" "$place"
    } &
    start_instance "$@" </dev/null >"$place/log" 2>&1 &
    process=$!
    # the runtime itself watches what it has started for a while, but the container can be joined before
    until is_described || [[ ! -e /proc/$process ]]; do
        read -r -t 0.01 -u "$alive"
    done
    if is_described || wait "$process"; then
        offer_turns
        echo ready >"$place/state"
    else
        problem=$(sed -n 's/^\(FATAL\|ERROR\): *//p' "$place/log")
        explain
        echo "${problem:-unknown}" >"$place/state"
    fi
)

# If more ranks joined at once, some percent of the time would go into switching between them.
offer_turns() {
    local last=255
    # such as 0-255
    { read -r last </sys/devices/system/cpu/present; } 2>/dev/null
    last=${last##*[-,]}
    printf '%*s' $((2 * (last + 1))) '' >&"$turns"
}

# True if the runtime has completely written the file that describes the container (see end-container); sets `text`.
is_described() {
    local file host
    text=''
    read -r host </proc/sys/kernel/hostname
    for file in "$place"/config/instances/{app,sing}/"$host"/*/"${place##*/}"/*.json; do
        [[ ! -r "$file" ]] || IFS= read -r -d '' text <"$file"
    done
    [[ "$text" == *\}*([[:space:]]) ]]
}

# start_instance IMAGE OPTION...: without the startscript of the image, which an own container doesn't run either.
start_instance() {
    local stay=$ebsif_root/runscripts/stay.sh
    stay=${stay//,/\\,}
    stay=${stay//:/\\:}:/.singularity.d/startscript:ro
    close_others
    export_config
    # for a control group of its own
    unset XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS
    set -- "$ebsif_runtime" instance start --bind "$stay" "${@:2}" "$1" "${place##*/}"
    # its file systems serve all ranks, so they may use all CPUs of the job
    ! type -P taskset >/dev/null || set -- taskset --cpu-list 0-8191 "$@"
    exec "$@"
}

export_config() {
    export APPTAINER_CONFIGDIR=$place/config SINGULARITY_CONFIGDIR=$place/config
}

# SingularityCE describes its instances in the account's own home directory, whatever HOME says.
link_instances() {
    local home
    home=$(unset HOME && echo ~)
    mkdir -p -- "$place/config/instances" && ln -sfn -- "$home/.singularity/instances/sing" "$place/config/instances/sing"
}

# Close all files but the standard streams: those of a launcher tell it that a rank has ended.
close_others() {
    local number
    for number in /proc/self/fd/*; do
        number=${number##*/}
        ((number < 3)) || exec {number}>&-
    done
}

# join PROGRAM ARGUMENT...: run the program in the shared container and exit with its status. Returns if that failed.
join() {
    local digits=() used=() digit input output messages answers signals process program='' status='' signal
    # Shells in the container may know only single digits. Some launchers leave files of theirs open, so that all are in
    # use; a rank needs the one in PMI_FD.
    for digit in 9 8 7 6 5 4 3; do
        if [[ ! -e /proc/self/fd/$digit ]]; then
            digits+=("$digit")
        elif [[ "$digit" != "${PMI_FD:-}" ]]; then
            used+=("$digit")
        fi
    done
    digits=("${digits[@]}" "${used[@]}")
    # a rank that was killed may have kept one
    local turn=''
    ! IFS= read -r -n 1 -t 5 -u "$turns" _ || turn=' '
    exec {input}<&0 {output}>&1
    coproc joined {
        eval "exec ${digits[0]}<&0 ${digits[1]}>&1 ${digits[2]}>&2 <&$input >&$output"
        exec {ranks}>&- {alive}>&- {turns}>&- {input}<&- {output}>&-
        export_config
        # SingularityCE would search there, where it does not describe them
        unset SINGULARITY_CONFIGDIR
        hand_past_runtime
        # this process is one more
        SHLVL=$((SHLVL - 1))
        set -- "$ebsif_runtime" exec "instance://${place##*/}" sh /runscripts/joined-rank.sh "${digits[@]:0:3}" "$@"
        restore_inherited
        exec "$@"
    }
    # shellcheck disable=SC2154  # coproc sets it
    process=$joined_PID
    exec {answers}<&"${joined[0]}" {signals}>&"${joined[1]}" {input}<&- {output}>&-
    problem="the container can't be joined"
    read -r -u "$answers" program
    printf '%s' "$turn" >&"$turns"
    [[ -n "$program" ]] || {
        exec {answers}<&- {signals}>&-
        return 0
    }
    # joined-rank.sh may just have ended
    trap '' PIPE
    for signal in "${signals_to_forward[@]}"; do
        # shellcheck disable=SC2064  # with these values
        trap "echo $signal >&$signals" "$signal"
    done
    exec {messages}>&2 2>/dev/null
    echo "$program" >&"$signals"
    read -r -u "$answers" status
    wait "$process" || status=${status:-$?}
    # the last rank; all that have no lock any more have ended
    ! flock --exclusive --nonblock "$ranks" || "$ebsif_root/share/ebsif/end-container" --now "$place" 2>&"$messages"
    exit "${status:-1}"
}

# Move variables to EBSIF_PAST_RUNTIME, from which joined-rank.sh sets them: the scheduler and modules set many, and the
# runtime needs CPU time for each (docs/performance.md). The runtime has to see those that the site or a person sets or
# unsets in containers, those on which caches depend, and those by which scripts of images know a rank.
hand_past_runtime() {
    local names='' name value past='' length=0 start='' quote="'\\''"
    # at some sites it is a script, which may need any of them
    { IFS= read -r -n 2 start <"${BASH_CMDS[$ebsif_runtime]}"; } 2>/dev/null
    [[ "$start" != '#!' ]] || return
    { read -r names <"$ebsif_root/runscripts/caches.conf"; } 2>/dev/null
    names=" $names ${network[*]/#unset/} SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_STEP_ID FLUX_TASK_RANK "
    for name in "${ebsif_exported[@]}"; do
        case $name in
            GOGC | SLURM* | PBS_* | FLUX_* | LMOD_* | __LMOD_* | _ModuleTable* | _LMFILES_* | MODULE* | __MODULES_*) ;;
            LOADEDMODULES | EBROOT* | EBVERSION* | EBDEVEL* | EBEXTSLIST* | CRAY* | PE_* | JUPYTER_*) ;;
            EBSIF_* | SIF* | RUNSCRIPTS* | CONTAINERROOT) ;;
            *) continue ;;
        esac
        [[ "$names" != *" $name "* && ! -v "APPTAINERENV_$name" && ! -v "SINGULARITYENV_$name" ]] || continue
        value=${!name}
        [[ "$value" != *\'* ]] || value=${value//\'/$quote}
        value="give $name '$value'"$'\n'
        # Linux limits the length of a variable to 128 KiB, and a character may have four bytes
        ((length + ${#value} < 30000)) || continue
        length=$((length + ${#value}))
        past+=$value
        unset "$name"
    done
    # the runtime (a Go program) ends before collecting garbage would pay
    if [[ ! -v APPTAINERENV_GOGC && ! -v SINGULARITYENV_GOGC ]]; then
        export GOGC=off
        # the image may have another value
        # shellcheck disable=SC2016
        past='[ "${GOGC:-}" != off ] || unset GOGC'$'\n'$past
    fi
    export EBSIF_PAST_RUNTIME=$past
}

share_container "$@"
restore_inherited
