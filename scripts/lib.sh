# shellcheck shell=bash
# Functions for the scripts in this directory: reporting steps and their duration, running commands as root.

# Colors only on a terminal, and if NO_COLOR is not set.
if [[ -t 2 && -z "${NO_COLOR:-}" ]]; then
    bold=$'\e[1m' plain=$'\e[0m'
else
    bold='' plain=''
fi

# say TEXT...: print a line of progress to standard error; standard output is for results.
say() {
    printf '%s\n' "$*" >&2
}

# die TEXT...: exit with an error message that says what is wrong, where, and what to do.
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# heading TEXT: announce a step whose own lines are shown.
heading() {
    say "${bold}==> $*${plain}"
}

# step TEXT COMMAND...: run a command as a step, and show a line with its duration. Its output is in a log: if the command
# fails, the end of the log is shown, and where it is.
# Don't use it in conditions: bash ignores `set -e` there, so failures inside the command would go unnoticed.
step() {
    step_title=$1 step_start=$EPOCHREALTIME
    step_log=$(mktemp "${TMPDIR:-/tmp}/ebsif-XXXXXX.log")
    shift
    printf '%s' "${bold}==> $step_title${plain}" >&2
    start_ticker
    # in a subshell, because the command may be a function that exits
    ("$@") >"$step_log" 2>&1
    stop_ticker
    seconds_since "$step_start"
    say " $elapsed"
    rm -f "$step_log"
    step_title=''
}

# Print a dot every ten seconds while a step runs, to show that it hasn't died.
ticker=''
start_ticker() {
    # redirected, because the last sleep outlives the script, and would keep its output open
    while sleep 10 >/dev/null 2>&1; do
        printf '.' >&2
    done &
    ticker=$!
    disown "$ticker"
}
stop_ticker() {
    [[ -n $ticker ]] || return 0
    # not TERM: a subshell that has only just started would run its parent's exit trap
    kill -KILL "$ticker" 2>/dev/null || true
    ticker=''
}

# When the script ends: report the step that failed, then clean up (scripts may redefine clean_up).
step_title=''
at_exit() {
    local status=$?
    stop_ticker
    if ((status)) && [[ -n $step_title ]]; then
        seconds_since "$step_start"
        say
        tail -n 20 "$step_log" >&2
        say "    the complete output is in $step_log"
        say "${bold}==> FAILED${plain} (exit status $status) after $elapsed: $step_title"
    fi
    clean_up
}
clean_up() { :; }
trap at_exit EXIT

# seconds_since EPOCHREALTIME: set `elapsed` to the time since then, in seconds with one decimal.
seconds_since() {
    local now=${EPOCHREALTIME/[.,]/} then=${1/[.,]/}
    local tenths=$(((now - then) / 100000))
    elapsed="$((tenths / 10)).$((tenths % 10)) s"
}

# have PROGRAM...: true if all are on PATH or in /usr/sbin or /sbin.
have() {
    local program
    for program; do
        PATH=$PATH:/usr/sbin:/sbin type -P "$program" >/dev/null || return 1
    done
}

# as_root COMMAND...: run it as root, with the current settings for network, pip and ebsif; says so if it uses sudo.
as_root() {
    if ((EUID == 0)); then
        "$@"
    elif have sudo; then
        say "    with sudo: $*"
        # by name: a value may hold a password
        local kept
        kept=$(compgen -e | grep -E '^(PIP_|SSL_CERT_|REQUESTS_CA_BUNDLE$|EBSIF_|(http|https|no)_proxy$)' |
            paste -sd,) || true
        sudo ${kept:+"--preserve-env=$kept"} -- "$@"
    else
        die "this needs root, and sudo is not installed. Ask an administrator to run: $*"
    fi
}

# Print the path of Lmod's program; fails if Lmod isn't installed. Lmod itself sets LMOD_CMD.
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

# project_metadata: print the part of pyproject.toml with metadata and dependencies: the settings of tools come after it.
project_metadata() {
    sed '/^\[tool/,$d' "${here:?}/../pyproject.toml"
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

# Print pip's settings from its environment and its files, as SECTION.NAME=VALUE, with blanks between several values.
pip_settings() {
    local python settings
    for python in "${here:?}/../.venv/bin/python" python3; do
        # a quiet pip lists nothing
        if settings=$(PIP_QUIET=0 "$python" -m pip config list 2>/dev/null); then
            sed "s/='\(.*\)'\$/=\1/; s/\\\\n/ /g; s/= /=/" <<<"$settings"
            return
        fi
    done
}

# debian_mirror [PACKAGE]: print the URL of the Debian mirror that apt uses on this machine; without one, say that the package
# can't be had, or the example image.
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
    (($#)) || set -- "the example image" "copy it from another machine"
    die "apt has no Debian mirror among its sources, so $1 can't be had from there: ${2:-install it yourself}"
}

# debian_suites DIRECTORY WHAT SUITE...: set `apt` to an apt-get that knows these suites of Debian, to get WHAT. It uses the
# machine's mirror and keyring, and keeps its state in the directory, so that the machine's own configuration of apt stays as
# it is.
debian_suites() {
    local state=$1 mirror suite
    mirror=$(debian_mirror "$2")
    shift 2
    mkdir -p "$state"/lists/partial "$state"/cache/archives/partial
    for suite; do
        printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$suite"
    done >"$state/sources.list"
    # download as root, because the account _apt can't access this private directory
    apt=(apt-get -qq -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$state/lists"
        -o "Dir::Cache=$state/cache" -o APT::Sandbox::User=root)
    say "    updating the package lists of Debian's suites $*"
    "${apt[@]}" update
}

# run_pytest ARGUMENT...: run tests in two more processes than there are CPUs, because tests also wait: for time, for jobs,
# and for each other.
run_pytest() {
    # pytest keeps its version of the tests, with assertions that explain themselves, which takes seconds in each process
    unset PYTHONDONTWRITEBYTECODE
    PYTEST_XDIST_AUTO_NUM_WORKERS=${PYTEST_XDIST_AUTO_NUM_WORKERS:-$(($(nproc) + 2))} .venv/bin/python -m pytest "$@"
}
