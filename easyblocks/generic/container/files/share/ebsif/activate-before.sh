# shellcheck shell=bash
# Prepended to the bin/activate that Python wrote, and sourced by the user's shell, bash or zsh. Loads the module
# _EBSIF_MODULE of the environment _EBSIF_VENV. In a container there is nothing to do.
if [ ! -e /.singularity.d ]; then
    _EBSIF_PYTHONPATH=${PYTHONPATH+set:$PYTHONPATH}
    _EBSIF_EARLIER=
    _EBSIF_LOADED=

    # LIST: load the modules in a list that are not loaded.
    _ebsif_load_again() {
        set -- "$1:"
        while [ -n "$1" ]; do
            case ":${LOADEDMODULES:-}:" in
                *":${1%%:*}:"*) ;;
                *) module load "${1%%:*}" ;;
            esac
            set -- "${1#*:}"
        done
    }

    # Set _EBSIF_MODULE to the name under which it is loaded: it may have become hidden, with a dot, or visible again.
    _ebsif_is_loaded() {
        set -- ":${LOADEDMODULES:-}:" "${_EBSIF_MODULE%/*}" "${_EBSIF_MODULE##*/}"
        case $1 in
            *":$_EBSIF_MODULE:"* | *":$_EBSIF_MODULE/"*) ;;
            *":$2/.$3:"*) _EBSIF_MODULE=$2/.$3 ;;
            *":$2/${3#.}:"*) _EBSIF_MODULE=$2/${3#.} ;;
            *) return 1 ;;
        esac
    }

    if ! _ebsif_is_loaded; then
        # modules that must be unloaded for this one (other containers, other versions) are loaded again afterwards
        _EBSIF_EARLIER=${LOADEDMODULES:-}
        if [ -d "$_EBSIF_VENV/host-bin" ] && [ -n "${EBSIF_LOADED_MODULE:-}" ]; then
            module unload "$EBSIF_LOADED_MODULE"
        fi
        case ":${MODULEPATH:-}:" in
            *":$_EBSIF_USE:"*) _EBSIF_USE= ;;
        esac
        if [ -n "$_EBSIF_USE" ]; then module use "$_EBSIF_USE"; fi
        if ! module load "$_EBSIF_MODULE"; then
            if [ -n "$_EBSIF_USE" ]; then module unuse "$_EBSIF_USE"; fi
            if [ -n "$_EBSIF_EARLIER" ]; then _ebsif_load_again "$_EBSIF_EARLIER"; fi
            unset _EBSIF_MODULE _EBSIF_VENV _EBSIF_ESCAPED _EBSIF_SITE _EBSIF_PYTHONPATH _EBSIF_EARLIER _EBSIF_LOADED
            unset _EBSIF_USE
            unset -f _ebsif_load_again _ebsif_is_loaded
            return 1
        fi
        _EBSIF_LOADED=1
        _ebsif_is_loaded || true
    else
        _EBSIF_USE=
    fi
fi
