# Functions of the commands in bin/, sourced by them. No program is started before the runtime.
#
# Scripts find the installation from their own path, so copies of an installation work on themselves, never on the original.
# (A command that is called by a link calls itself by its real path first.)
ebsif_root=${BASH_SOURCE[0]%/share/ebsif/*}

# If the caller has closed standard error (2>&-), messages would fail. bash may have opened the command itself as that.
[[ -e /dev/fd/2 && ! /dev/fd/2 -ef "$0" ]] || exec 2>/dev/null

# Print a message of the running command to standard error.
say() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
}

# refuse STATUS MESSAGE: exit with a message. Each command documents its statuses.
refuse() {
    say "$2"
    exit "$1"
}

# help_if_asked ARGUMENT...: if the first argument asks for help, print the comment at the top of the command and exit.
help_if_asked() {
    [[ "${1:-}" == -h || "${1:-}" == --help ]] || return 0
    exec "$ebsif_root/runscripts/show-help" "$0"
}

# Commands to reload the module with any modules tool (a second `module load` does nothing in Environment Modules).
# shellcheck disable=SC2034
ebsif_reload="module unload ${EBSIF_LOADED_MODULE:-NAME}; module load ${EBSIF_LOADED_MODULE:-NAME}"

# True in a container of Apptainer or SingularityCE.
in_container() {
    [[ -e /.singularity.d ]]
}

# Exit in a container that is not the one of the module; needs the module's variables.
refuse_other_container() {
    local container=${APPTAINER_CONTAINER:-${SINGULARITY_CONTAINER:-unknown}}
    # also compare the paths: the image may not be visible in the container
    [[ -n "${SIF:-}" && ("$container" == "$SIF" || "$container" -ef "$SIF") ]] || refuse 1 \
        "this is another container ($container), and containers can't be nested: leave it first"
}

# run_inside ARGUMENT...: in the container, exec the container's program with the name of this command.
run_inside() {
    local ebsif_folders ebsif_program ebsif_text
    refuse_other_container
    IFS=: read -r -a ebsif_folders <<<"$PATH"
    for ebsif_program in "${ebsif_folders[@]}"; do
        ebsif_program+=/${0##*/}
        if [[ -x "$ebsif_program" && ! "${ebsif_program%/*}" -ef "$ebsif_root/bin" &&
            ! "${ebsif_program%/*}" -ef "$ebsif_root/interpreter" ]]; then
            # a file of `ebsif interpreter --write` would start this command again
            IFS= read -r -N 400 ebsif_text <"$ebsif_program"
            [[ "$ebsif_text" == '#!'*"written by \`ebsif "* ]] || exec "$ebsif_program" "$@"
        fi
    done
    refuse 127 "the container has no such program"
}

# run_in_container PROGRAM ARGUMENT...: exec this program in the container of the loaded module.
run_in_container() {
    # shellcheck source=run.bash
    source "$ebsif_root/share/ebsif/run.bash" "$@"
}

# Set the environment of the module of this installation, without a modules tool, and of the environment in EBSIF_VENV, if
# any. In the module's own container there is nothing to do.
load_module() {
    if in_container; then
        refuse_other_container
        return
    fi
    [[ -r "$ebsif_root/share/ebsif/module.conf" ]] || refuse 1 \
        "$ebsif_root/share/ebsif/module.conf is missing: write the module again with eb --module-only --force, or load it"
    # shellcheck source=container.sh
    source "$ebsif_root/share/ebsif/container.sh" load || exit 1
    [[ -n "${EBSIF_VENV:-}" ]] || return 0
    [[ -r "$EBSIF_VENV/bin/activate" ]] || refuse 1 "the environment $EBSIF_VENV doesn't exist any more"
    # its module is loaded, whatever the modules tool says; it would load another one
    # shellcheck disable=SC2317  # `activate` calls it
    module() {
        refuse 1 "the environment $EBSIF_VENV belongs to the module ${_EBSIF_MODULE:-}, not to $EBSIF_LOADED_MODULE"
    }
    # shellcheck source=/dev/null
    LOADEDMODULES=$EBSIF_LOADED_MODULE source "$EBSIF_VENV/bin/activate" || exit 1
    # other modules may be used by what is started
    unset EBSIF_VENV
}

# warn_of_environment ARGUMENT OF python...: say which environment of `python -m venv` this command doesn't work in.
warn_of_environment() {
    [[ "${1:-} ${2:-}" != "-m venv" ]] ||
        say "programs of this environment work in the container only; make-venv creates one that works on the host, too"
    # on the host, its python is a link to nothing, so that PATH leads here
    [[ ! -L "${VIRTUAL_ENV:-/nowhere}/bin/python" || -e "$VIRTUAL_ENV/bin/python" || -d "$VIRTUAL_ENV/host-bin" ]] ||
        say "the environment $VIRTUAL_ENV is not used: its programs work in the container only (make-venv creates one that works on the host, too)"
}

# load_or_explain ARGUMENT OF run.bash...: if the commands of this module load it by themselves (wrappers_load), do that and
# go on; otherwise say what is missing. The runtime's own errors would be less helpful.
load_or_explain() {
    local ebsif_settings=$ebsif_root/share/ebsif/module.conf
    if [[ -z "${ebsif_has_loaded:-}" && -r "$ebsif_settings" && $(<"$ebsif_settings") == *$'\n'"wrappers_load yes"* ]]; then
        ebsif_has_loaded=yes
        load_module
        run_in_container "$@"
    else
        explain_missing
    fi
}

explain_missing() {
    local root with_module
    root=$(cd -- "$ebsif_root" && pwd)
    printf -v with_module '%q' "$root/bin/with-module"
    [[ -n "${SIF:-}" && -n "${CONTAINERROOT:-}" ]] || refuse 1 \
        "load the module of this container first (SIF or CONTAINERROOT is not set), or put $with_module before the command"
    [[ "$CONTAINERROOT" -ef "$ebsif_root" ]] ||
        refuse 1 "this command belongs to the installation $root, but the loaded module belongs to $CONTAINERROOT"
    # as modules written by hand leave them
    [[ -n "${EBSIF_LOADED_MODULE:-}" ]] ||
        refuse 1 "the module was installed again after it was loaded here: reload it (module unload NAME; module load NAME)"
    [[ -f "$SIF" ]] ||
        refuse 1 "the image $SIF is missing: reload the module ($ebsif_reload) to use the site's copy, if there is one"
    [[ -e "${EBSIF_MOUNTED_USER_SOFTWARE:-$SIF}" ]] ||
        refuse 1 "$EBSIF_MOUNTED_USER_SOFTWARE was removed after the module was loaded: reload the module ($ebsif_reload)"
    refuse 127 "neither apptainer nor singularity is on PATH: on a cluster, try a compute node, or load the site's module for the runtime"
}

# prepare_program PROGRAM ARGUMENT...: set `ebsif_words` to what has to be started: a rank of a run, after activation.
prepare_program() {
    ebsif_words=("$@")
    # If the module names the launcher's variable for the number of tasks, python is a rank where there are several, unless
    # the caller has set up the rank.
    if [[ "${EBSIF_PYTHON_RANKS:-}" == [A-Z]*([A-Z_]) && -z "${RANK:-}" && "${!EBSIF_PYTHON_RANKS:-1}" != 1 &&
        "${1##*/}" == python?(3) ]]; then
        ebsif_words[0]=/runscripts/conda-python-distributed
    fi
    # The shell code is constant; program and arguments are passed as arguments.
    # shellcheck disable=SC2016
    [[ -z "${EBSIF_ACTIVATE:-}" ]] || ebsif_words=(
        bash -p -c '[[ ! -r /runscripts/init-conda-venv ]] || source /runscripts/init-conda-venv || exit; exec "$@"'
        "${1##*/}" "${ebsif_words[@]}")
}

# If only one of the two names of PREPEND_PATH was changed since the module was loaded, use both values, first the one
# without the module's directories. (An empty element would mean the working directory.)
join_search_paths() {
    local first=${APPTAINERENV_PREPEND_PATH:-} second=${SINGULARITYENV_PREPEND_PATH:-}
    [[ ":$first:" != *:/runscripts:* ]] || { first=$second second=$APPTAINERENV_PREPEND_PATH; }
    first+=${first:+${second:+:}}$second
    export APPTAINERENV_PREPEND_PATH=$first SINGULARITYENV_PREPEND_PATH=$first
}
