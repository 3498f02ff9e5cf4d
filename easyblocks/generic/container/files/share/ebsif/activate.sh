# shellcheck shell=bash
# Sourced by the user's shell, bash or zsh: load the module _EBSIF_MODULE and activate the environment _EBSIF_VENV.
# extend-venv-activate writes this text, after these values, as bin/activate of the environment. In a container there is
# no module to load.

# LIST ITEM: set _ebsif_rest to a search path without (the first occurrence of) a directory.
_ebsif_without() {
    _ebsif_rest=$1
    case ":$1:" in
        *":$2:"*)
            set -- ":$1:" "$2"
            _ebsif_rest=${1%%":$2:"*}:${1#*":$2:"}
            _ebsif_rest=${_ebsif_rest#:}
            _ebsif_rest=${_ebsif_rest%:}
            ;;
    esac
}

# NAME VALUE: export a variable, or unset it if the value is empty.
_ebsif_export() {
    if [ -n "$2" ]; then export "$1=$2"; else unset "$1"; fi
}

# LIST: whether the module is one of these modules. It may have been hidden, with a dot, or made visible since.
_ebsif_is_in() {
    set -- ":$1" "$_EBSIF_MODULE"
    set -- "${1//\/./\/}" "${2//\/./\/}"
    case "$1:" in
        *":$2:"* | *":$2/"*) ;;
        *) return 1 ;;
    esac
}

_ebsif_forget() {
    unset _EBSIF_MODULE _EBSIF_VENV _EBSIF_ESCAPED _EBSIF_SITE _EBSIF_USE _EBSIF_BIN _EBSIF_PYTHONPATH _EBSIF_BEFORE
    unset _EBSIF_LOADED _ebsif_kind _ebsif_path _ebsif_rest
    unset -f _ebsif_without _ebsif_export _ebsif_is_in _ebsif_unload _ebsif_enter _ebsif_forget
}

# Unload the module, and load the container module that was loaded before.
_ebsif_unload() {
    if _ebsif_is_in "${LOADEDMODULES:-}"; then
        module unload "$_EBSIF_MODULE"
        if [ -n "$_EBSIF_USE" ]; then module unuse "$_EBSIF_USE"; fi
        if [ -n "$_EBSIF_BEFORE" ]; then module load "$_EBSIF_BEFORE"; fi
    fi
}

deactivate() {
    _ebsif_without "$PATH" "$_EBSIF_BIN"
    export PATH="$_ebsif_rest"
    if [ -n "${PS1:-}" ]; then PS1=${PS1#"(${_EBSIF_VENV##*/}) "}; fi
    unset VIRTUAL_ENV VIRTUAL_ENV_PROMPT
    _ebsif_path=
    for _ebsif_kind in APPTAINERENV SINGULARITYENV; do
        eval "_ebsif_path=\${${_ebsif_kind}_PREPEND_PATH-}"
        _ebsif_without "$_ebsif_path" "$_EBSIF_ESCAPED/bin"
        _ebsif_export "${_ebsif_kind}_PREPEND_PATH" "$_ebsif_rest"
        eval "_ebsif_path=\${${_ebsif_kind}_VIRTUAL_ENV-}"
        if [ "$_ebsif_path" = "$_EBSIF_ESCAPED" ]; then
            unset "${_ebsif_kind}_VIRTUAL_ENV" "${_ebsif_kind}_VIRTUAL_ENV_PROMPT" "${_ebsif_kind}_PYTHONPATH"
        fi
    done
    if [ -n "$_EBSIF_LOADED" ]; then _ebsif_unload; fi
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
    export "$1_VIRTUAL_ENV=$_EBSIF_ESCAPED" "$1_VIRTUAL_ENV_PROMPT=${_EBSIF_ESCAPED##*/}"
    export "$1_PREPEND_PATH=$_EBSIF_ESCAPED/bin${2:+:$2}"
    case $3 in
        # the image has a PYTHONPATH of its own, and the module has put its venv before that
        /user-software/venv/*) export "$1_PYTHONPATH=$_EBSIF_ESCAPED${_EBSIF_SITE#"$_EBSIF_VENV"}:$3" ;;
    esac
}

_EBSIF_PYTHONPATH=${PYTHONPATH+set:$PYTHONPATH}
_EBSIF_BEFORE=
_EBSIF_LOADED=
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
        _EBSIF_LOADED=1
        if [ -d "$_EBSIF_VENV/host-bin" ] && [ -n "${EBSIF_LOADED_MODULE:-}" ]; then
            # only one container module can be loaded
            _EBSIF_BEFORE=$EBSIF_LOADED_MODULE
            module unload "$_EBSIF_BEFORE"
        fi
        if [ -n "$_EBSIF_USE" ]; then module use "$_EBSIF_USE"; fi
        if ! module load "$_EBSIF_MODULE"; then
            if [ -n "$_EBSIF_USE" ]; then module unuse "$_EBSIF_USE"; fi
            if [ -n "$_EBSIF_BEFORE" ]; then module load "$_EBSIF_BEFORE"; fi
            _ebsif_forget
            unset -f deactivate
            return 1
        fi
    fi
    if _ebsif_is_in "${EBSIF_LOADED_MODULE:-}"; then
        # the name under which it is loaded
        _EBSIF_MODULE=$EBSIF_LOADED_MODULE
        # loading it again restores the variables that are set here
        if [ -z "$_EBSIF_LOADED" ]; then _EBSIF_BEFORE=$_EBSIF_MODULE; fi
        _EBSIF_LOADED=1
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
