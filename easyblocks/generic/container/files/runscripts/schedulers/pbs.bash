# PBS, for conda-python-distributed and get-master, which documents these functions.
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
