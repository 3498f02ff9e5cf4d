# shellcheck shell=bash
# Sourced by the user's shell, bash or zsh: load the module _EBSIF_MODULE and activate the environment _EBSIF_VENV. With
# _EBSIF_NEWEST, the name is that of an extension without its date, and means the newest one.
# extend-venv-activate writes this text, after these values, as bin/activate of the environment. In a container there is
# no module to load.

# NAME DIRECTORY: take a directory out of a search path; unset the variable if nothing is left.
_ebsif_remove() {
    eval "_ebsif_rest=:\${$1-}:"
    case $_ebsif_rest in
        *":$2:"*) ;;
        *) return ;;
    esac
    # more than once in a shell that another one has started with the environment active
    while [ "$_ebsif_rest" != "${_ebsif_rest%%":$2:"*}" ]; do
        _ebsif_rest=${_ebsif_rest%%":$2:"*}:${_ebsif_rest#*":$2:"}
    done
    _ebsif_rest=${_ebsif_rest#:}
    _ebsif_rest=${_ebsif_rest%:}
    if [ -n "$_ebsif_rest" ]; then export "$1=$_ebsif_rest"; else unset "$1"; fi
}

# LIST: whether the module is one of these modules. It may have been hidden, with a dot, or made visible since. If its name
# means the newest extension of a name, they have dates at the end: words without hyphens, as in newest.py.
_ebsif_is_in() {
    set -- ":$1:" ":$_EBSIF_MODULE"
    set -- "${1//\/./\/}" "${2//\/./\/}"
    case $1 in
        *"$2:"* | *"$2/"*) return 0 ;;
    esac
    [ -n "$_EBSIF_NEWEST" ] || return 1
    case $1 in
        *"$2-"*) _ebsif_rest=${1#*"$2-"} ;;
        *) return 1 ;;
    esac
    case ${_ebsif_rest%%:*} in
        *[!A-Za-z0-9_.]*) return 1 ;;
    esac
}

_ebsif_forget() {
    unset _EBSIF_MODULE _EBSIF_NEWEST _EBSIF_VENV _EBSIF_SITE _EBSIF_USE _EBSIF_BIN _EBSIF_PYTHONPATH _EBSIF_UNLOADS
    unset _ebsif_kind _ebsif_rest
    unset -f _ebsif_remove _ebsif_is_in _ebsif_enter _ebsif_forget
}

deactivate() {
    _ebsif_remove PATH "$_EBSIF_BIN"
    if [ -n "${PS1:-}" ]; then PS1=${PS1#"(${_EBSIF_VENV##*/}) "}; fi
    unset VIRTUAL_ENV VIRTUAL_ENV_PROMPT
    for _ebsif_kind in APPTAINERENV SINGULARITYENV; do
        _ebsif_remove "${_ebsif_kind}_PREPEND_PATH" "$_EBSIF_VENV/bin"
        eval "_ebsif_rest=\${${_ebsif_kind}_VIRTUAL_ENV-}"
        if [ "$_ebsif_rest" = "$_EBSIF_VENV" ]; then
            unset "${_ebsif_kind}_VIRTUAL_ENV" "${_ebsif_kind}_VIRTUAL_ENV_PROMPT" "${_ebsif_kind}_PYTHONPATH"
        fi
    done
    if [ -n "$_EBSIF_UNLOADS" ] && _ebsif_is_in "${LOADEDMODULES:-}"; then
        module unload "$_EBSIF_MODULE"
        if [ -n "$_EBSIF_USE" ]; then module unuse "$_EBSIF_USE"; fi
    fi
    case $_EBSIF_PYTHONPATH in
        set:*) export PYTHONPATH="${_EBSIF_PYTHONPATH#set:}" ;;
        *) unset PYTHONPATH ;;
    esac
    _ebsif_forget
    unset -f deactivate
    hash -r 2>/dev/null
}

# PREFIX: set the variables with this prefix, so that everything in the container uses the environment: programs there
# start other programs.
_ebsif_enter() {
    eval "set -- $1 \"\${$1_PREPEND_PATH-}\" \"\${$1_PYTHONPATH-}\""
    export "$1_VIRTUAL_ENV=$_EBSIF_VENV" "$1_VIRTUAL_ENV_PROMPT=${_EBSIF_VENV##*/}"
    export "$1_PREPEND_PATH=$_EBSIF_VENV/bin${2:+:$2}"
    case $3 in
        # the image has a PYTHONPATH of its own, and the module has put its venv before that
        /user-software/venv/*) export "$1_PYTHONPATH=$_EBSIF_SITE:$3" ;;
    esac
}

if [ ! -d "$_EBSIF_VENV" ]; then
    # the module's python and pip would be used instead
    echo "the environment was made at $_EBSIF_VENV, where there is none: move it back, or make another one" >&2
    _ebsif_forget
    unset -f deactivate
    return 1
fi

_EBSIF_PYTHONPATH=${PYTHONPATH+set:$PYTHONPATH}
# whether `deactivate` unloads the module
_EBSIF_UNLOADS=
_EBSIF_BIN=$_EBSIF_VENV/bin
if [ ! -e /.singularity.d ]; then
    if [ -d "$_EBSIF_VENV/host-bin" ]; then
        # commands that run the environment's programs in the container; also update them
        _EBSIF_BIN=$_EBSIF_VENV/host-bin
        "$_EBSIF_BIN/.run"
    fi
    case ":${MODULEPATH:-}:" in
        *":$_EBSIF_USE:"*) _EBSIF_USE= ;;
    esac
    if _ebsif_is_in "${LOADEDMODULES:-}"; then
        _EBSIF_USE=
    else
        if ! command -v module >/dev/null; then
            echo "$_EBSIF_VENV/bin/activate needs the command \`module\`, which this shell lacks: start scripts with" \
                "#!/bin/bash -l, or source the modules tool first" >&2
            _ebsif_forget
            unset -f deactivate
            return 1
        fi
        _EBSIF_UNLOADS=yes
        if [ -n "$_EBSIF_USE" ]; then module use "$_EBSIF_USE"; fi
        if ! module load "$_EBSIF_MODULE"; then
            if [ -n "$_EBSIF_USE" ]; then module unuse "$_EBSIF_USE"; fi
            _ebsif_forget
            unset -f deactivate
            return 1
        fi
    fi
    if _ebsif_is_in "${EBSIF_LOADED_MODULE:-}"; then
        # the name under which it is loaded
        _EBSIF_MODULE=$EBSIF_LOADED_MODULE
        # without the variables that are replaced here, it is no use
        _EBSIF_UNLOADS=yes
        _ebsif_enter APPTAINERENV
        _ebsif_enter SINGULARITYENV
    fi
    if [ ! -d "$_EBSIF_VENV/host-bin" ] && [ -n "${PYTHONPATH:-}" ]; then
        # it has the module's packages; those of the environment come first
        export PYTHONPATH="$_EBSIF_SITE:$PYTHONPATH"
    fi
fi

export VIRTUAL_ENV="$_EBSIF_VENV" VIRTUAL_ENV_PROMPT="${_EBSIF_VENV##*/}" PATH="$_EBSIF_BIN:$PATH"
if [ -n "${PS1:-}" ] && [ -z "${VIRTUAL_ENV_DISABLE_PROMPT:-}" ]; then PS1="(${_EBSIF_VENV##*/}) $PS1"; fi
hash -r 2>/dev/null
