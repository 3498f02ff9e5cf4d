# shellcheck shell=bash disable=SC2034,SC2154  # variables are shared with where this is sourced
# Which rank is this? Sourced by a function of conda-python-distributed, whose local variables these are. Needs `here`, the
# directory of this file, and a function `fail TEXT...` that ends the process.

# What launchers of MPI set: rank, size, local rank and local size; a comma separates alternatives. PMI is Hydra's, the mpiexec
# of MPICH and Intel MPI.
declare -A variables=(
    [PALS]='PALS_RANKID PALS_SIZE,PMI_SIZE PALS_LOCAL_RANKID PALS_LOCAL_SIZE,PMI_LOCAL_SIZE'
    [PMI]='PMI_RANK PMI_SIZE MPI_LOCALRANKID,PMI_LOCAL_RANK MPI_LOCALNRANKS,PMI_LOCAL_SIZE'
    ['Open MPI']='OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE'
    [MVAPICH]='MV2_COMM_WORLD_RANK MV2_COMM_WORLD_SIZE MV2_COMM_WORLD_LOCAL_RANK MV2_COMM_WORLD_LOCAL_SIZE'
)

# The processes whose children are the ranks of a node (patterns), and their launchers; schedulers/KIND.bash add theirs.
declare -A starters=(
    [palsd]=PALS
    [hydra_pmi_proxy]=PMI
    [mpispawn]=MVAPICH
    ['@(orted|prted|prterun|@(mpirun|mpiexec|orterun)?(.*))']='Open MPI'
)

# Set launcher, rank, size, local_rank, local_size, and what identify_run does; also knows_hosts if the scheduler tells ranks
# the nodes. One launcher may start another one (mpiexec in a job step), whose ranks inherit its variables: the innermost
# counts. torchrun is always that.
resolve_rank() {
    local started_by
    knows_hosts=''
    # shellcheck source=get-master
    source "$here/get-master" || fail "get-master is missing in $here"
    read_schedulers "$scheduler" || fail "$problem"
    find_starter
    forget_earlier_torchrun
    if [[ -n ${TORCHELASTIC_RUN_ID:-} ]]; then
        take torchrun RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
    else
        [[ -n $started_by ]] || compare_launchers
        rank_of "$started_by" || rank_of_caller || single_rank
    fi
    ((rank < size && local_rank < local_size && local_size <= size)) ||
        fail "the values of $launcher are inconsistent: rank $rank of $size, local rank $local_rank of $local_size"
    identify_run
}

# Unset the variables of torchrun if they come from where this job was submitted: they would mislead PyTorch, too. torchrun, or
# what calls its functions, may have any name, but there is nothing of it if only these are between the starter and this rank.
forget_earlier_torchrun() {
    local one
    [[ -n ${TORCHELASTIC_RUN_ID:-} && -n $started_by ]] || return 0
    for one in "${below_starter[@]}"; do
        [[ $one == @(starter|starter-suid|apptainer|singularity|bash|sh|slurm_script|slurm-rank|flux-rank) ]] || return 0
    done
    # shellcheck disable=SC2086  # names
    unset ${!TORCHELASTIC_*} RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
}

# Set `started_by` to a launcher or scheduler whose variables are there, if any; all of these have to agree.
compare_launchers() {
    local one names variable said=''
    for one in "${kinds[@]}" PALS PMI 'Open MPI' MVAPICH; do
        names=${variables[$one]:-}
        variable=${names%% *}
        [[ -z $names || -n ${!variable:-} ]] || continue
        rank_of "$one" || continue
        if [[ -z $said ]]; then
            started_by=$one said="$launcher: rank $rank of $size"
        elif [[ ${said#*: } != "rank $rank of $size" ]]; then
            fail "two launchers have set variables ($said; $launcher: rank $rank of $size), and the process that started" \
                "this rank can't be seen: unset the variables of one of them (env -u NAME), or start the container without" \
                "--pid"
        fi
    done
}

# rank_of LAUNCHER or SCHEDULER: set launcher, rank, size, local_rank and local_size. Status 2: it has started no rank here.
rank_of() {
    if [[ -z $1 ]]; then
        return 2
    elif [[ -n ${variables[$1]:-} ]]; then
        # shellcheck disable=SC2086  # words
        take "$1" ${variables[$1]}
    elif declare -F "$1_rank" >/dev/null; then
        "$1_rank"
    else
        return 2
    fi
}

# take LAUNCHER RANK SIZE LOCAL_RANK LOCAL_SIZE: read these variables; a comma separates alternatives.
take() {
    local wanted=(rank size local_rank local_size) names value i
    launcher=$1
    for i in 0 1 2 3; do
        names=${*:i+2:1} value=''
        while [[ -z $value && -n $names ]]; do
            value=${names%%,*}
            value=${!value:-}
            [[ $names == *,* ]] || break
            names=${names#*,}
        done
        [[ $value =~ ^(0|[1-9][0-9]{0,8})$ ]] || fail "started by $launcher, but" \
            "${*:i+2:1} has no valid ${wanted[i]//_/ } ('$value'): $launcher must set it, and it must reach the container (no --cleanenv)"
        printf -v "${wanted[i]}" '%d' "$value"
    done
}

# No launcher, but whoever starts the ranks (a loop over nodes, Kubernetes) has set their numbers. Status 2: not so. Without
# local numbers, each is the only one on its node.
rank_of_caller() {
    [[ ${WORLD_SIZE:-1} != 1 || ${RANK:-} =~ ^[1-9][0-9]*$ ]] || return 2
    local local_number=${LOCAL_RANK:-0} local_number_of=${LOCAL_WORLD_SIZE:-1}
    take 'the caller' RANK WORLD_SIZE local_number local_number_of
}

# No launcher: a single rank. In a job with several tasks that is a mistake, because only one of them would train.
single_rank() {
    tasks=1 starter=''
    by_scheduler tasks || :
    ((tasks == 1)) || fail "this job has $tasks tasks, but no launcher has started them: put $starter before singularity" \
        "($starter -n 1 for one rank)"
    launcher='nobody' rank=0 size=1 local_rank=0 local_size=1
}

# Set `job` and `step`, also the name of the node if the scheduler tells it (HOSTNAME may be that of the node where the job
# began); and `number`, shared by all ranks and, as far as possible, by no other run, or nothing.
identify_run() {
    job='' step=0 node='' number=''
    # variables of other schedulers may be inherited
    [[ -z $started_by || -n ${variables[$started_by]:-} ]] || kinds=("$started_by")
    ! by_scheduler step || number=$((job * steps_per_job + step % steps_per_job))
    case $launcher in
        nobody) number=$$ ;;
        # a step may have several runs
        PALS) number_of "${PALS_APID:-}" number ;;
        'Open MPI') number_of "${PMIX_NAMESPACE:-}" number ;;
        # nothing is the same on all nodes but Slurm's step, in which mpiexec starts its processes
        PMI) ((local_size < size)) || number=$starter_process ;;
        # it starts processes with ssh, which passes no variables on
        MVAPICH)
            number=''
            ((local_size < size)) || number=$starter_process
            ;;
    esac
    job=${job:-$number}
}

# number_of TEXT VARIABLE: hash a text to a number, without starting a program; nothing of nothing.
number_of() {
    local text=$1 sum='' i code
    for ((i = 0; i < ${#text}; i++)); do
        printf -v code '%d' "'${text:i:1}"
        sum=$(((sum * 131 + code) & 0x7fffffff))
    done
    printf -v "$2" '%s' "$sum"
}
