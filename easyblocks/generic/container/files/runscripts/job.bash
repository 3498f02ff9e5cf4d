# shellcheck shell=bash
# Functions for batch scripts; `ebsif job` writes scripts that call them.
#
# Usage, after the module is loaded: source "$RUNSCRIPTS/job.bash" SCHEDULER NAME
#
# SCHEDULER names a file in schedulers/, which has what differs. $ebsif_run becomes NAME-ID, with the ID of the job: the
# record of the run is in $ebsif_run.json.
#
#   job_data PATH [BIND]             end the job if PATH is missing; add BIND to your own binds of the container
#   job_describe [--program FILE] COMMAND...
#                                    begin the record of this run, which COMMAND repeats
#   job_stage [--image]              copy user software, or also the image, to the nodes; the ranks use the copies if
#                                    "$RUNSCRIPTS/stage-software" --use starts them
#   job_secret VARIABLE              put a new secret into a variable, which reaches the ranks; no file and no command line
#                                    has it
#   job_server       make a key for the server of this job, OPENAI_API_KEY, and name its log, $ebsif_run-server.log
#   job_signal THEN [BEFORE TIME]    pass USR1 on to the program. If that ends with 0, THEN says what follows: `requeue`
#                                    returns the job to the queue, after `next` the next segment goes on, `end` is the end.
#                                    PBS and Flux need a timer: BEFORE seconds before the end of a job of TIME seconds
#   job_run [--remove-caches] COMMAND...
#                                    start the ranks with COMMAND, complete the record, and remove what is on the nodes
#                                    for this job only; the status is COMMAND's
#
# Variables begin with ebsif_: bash would pass on local ones if their names are exported in the caller's shell.

# Define the functions of the scheduler, and call the one for batch scripts.
ebsif_load_scheduler() {
    # shellcheck disable=SC2034  # the file also has what ranks need
    local -A starters
    local ebsif_file=${BASH_SOURCE[0]%/*}/schedulers/$ebsif_scheduler.bash
    [[ -n $ebsif_scheduler && -r $ebsif_file ]] || {
        echo "there is no $ebsif_file: the installation is incomplete, or the scheduler '$ebsif_scheduler' is unknown" >&2
        exit 1
    }
    # shellcheck source=/dev/null
    source "$ebsif_file"
    "${ebsif_scheduler}_job"
}

# the name that scripts use, unless there is only the other one
ebsif_runtime=singularity
type -P singularity >/dev/null || ebsif_runtime=apptainer
# the script may have counted a signal
ebsif_then='' ebsif_signals=${ebsif_signals:-0} ebsif_process='' ebsif_send_files=()
# a job inherits that of the job that has submitted it
unset EBSIF_STAGED
ebsif_scheduler=$1 ebsif_job='' ebsif_id='' ebsif_nodes='' ebsif_each_node=()
ebsif_load_scheduler
ebsif_run=$2-$ebsif_job

job_data() {
    [[ -e $1 ]] || {
        echo "$1 is missing: download it on a login node, then submit again" >&2
        exit 1
    }
    [[ -n ${2:-} ]] || return 0
    local ebsif_binds=${APPTAINER_BIND:-${SINGULARITY_BIND:-}}
    ebsif_binds+=${ebsif_binds:+,}$2
    export APPTAINER_BIND=$ebsif_binds SINGULARITY_BIND=$ebsif_binds
}

job_describe() {
    local ebsif_options=()
    [[ $1 != --program ]] || {
        ebsif_options=(--program "$2")
        shift 2
    }
    # the record has the arguments of `ebsif job`
    ebsif_record --nodes "$ebsif_nodes" "${ebsif_options[@]}" -- "${@:3}"
}

# ebsif_record ARGUMENT...: call record-run.py, which keeps what this run is beside its log.
ebsif_record() {
    "$ebsif_runtime" exec "$SIF" /runscripts/conda-python-simple /runscripts/record-run.py "$ebsif_run.json" "$@" \
        <"$CONTAINERROOT/share/ebsif/lock.json" || echo "can't write $ebsif_run.json, the record of this run" >&2
}

job_stage() {
    EBSIF_STAGED=$("$RUNSCRIPTS/stage-software" --plan "$@") || {
        unset EBSIF_STAGED
        return 0
    }
    export EBSIF_STAGED
    if ((${#ebsif_send_files[@]})); then
        ebsif_stage --prepare && "$RUNSCRIPTS/stage-software" --broadcast "${ebsif_send_files[@]}" && ebsif_stage --check
    else
        ebsif_stage --copy
    fi || :
}

job_secret() {
    printf -v "$1" '%s' "$(od -v -An -N32 -tx1 /dev/urandom | tr -d ' \n')"
    export "${1?}"
}

job_server() {
    job_secret OPENAI_API_KEY
    export EBSIF_JOB=$ebsif_id EBSIF_SERVER_LOG=$ebsif_run-server.log
}

# ebsif_stage OPTION: call stage-software on each node.
ebsif_stage() {
    "${ebsif_each_node[@]}" "$RUNSCRIPTS/stage-software" "$@"
}

job_signal() {
    ebsif_then=$1
    trap 'ebsif_signals=$((ebsif_signals + 1)); [[ -z $ebsif_process ]] || ebsif_pass_on || :' USR1
    [[ -n ${2:-} ]] || return 0
    (
        trap 'kill "$!"; exit' TERM
        if declare -F "${ebsif_scheduler}_time_left" >/dev/null; then
            ebsif_left=$(($("${ebsif_scheduler}_time_left") - $2))
        else
            ebsif_left=$(($3 - $2 - SECONDS))
        fi
        sleep "$((ebsif_left > 0 ? ebsif_left : 0))" &
        wait "$!" && kill -USR1 $$
    ) >/dev/null 2>&1 &
    # shellcheck disable=SC2064  # the process of now
    trap "kill $! 2>/dev/null || :" EXIT
}

# Pass USR1 on to the ranks.
ebsif_pass_on() {
    if declare -F "${ebsif_scheduler}_pass_on" >/dev/null; then
        "${ebsif_scheduler}_pass_on"
    else
        kill -USR1 "$ebsif_process"
    fi
}

job_run() {
    local ebsif_status=0 ebsif_remove_caches=''
    [[ $1 != --remove-caches ]] || {
        ebsif_remove_caches=1
        shift
    }
    if [[ -z $ebsif_then ]]; then
        "$@" || ebsif_status=$?
    elif ((ebsif_signals)); then
        # a program that is just starting would be ended by the signal
        [[ $ebsif_then != end ]] || ebsif_status=1
        echo "the signal came before the program had started: it is not started" >&2
    else
        ebsif_wait_for "$@" || ebsif_status=$?
        trap '' USR1
    fi
    [[ ! -e $ebsif_run.json ]] || ebsif_record --status "$ebsif_status"
    [[ -z ${EBSIF_STAGED:-} ]] || ebsif_stage --remove || :
    [[ -z $ebsif_remove_caches ]] || "${ebsif_each_node[@]}" "$ebsif_runtime" exec "$SIF" remove-caches || :
    if [[ $ebsif_then == requeue ]] && ((ebsif_status == 0 && ebsif_signals)); then
        "${ebsif_scheduler}_requeue" || echo "submit the job again to continue" >&2
    fi
    return "$ebsif_status"
}

# ebsif_wait_for COMMAND...: run a command; when this script gets USR1, its ranks get it, too.
ebsif_wait_for() {
    local ebsif_before ebsif_status
    "$@" <&0 &
    ebsif_process=$!
    ((ebsif_signals == 0)) || ebsif_pass_on || :
    # a signal interrupts wait, and bash may report it once more when its trap has run already
    while
        ebsif_before=$ebsif_signals ebsif_status=0
        wait "$ebsif_process" || ebsif_status=$?
        ((ebsif_signals > ebsif_before)) || { ((ebsif_status > 128)) && kill -0 "$ebsif_process" 2>/dev/null; }
    do :; done
    # the process may have ended after that report, which was the signal's then
    if ((ebsif_status > 128)); then
        ebsif_status=0
        wait "$ebsif_process" || ebsif_status=$?
    fi
    return "$ebsif_status"
}
