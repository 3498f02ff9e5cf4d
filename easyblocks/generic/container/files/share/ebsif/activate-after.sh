# shellcheck shell=bash
# Appended to the bin/activate that Python wrote; see activate-before.sh.
if [ ! -e /.singularity.d ]; then
    # NAME VALUE: set a variable of the container, and remember its earlier value.
    _ebsif_set() {
        eval "_EBSIF_OLD_$1=\${$1+set:\$$1}; _EBSIF_NEW_$1=\$2; export $1=\$2"
    }

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

    # NAME: restore a variable, or unset it if the module has been unloaded. If something else has changed it since (a
    # module that was loaded again), keep that. In any case, remove the environment from search paths.
    _ebsif_put_back() {
        eval "[ -n \"\${_EBSIF_NEW_$1+set}\" ]" || return 0
        eval "set -- $1 \"\${$1-}\" \"\${_EBSIF_NEW_$1-}\" \"\${_EBSIF_OLD_$1-}\"; unset _EBSIF_NEW_$1 _EBSIF_OLD_$1"
        if [ "$2" = "$3" ] && [ -z "$_EBSIF_GONE" ]; then
            set -- "$1" "$4"
        elif [ "$2" = "$3" ] && [ "${1%_PREPEND_PATH}" = "$1" ]; then
            set -- "$1" ""
        else
            _ebsif_without "$2" "$_EBSIF_ESCAPED/bin"
            if [ "$_ebsif_rest" = "$2" ]; then return 0; fi
            set -- "$1" "${_ebsif_rest:+set:$_ebsif_rest}"
        fi
        if [ -n "$2" ]; then export "$1=${2#set:}"; else unset "$1"; fi
    }

    # PREFIX: set the variables with this prefix, that of Apptainer or Singularity.
    _ebsif_enter() {
        _ebsif_set "$1_VIRTUAL_ENV" "$_EBSIF_ESCAPED"
        _ebsif_set "$1_VIRTUAL_ENV_PROMPT" "${_EBSIF_ESCAPED##*/}"
        eval "set -- $1 \"\${$1_PREPEND_PATH-}\" \"\${$1_PYTHONPATH-}\""
        _ebsif_set "$1_PREPEND_PATH" "$_EBSIF_ESCAPED/bin${2:+:$2}"
        case $3 in
            # the image has a PYTHONPATH of its own, and the module has put its venv before that
            /user-software/venv/*) _ebsif_set "$1_PYTHONPATH" "$_EBSIF_ESCAPED${_EBSIF_SITE#"$_EBSIF_VENV"}:$3" ;;
        esac
    }

    if [ -d "$_EBSIF_VENV/host-bin" ]; then
        # commands that run the environment's programs in the container; also update them
        "$_EBSIF_VENV/host-bin/.run"
        export PATH="$_EBSIF_VENV/host-bin:$PATH"
    elif [ -n "${PYTHONPATH:-}" ]; then
        # it has the module's packages; those of the environment come first
        export PYTHONPATH="$_EBSIF_SITE:$PYTHONPATH"
    fi

    # The environment is active for everything in the container, because programs there start other programs.
    case "${EBSIF_LOADED_MODULE:-}/" in
        "$_EBSIF_MODULE"/*)
            _ebsif_enter APPTAINERENV
            _ebsif_enter SINGULARITYENV
            ;;
    esac

    eval "_ebsif_venv_$(declare -f deactivate)"
    deactivate() {
        # Python's deactivate restores the old PATH, but modules that were loaded or unloaded since have changed it
        _ebsif_without "$PATH" "$_EBSIF_VENV/host-bin"
        _ebsif_without "$_ebsif_rest" "${VIRTUAL_ENV:-$_EBSIF_VENV}/bin"
        if [ -n "${_OLD_VIRTUAL_PATH:-}" ]; then _OLD_VIRTUAL_PATH=$_ebsif_rest; fi
        _ebsif_venv_deactivate "$@"
        _EBSIF_GONE=1
        case ":${LOADEDMODULES:-}:" in
            *":$_EBSIF_MODULE:"* | *":$_EBSIF_MODULE/"*) _EBSIF_GONE= ;;
        esac
        for _ebsif_kind in APPTAINERENV SINGULARITYENV; do
            _ebsif_put_back "${_ebsif_kind}_VIRTUAL_ENV"
            _ebsif_put_back "${_ebsif_kind}_VIRTUAL_ENV_PROMPT"
            _ebsif_put_back "${_ebsif_kind}_PREPEND_PATH"
            _ebsif_put_back "${_ebsif_kind}_PYTHONPATH"
        done
        if [ -n "$_EBSIF_LOADED" ] && [ -z "$_EBSIF_GONE" ]; then
            module unload "$_EBSIF_MODULE"
            if [ -n "$_EBSIF_USE" ]; then module unuse "$_EBSIF_USE"; fi
            if [ -n "$_EBSIF_EARLIER" ]; then _ebsif_load_again "$_EBSIF_EARLIER"; fi
        fi
        case $_EBSIF_PYTHONPATH in
            set:*) export PYTHONPATH="${_EBSIF_PYTHONPATH#set:}" ;;
            *) unset PYTHONPATH ;;
        esac
        unset _EBSIF_MODULE _EBSIF_VENV _EBSIF_ESCAPED _EBSIF_SITE _EBSIF_PYTHONPATH _EBSIF_EARLIER _EBSIF_LOADED
        unset _EBSIF_USE _EBSIF_GONE _ebsif_kind _ebsif_rest
        unset -f deactivate _ebsif_venv_deactivate
        unset -f _ebsif_load_again _ebsif_is_loaded _ebsif_without _ebsif_set _ebsif_enter _ebsif_put_back
    }
fi
