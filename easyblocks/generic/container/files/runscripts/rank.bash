# shellcheck shell=bash disable=SC2034,SC2154  # variables are shared with where this is sourced
# Which rank is this? Sourced by conda-python-distributed. Needs `here`, the directory of this file, and a function
# `fail TEXT...` that ends the process.

# Set `scheduler`, `gpu`, `gpu_visibility` and `network` (lines `set NAME VALUE`, `unset NAME`) from distributed.conf.
read_settings() {
    scheduler='' gpu='' gpu_visibility='' network=()
    local word rest
    [[ -r $here/distributed.conf ]] || return 0
    # the last line may lack a newline
    while read -r word rest || [[ -n $word ]]; do
        case $word in
            scheduler) scheduler=$rest ;;
            gpu) gpu=$rest ;;
            gpu_visibility) gpu_visibility=$rest ;;
            set | unset) network+=("$word $rest") ;;
            '' | '#'*) ;;
            *) fail "unknown word '$word' in $here/distributed.conf" || return ;;
        esac
    done <"$here/distributed.conf"
}

# Set launcher, rank, size, local_rank, local_size, job and step; also knows_hosts if the scheduler tells ranks the nodes.
resolve_rank() {
    knows_hosts=''
    # shellcheck source=get-master
    source "$here/get-master" || fail "get-master is missing in $here" || return
    read_settings || return
    read_schedulers "$scheduler" || fail "$problem" || return
    if [[ -n ${TORCHELASTIC_RUN_ID:-} ]]; then
        take torchrun RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
    elif by_scheduler rank; then
        # variables of other schedulers may be inherited
        kinds=("$asked")
    elif [[ -n ${PALS_RANKID:-} ]]; then
        take PALS PALS_RANKID PALS_SIZE,PMI_SIZE PALS_LOCAL_RANKID PALS_LOCAL_SIZE,PMI_LOCAL_SIZE
    elif [[ -n ${PMI_RANK:-} ]]; then
        take PMI PMI_RANK PMI_SIZE PMI_LOCAL_RANK,MPI_LOCALRANKID PMI_LOCAL_SIZE,MPI_LOCALNRANKS
    elif [[ -n ${OMPI_COMM_WORLD_RANK:-} ]]; then
        take 'Open MPI' OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE
    else
        single_rank
    fi
    ((rank < size && local_rank < local_size && local_size <= size)) ||
        fail "the values of $launcher are inconsistent: rank $rank of $size, local rank $local_rank of $local_size"
    identify_step
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
            "${*:i+2:1} has no valid ${wanted[i]//_/ } ('$value'): $launcher must set it, and it must reach the container (no --cleanenv)" ||
            return
        printf -v "${wanted[i]}" '%d' "$value"
    done
}

# No launcher: a single rank. In a job with several tasks that is a mistake, because only one of them would train.
single_rank() {
    tasks=1 starter=''
    by_scheduler tasks || :
    ((tasks == 1)) || fail "this job has $tasks tasks, but no launcher has started them: put $starter before singularity" \
        "($starter -n 1 for one rank)"
    launcher='nobody' rank=0 size=1 local_rank=0 local_size=1
}

# Set `job` and `step`, numbers shared by all ranks and, as far as possible, by no other run; also the name of the node if
# the scheduler tells it (HOSTNAME may be that of the node where the job began).
identify_step() {
    job='' step=0 node=''
    if by_scheduler step; then
        :
    elif ((size > 1)); then
        number_of "${PALS_APID:-${PMIX_NAMESPACE:-${PMI_JOBID:-${PMI_PORT:-}}}}" job
    else
        job=$$
    fi
}

# number_of TEXT VARIABLE: hash a text to a number, without starting a program.
number_of() {
    local text=$1 sum=0 i code
    for ((i = 0; i < ${#text}; i++)); do
        printf -v code '%d' "'${text:i:1}"
        sum=$(((sum * 131 + code) & 0x7fffffff))
    done
    printf -v "$2" '%d' "$sum"
}
