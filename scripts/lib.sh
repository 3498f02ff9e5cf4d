# shellcheck shell=bash
# Sourced by the scripts here: steps that say what they do and how long it took, and how to get root.

# Colour only for a person at a terminal who has not said NO_COLOR.
if [[ -t 2 && -z "${NO_COLOR:-}" ]]; then
    bold=$'\e[1m' plain=$'\e[0m'
else
    bold='' plain=''
fi

# say TEXT...: one line of progress, on standard error; standard output is for results.
say() {
    printf '%s\n' "$*" >&2
}

# die TEXT...: end with a message that says what is wrong, where, and what to do.
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# step TEXT COMMAND...: run a command as one step; its output stays visible, the time it took comes after it.
# Not for use in conditions: bash ignores `set -e` in them, and a failure inside the command would go unseen.
step() {
    step_title=$1 step_start=$EPOCHREALTIME
    shift
    say "${bold}==> $step_title${plain}"
    start_ticker
    "$@"
    stop_ticker
    seconds_since "$step_start"
    say "    done in $elapsed"
    step_title=''
}

# While a step runs, a line every ten seconds: a quiet program is not a dead one.
ticker=''
start_ticker() {
    # a step within a step is told by the outer one
    [[ -z ${EBSIF_TICKING:-} ]] || return 0
    export EBSIF_TICKING=1
    # the sleep that is left of it at the end holds nothing open that anybody could be waiting for
    while sleep 10 >/dev/null 2>&1; do
        seconds_since "$step_start"
        say "    ... $elapsed"
    done &
    ticker=$!
    disown "$ticker"
}
stop_ticker() {
    [[ -n $ticker ]] || return 0
    # not with TERM: a subshell that has hardly begun would run the exit trap of its parent
    kill -KILL "$ticker" 2>/dev/null || true
    ticker=''
    unset EBSIF_TICKING
}

# However the script ends: say which step failed, then clean up (a script that has something to clean defines it).
step_title=''
at_exit() {
    local status=$?
    stop_ticker
    if ((status)) && [[ -n $step_title ]]; then
        seconds_since "$step_start"
        say "${bold}==> FAILED${plain} (exit status $status) after $elapsed: $step_title"
    fi
    clean_up
}
clean_up() { :; }
trap at_exit EXIT

# seconds_since EPOCHREALTIME: set `elapsed` to the time that has gone by, in seconds with one decimal.
seconds_since() {
    local now=${EPOCHREALTIME/[.,]/} then=${1/[.,]/}
    local tenths=$(((now - then) / 100000))
    elapsed="$((tenths / 10)).$((tenths % 10)) s"
}

# have PROGRAM...: true if all are on PATH (or among the administrator's programs).
have() {
    local program
    for program; do
        PATH=$PATH:/usr/sbin:/sbin type -P "$program" >/dev/null || return 1
    done
}

# as_root COMMAND...: run it with root's rights, saying so where that means sudo; with the settings of network, pip and
# ebsif that are in force.
as_root() {
    if ((EUID == 0)); then
        "$@"
    elif have sudo; then
        say "    with sudo: $*"
        # by name: a value may hold a password
        local kept
        kept=$(compgen -e | grep -E '^(PIP_|SSL_CERT_|REQUESTS_CA_BUNDLE$|XDG_CACHE_HOME$|EBSIF_|(http|https|no)_proxy$)' |
            paste -sd,) || true
        sudo ${kept:+"--preserve-env=$kept"} -- "$@"
    else
        die "this needs root, and sudo is not there. Ask an administrator to run: $*"
    fi
}

# Print the path of Lmod's program; fails if Lmod is not here. LMOD_CMD is what Lmod itself sets.
find_lmod() {
    local path
    for path in "${LMOD_CMD:-}" /usr/share/lmod/lmod/libexec/lmod; do
        if [[ -n $path && -e $path ]]; then
            printf '%s\n' "$path"
            return
        fi
    done
    return 1
}

# digest PATH...: print a short digest of the content of files and directories.
digest() {
    find "$@" -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16
}

# Set `runtime` to the container runtime.
# shellcheck disable=SC2034  # for the script that sources this
find_runtime() {
    runtime=$(type -P apptainer) || runtime=$(type -P singularity) ||
        die "neither apptainer nor singularity is on PATH: run scripts/setup-system"
}

# Print the address of the Debian mirror that apt is configured for on this machine.
debian_mirror() {
    local targets address
    # shellcheck disable=SC2016  # apt-get fills it in
    targets=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages')
    while read -r address; do
        if [[ ${address%/} == */debian ]]; then
            printf '%s\n' "$address"
            return
        fi
    done <<<"$targets"
    die "no Debian mirror among the apt sources of this machine: this works on Debian only; install Apptainer by hand" \
        "(https://apptainer.org), or take the example image from a machine that has it"
}
