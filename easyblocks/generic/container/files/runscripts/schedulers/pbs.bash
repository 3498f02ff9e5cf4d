# PBS, for conda-python-distributed and get-master, which documents these functions.
# shellcheck shell=bash disable=SC2034  # variables are used there

# mpiexec starts the ranks, and sets their variables.
pbs_rank() {
    return 2
}

pbs_tasks() {
    local slots
    [[ -r ${PBS_NODEFILE:-} ]] || return 2
    mapfile -t slots <"$PBS_NODEFILE"
    tasks=${#slots[@]} starter=mpiexec
}

pbs_step() {
    [[ -n ${PBS_JOBID:-} ]] || return 2
    if [[ $PBS_JOBID =~ ^([0-9]{1,10})(\.|$) ]]; then
        job=${BASH_REMATCH[1]}
    else
        # an array job: 123[4].server
        number_of "$PBS_JOBID" job
    fi
    number_of "${PALS_APID:-${PMIX_NAMESPACE:-${PMI_JOBID:-}}}" step
}

pbs_first_host() {
    [[ -n ${PBS_NODEFILE:-} ]] || return 2
    first_host_of_file "$PBS_NODEFILE" || {
        problem+=". It exists on the first node only, and containers see it if its directory is bound: set MASTER_ADDR in"
        problem+=" the job script, with \$RUNSCRIPTS/get-master"
        return 1
    }
}

pbs_binds_gpus() {
    return 2
}
