# Flux, for conda-python-distributed and get-master, which says what these functions are for.
# shellcheck shell=bash disable=SC2034  # what is set here is used there

# Its shell does not say how many tasks a node has, so there has to be the same number on each.
flux_rank() {
    [[ -n ${FLUX_TASK_RANK:-} ]] || return 2
    tasks=''
    if [[ ${FLUX_JOB_SIZE:-} =~ ^[1-9][0-9]{0,8}$ && ${FLUX_JOB_NNODES:-} =~ ^[1-9][0-9]{0,8}$ ]]; then
        ((FLUX_JOB_SIZE % FLUX_JOB_NNODES == 0)) ||
            fail "$FLUX_JOB_SIZE tasks on $FLUX_JOB_NNODES nodes: start as many on each node (flux run --tasks-per-node)"
        tasks=$((FLUX_JOB_SIZE / FLUX_JOB_NNODES))
    fi
    take Flux FLUX_TASK_RANK FLUX_JOB_SIZE FLUX_TASK_LOCAL_ID tasks
}

# A script of `flux batch` has no tasks of its own.
flux_tasks() {
    return 2
}

# Each `flux run` is a job of its own; its number begins anew in the Flux of a batch script.
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
        # it may be inherited, and another scheduler know
        return 2
    fi
}

# Its shell gives each task its GPUs with -o gpu-affinity=per-task only; conda-python-distributed sees that by their number.
flux_binds_gpus() {
    return 2
}
