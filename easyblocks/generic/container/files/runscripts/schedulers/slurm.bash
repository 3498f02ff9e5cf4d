# Slurm, for conda-python-distributed and get-master, which documents these functions.
# shellcheck shell=bash disable=SC2034  # variables are used there

slurm_rank() {
    [[ -n ${SLURM_STEP_ID:-} ]] || return 2
    tasks_of_node "${SLURM_STEP_TASKS_PER_NODE:-}" "${SLURM_NODEID:-}"
    take Slurm SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID tasks
    knows_hosts=true
}

# tasks_of_node LIST INDEX: set `tasks` to an element of a list like 8(x2),4.
tasks_of_node() {
    local list=$1 index=${2:-0} item count
    tasks=''
    while [[ -n $list ]]; do
        item=${list%%,*} list=${list#*,} count=1
        if [[ $item =~ ^([0-9]+)\(x([0-9]+)\)$ ]]; then
            item=${BASH_REMATCH[1]} count=${BASH_REMATCH[2]}
        fi
        if ((index < count)); then
            tasks=$item
            return
        fi
        index=$((index - count))
    done
}

slurm_tasks() {
    [[ -n ${SLURM_NTASKS:-} ]] || return 2
    tasks=$SLURM_NTASKS starter=srun
}

slurm_step() {
    [[ ${SLURM_JOB_ID:-} =~ ^[0-9]{1,10}$ ]] || return 2
    job=$SLURM_JOB_ID
    [[ ! ${SLURM_STEP_ID:-} =~ ^[0-9]{1,10}$ ]] || step=$SLURM_STEP_ID node=${SLURMD_NODENAME:-}
}

# Prefer the nodes of the step: the job may have more.
slurm_first_host() {
    if [[ -n ${SLURM_STEP_ID:-} && -n ${knows_hosts:-} ]]; then
        first_host "${SLURM_STEP_NODELIST:-}"
    elif [[ -z ${launcher:-} && -n ${SLURM_STEP_NODELIST:-${SLURM_JOB_NODELIST:-}} ]]; then
        first_host "${SLURM_STEP_NODELIST:-$SLURM_JOB_NODELIST}"
    else
        return 2
    fi
}

slurm_binds_gpus() {
    [[ -n ${SLURM_GPUS_PER_TASK:-} || ${SLURM_GPU_BIND:-none} != none ]] || return 2
}
