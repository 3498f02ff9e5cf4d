# PBS, for conda-python-distributed, get-master, which documents these functions, and job.bash.
# shellcheck shell=bash disable=SC2034  # variables are used there

# There is no pbs_rank and no pbs_step: mpiexec starts the ranks, sets their variables, and a job may have several runs of it.

pbs_tasks() {
    local slots
    [[ -r ${PBS_NODEFILE:-} ]] || return 2
    mapfile -t slots <"$PBS_NODEFILE"
    tasks=${#slots[@]} starter=mpiexec
}

pbs_first_host() {
    [[ -n ${PBS_NODEFILE:-} ]] || return 2
    first_host_of_file "$PBS_NODEFILE" || {
        problem+=". It exists on the first node only, and containers see it if its directory is bound: set MASTER_ADDR in"
        problem+=" the job script, with \$RUNSCRIPTS/get-master"
        return 1
    }
}

# --- for job.bash

pbs_job() {
    : "${PBS_JOBID:?submit this script with qsub}"
    # of a member of an array, NUMBER[INDEX].SERVER
    ebsif_job=${PBS_JOBID%%[.[]*}${PBS_ARRAY_INDEX:+_$PBS_ARRAY_INDEX} ebsif_id=${PBS_JOBID%%.*}
    ebsif_nodes=$(sort -u "$PBS_NODEFILE" | paste -sd,)
    ebsif_each_node=(mpiexec -n "$(sort -u "$PBS_NODEFILE" | wc -l)" -ppn 1)
    # Where the ranks meet: only the first node has the list of nodes, and ranks of MPICH don't know their run.
    MASTER_ADDR=$("$RUNSCRIPTS/get-master" --hostfile "$PBS_NODEFILE")
    # shellcheck source=../get-master
    MASTER_PORT=$(source "$RUNSCRIPTS/get-master" &&
        port_of "$((steps_per_job * ${PBS_JOBID%%[!0-9]*} + ${PBS_ARRAY_INDEX:-0}))" && echo "$port")
    export MASTER_ADDR MASTER_PORT
}
