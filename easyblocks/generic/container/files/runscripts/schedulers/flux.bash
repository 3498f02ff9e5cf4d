# Flux, for conda-python-distributed, get-master, which documents these functions, and job.bash.
# shellcheck shell=bash disable=SC2034  # variables are used there

starters["flux-shell"]=flux
# of batch scripts
starters["flux-broker*"]=flux

# Flux doesn't tell how many tasks each node has, so all nodes must have the same number.
flux_rank() {
    [[ ${starter_name:-} != flux-broker* && -n ${FLUX_TASK_RANK:-${starter_name:-}} ]] || return 2
    tasks=''
    if [[ ${FLUX_JOB_SIZE:-} =~ ^[1-9][0-9]{0,8}$ && ${FLUX_JOB_NNODES:-} =~ ^[1-9][0-9]{0,8}$ ]]; then
        ((FLUX_JOB_SIZE % FLUX_JOB_NNODES == 0)) ||
            fail "$FLUX_JOB_SIZE tasks on $FLUX_JOB_NNODES nodes: start the same number on each (flux run --tasks-per-node)"
        tasks=$((FLUX_JOB_SIZE / FLUX_JOB_NNODES))
    fi
    take Flux FLUX_TASK_RANK FLUX_JOB_SIZE FLUX_TASK_LOCAL_ID tasks
}

# Each `flux run` is a separate job; job IDs start again in the Flux instance of a batch script.
flux_step() {
    [[ -n ${FLUX_JOB_ID:-} ]] || return 2
    number_of "${FLUX_ENCLOSING_ID:-}/$FLUX_JOB_ID" job
}

flux_first_host() {
    [[ -n ${FLUX_JOB_ID:-${FLUX_URI:-}} ]] || return 2
    if type -P flux >/dev/null; then
        first_host "$(flux hostlist local 2>/dev/null)"
    else
        problem="Flux does not tell its tasks the nodes: set MASTER_ADDR in the batch script, with \$RUNSCRIPTS/get-master"
        # the variables may be inherited from outside another scheduler's job
        return 2
    fi
}

# There is no flux_tasks: a script of `flux batch` has no tasks itself. And no flux_binds_gpus: Flux only assigns GPUs to tasks
# with -o gpu-affinity=per-task; conda-python-distributed detects that by their number.

# --- for job.bash

flux_job() {
    # ƒ or f, depending on the locale
    ebsif_job=${FLUX_ENCLOSING_ID:?submit this script with flux batch} ebsif_id=${FLUX_ENCLOSING_ID/#ƒ/f}
    ebsif_nodes=$(flux hostlist local)
    # exit-timeout=none: else Flux would end the others 30 seconds after the first has finished
    ebsif_each_node=(flux run --nodes="$(flux hostlist --count local)" --tasks-per-node=1 -o exit-timeout=none)
    # where the ranks meet: the container has no command flux
    MASTER_ADDR=$("$RUNSCRIPTS/get-master" "$ebsif_nodes")
    export MASTER_ADDR
}

flux_time_left() {
    flux job timeleft
}

flux_pass_on() {
    flux job kill --signal=USR1 "$(flux job last)"
}
