# Slurm, for conda-python-distributed, get-master, which documents these functions, and job.bash.
# shellcheck shell=bash disable=SC2034,SC2154  # variables are used there

# of job scripts, too
starters[slurmstepd]=slurm

slurm_rank() {
    is_step || return 2
    tasks_of_node "${SLURM_STEP_TASKS_PER_NODE:-}" "${SLURM_NODEID:-}"
    take Slurm SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID tasks
    knows_hosts=true
}

# True in a step of this job. A job script inherits the variables of the step in which it was submitted, so the title of the
# process that has started this one decides, [JOB.STEP] or [JOB.batch] and the like; if it can't be seen, SLURM_STEP_ID does.
# (Longer numbers are those of an interactive shell and the like. A component of a heterogeneous job has an ID of its own.)
is_step() {
    local title='^slurmstepd: \[([0-9]+)\.([0-9a-z]+)'
    if [[ ${starter_title:-} =~ $title ]]; then
        [[ ${BASH_REMATCH[2]} != *[a-z]* &&
            (${SLURM_JOB_ID:-${BASH_REMATCH[1]}} == "${BASH_REMATCH[1]}" || -n ${SLURM_HET_SIZE:-}) ]]
    else
        [[ ${SLURM_STEP_ID:-} =~ ^[0-9]{1,9}$ ]]
    fi
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
    is_step && [[ ${SLURM_JOB_ID:-} =~ ^[0-9]{1,10}$ ]] || return 2
    job=$SLURM_JOB_ID step=$SLURM_STEP_ID node=${SLURMD_NODENAME:-}
}

# Prefer the nodes of the step: the job may have more.
slurm_first_host() {
    if [[ -n ${knows_hosts:-} ]]; then
        [[ ${SLURM_DISTRIBUTION:-} != arbitrary || $local_size == "$size" ]] || {
            problem="with srun -m arbitrary, rank 0 may be on any of the nodes: export"
            problem+=" MASTER_ADDR=\$(head -n 1 \$SLURM_HOSTFILE) before srun"
            return 1
        }
        first_host "${SLURM_STEP_NODELIST:-}"
    elif [[ -n ${launcher:-} ]]; then
        return 2
    elif [[ -n ${SLURM_STEP_NODELIST:-} ]] && is_step; then
        first_host "$SLURM_STEP_NODELIST"
    elif [[ -n ${SLURM_JOB_NODELIST:-} ]]; then
        first_host "$SLURM_JOB_NODELIST"
    else
        return 2
    fi
}

slurm_binds_gpus() {
    [[ -n ${SLURM_GPUS_PER_TASK:-} || ${SLURM_GPU_BIND:-none} != none ]] || return 2
}

# --- for job.bash

slurm_job() {
    ebsif_job=${SLURM_JOB_ID:?submit this script with sbatch} ebsif_id=$SLURM_JOB_ID
    ebsif_nodes=$SLURM_JOB_NODELIST
    ebsif_each_node=(srun --export=ALL --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1)
    # sites may send the libraries of programs by default, which Slurm would look for in any file
    ebsif_send_files=(sbcast --preserve --send-libs=no)
    # srun does not inherit the number of CPUs from the job
    [[ -z ${SLURM_CPUS_PER_TASK:-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
}

slurm_requeue() {
    local ebsif_member=''
    # the last member of an array has the ID of the array, by which all members would start again
    [[ ${SLURM_ARRAY_JOB_ID:-} != "$SLURM_JOB_ID" ]] || ebsif_member=_$SLURM_ARRAY_TASK_ID
    scontrol requeue "$SLURM_JOB_ID$ebsif_member"
}
