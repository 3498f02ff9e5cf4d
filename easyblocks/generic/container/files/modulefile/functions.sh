# shellcheck shell=bash
# Sets the environment of the module without a modules tool. Usage, in bash: source environment.sh load
#
# A container module that is loaded already, say for the Jupyter server that starts this, is unloaded first. If it is this
# one, nothing is done.
#
# Written by eb with the module file, from the same code. Functions that return a text set ebsif_text. No program is
# started, except to find out the size of the image.

if [[ "${1:-}" != unload && -n "${EBSIF_LOADED_MODULE:-}" ]]; then
    if [[ "${CONTAINERROOT:-}/share/ebsif" -ef "${BASH_SOURCE[0]%/*}" && -f "${SIF:-}" &&
        -e "${EBSIF_MOUNTED_USER_SOFTWARE:-$SIF}" &&
        (-z "${EBSIF_USER_SOFTWARE:-}" || "${EBSIF_MOUNTED_USER_SOFTWARE:-}" == "$EBSIF_USER_SOFTWARE"/*) ]]; then
        return 0
    elif [[ -r "${CONTAINERROOT:-}/share/ebsif/environment.sh" ]]; then
        # shellcheck source=/dev/null
        source "$CONTAINERROOT/share/ebsif/environment.sh" unload
    fi
fi

# ebsif_user_value NAME: the user's value of a variable; false if there is none.
ebsif_user_value() {
    local ebsif_note=__EBSIF_EARLIER_$1
    ebsif_text=
    [[ -n "$ebsif_loading" ]] || return 1
    if [[ -v "$ebsif_note" && "${!ebsif_note}" != same ]]; then
        ebsif_text=${!ebsif_note:1}
    elif [[ -v "$1" && (-z "$ebsif_lost" || -v "$ebsif_note") ]]; then
        ebsif_text=${!1}
    else
        return 1
    fi
}

ebsif_restore() {
    local ebsif_note=__EBSIF_EARLIER_$1
    local ebsif_noted=${!ebsif_note:-}
    unset "$ebsif_note"
    if [[ -z "$ebsif_noted" ]]; then
        unset "$1"
    elif [[ "$ebsif_noted" != same ]]; then
        export "$1=${ebsif_noted:1}"
        [[ "$ebsif_noted" != :* ]] || unset "__LMOD_STACK_$1"
    fi
}

ebsif_put() {
    [[ "$ebsif_done" != *" $1 "* ]] || return 0
    [[ -z "$ebsif_active" && -n "$ebsif_loading" ]] || ebsif_done+="$1 "
    if [[ -z "$ebsif_loading" ]]; then
        ebsif_restore "$1"
    elif ebsif_user_value "$1"; then
        if [[ -z "$ebsif_active" || "$ebsif_text" == "$2" ]]; then
            export "__EBSIF_EARLIER_$1=same" "$1=$ebsif_text"
        else
            export "__EBSIF_EARLIER_$1=:$ebsif_text" "$1=$2"
        fi
    elif [[ -n "$ebsif_active" ]]; then
        export "$1=$2"
    elif [[ -n "$ebsif_lost" ]]; then
        unset "$1"
    fi
}

ebsif_put_default() {
    ebsif_user_value "$1" || ebsif_text=$2
    ebsif_put "$1" "$ebsif_text"
}

ebsif_put_both() {
    ebsif_put "SINGULARITY$1" "$2"
    ebsif_put "APPTAINER$1" "$2"
}

# ebsif_put_in_container NAME VALUE [LITERAL]
ebsif_put_in_container() {
    local ebsif_value=$2
    if [[ -n "${3:-}" && ("${APPTAINER_NO_EVAL:-}" == [1tT]* || "${SINGULARITY_NO_EVAL:-}" == [1tT]*) ]]; then
        ebsif_value=$3
    fi
    ebsif_user_value "APPTAINERENV_$1" || ebsif_user_value "SINGULARITYENV_$1" || ebsif_text=$ebsif_value
    ebsif_put_both "ENV_$1" "$ebsif_text"
}

# ebsif_append VARIABLE ITEM SEPARATOR: add an item to the list in a variable, unless it has it.
ebsif_append() {
    [[ -z "$2" || "$3${!1}$3" == *"$3$2$3"* ]] || printf -v "$1" '%s' "${!1}${!1:+$3}$2"
}

# ebsif_user_items VARIABLE NAME SEPARATOR: set a variable to the user's items in the list variables of both runtimes.
ebsif_user_items() {
    ebsif_user_value "APPTAINER$2"
    printf -v "$1" '%s' "$ebsif_text"
    ebsif_user_value "SINGULARITY$2"
    ebsif_append "$1" "$ebsif_text" "$3"
}

ebsif_put_list() {
    local ebsif_items
    ebsif_user_items ebsif_items "$1" "$2"
    ebsif_append ebsif_items "$3" "$2"
    ebsif_put_both "$1" "$ebsif_items"
}

# ebsif_add_bind VARIABLE PATH TEXT: add a bind to a list: the path, escaped for the runtime, and the rest of the bind.
ebsif_add_bind() {
    local ebsif_path=${2//,/\\,}
    ebsif_append "$1" "${ebsif_path//:/\\:}$3" ,
}

# ebsif_read_binds VARIABLE FILE: add the binds that a file lists, one per line, with '?' before optional ones.
ebsif_read_binds() {
    local ebsif_line ebsif_source ebsif_optional
    if [[ ! -f "$2" || ! -r "$2" ]]; then
        ebsif_refuse "The list of bind mounts can't be read: $2"
        return
    fi
    while read -r ebsif_line || [[ -n "$ebsif_line" ]]; do
        [[ "$ebsif_line" =~ ^([?]?)[[:space:]]*(.*)$ ]]
        ebsif_optional=${BASH_REMATCH[1]}
        ebsif_line=${BASH_REMATCH[2]}
        [[ -n "$ebsif_line" && "$ebsif_line" != '#'* ]] || continue
        [[ "$ebsif_line" =~ ^(\\[,:]|[^:])* ]]
        ebsif_source=${BASH_REMATCH[0]//\\:/:}
        ebsif_source=${ebsif_source//\\,/,}
        if [[ -e "$ebsif_source" ]]; then
            ebsif_append "$1" "$ebsif_line" ,
        elif [[ -z "$ebsif_optional" ]]; then
            ebsif_refuse "This container needs $ebsif_source, which doesn't exist on this node. It is listed in $2." ||
                return
        fi
    done <"$2"
}

# ebsif_drop_replaced BINDS NAME...: the module file that this one replaces may be loaded here: what it set in variables
# that this one leaves alone.
ebsif_drop_replaced() {
    local ebsif_kept='' ebsif_item ebsif_bind ebsif_target
    [[ "${SINGULARITY_BIND:-}" == *"$ebsif_root/runscripts:/runscripts"* ]] || return 0
    unset "${@:2}"
    while IFS= read -r -d , ebsif_item; do
        ebsif_target=${ebsif_item#*:}
        ebsif_target=${ebsif_target%%:*}
        ebsif_bind=$ebsif_item
        [[ "${ebsif_item%%:*}" != "$ebsif_target" ]] || ebsif_bind=$ebsif_target
        [[ "$ebsif_target" == /runscripts || "$ebsif_target" == /user-software || ",$1," == *",$ebsif_bind,"* ]] ||
            ebsif_append ebsif_kept "$ebsif_item" ,
    done <<<"$SINGULARITY_BIND,"
    if [[ -z "$ebsif_kept" ]]; then
        unset SINGULARITY_BIND
    elif [[ -n "$ebsif_loading" ]]; then
        export SINGULARITY_BIND=$ebsif_kept
    fi
}

ebsif_setenv() {
    if [[ -n "$ebsif_loading" ]]; then export "$1=$2"; else unset "$1"; fi
}

# ebsif_path prepend|append NAME ITEM SEPARATOR
ebsif_path() {
    local ebsif_list=$4${!2:-}$4
    ebsif_list=${ebsif_list//"$4$3$4"/$4}
    ebsif_list=${ebsif_list#"$4"}
    ebsif_list=${ebsif_list%"$4"}
    if [[ -z "$ebsif_loading" ]]; then
        :
    elif [[ "$1" == prepend ]]; then
        ebsif_list=$3${ebsif_list:+$4$ebsif_list}
    else
        ebsif_list=${ebsif_list:+$ebsif_list$4}$3
    fi
    if [[ -n "$ebsif_list" ]]; then export "$2=$ebsif_list"; else unset "$2"; fi
}

# ebsif_stand_in PROGRAM DIRECTORY: put the directory of our file before that of the program with this name on PATH, if that
# is one where our file looks for it.
ebsif_stand_in() {
    local ebsif_place ebsif_found=''
    local -a ebsif_places
    IFS=: read -r -a ebsif_places <<<"${PATH:-}"
    for ebsif_place in "${ebsif_places[@]}"; do
        [[ -n "$ebsif_found" || "$ebsif_place" == "$2" || ! -f "$ebsif_place/$1" ]] || ebsif_found=$ebsif_place
    done
    [[ -n "$ebsif_loading" && "$ebsif_found" != @(/usr/local/bin|/usr/bin|/bin) ]] || ebsif_path prepend PATH "$2" :
}

# ebsif_use DIRECTORY: search it for modules.
ebsif_use() {
    [[ ! -d "$1" ]] || ebsif_path prepend MODULEPATH "$1" :
}

ebsif_say() {
    [[ -z "$ebsif_loading" ]] || printf '%s: %s\n' "${0##*/}" "$1" >&2
}

ebsif_refuse() {
    [[ -n "$ebsif_loading" ]] || return 0
    ebsif_say "$1"
    return 1
}

# ebsif_has_module NAME: true if a module with this name, or any version of it, is loaded.
ebsif_has_module() {
    [[ ":${LOADEDMODULES:-}:" == *":$1"[:/]* ]]
}

ebsif_conflict() {
    ! ebsif_has_module "$1" || ebsif_refuse "This container can't be used together with the module $1: unload that first."
}

# ebsif_need_module NAME: load a module that this one depends on.
ebsif_need_module() {
    [[ -n "$ebsif_loading" ]] && ! ebsif_has_module "$1" || return 0
    if [[ -x "${LMOD_CMD:-}" ]]; then
        eval "$("$LMOD_CMD" bash load "$1")"
    elif [[ -x "${MODULES_CMD:-}" ]]; then
        eval "$("$MODULES_CMD" bash load "$1")"
    fi
    ebsif_has_module "$1" ||
        ebsif_refuse "This container needs the module $1, which can't be loaded here: load it before you start this."
}

# ebsif_main FILE load|unload: execute the statements; if one refuses, take back what the others have done.
ebsif_main() {
    local ebsif_loading=1 ebsif_lost='' ebsif_active=1 ebsif_done=' ' ebsif_text='' ebsif_root=${1%/share/ebsif/*}
    # shellcheck disable=SC2034  # for statements that depend on conditions
    local -a ebsif_outer=()
    ebsif_root=${ebsif_root%/bin/..}
    [[ "$ebsif_root" == /* && "$ebsif_root/" != */../* ]] || ebsif_root=$(cd -- "${1%/*}/../.." && pwd)
    if [[ "$2" == unload ]]; then
        ebsif_loading=
    elif [[ -n "${EBSIF_LOADED_MODULE:-}" ]]; then
        ebsif_lost=1
    fi
    ebsif_statements && return
    ebsif_loading='' ebsif_done=' '
    ebsif_statements
    return 1
}

# ebsif_forget NAME...: if the installation of the loaded module is gone or has no environment.sh, unset these variables
# and those of the container that the module has set: they have the same value for both runtimes, and no note.
ebsif_forget() {
    local ebsif_name ebsif_note ebsif_other
    [[ -n "$ebsif_lost" ]] || return 0
    for ebsif_name in "$@" ${!APPTAINERENV_*}; do
        ebsif_note=__EBSIF_EARLIER_$ebsif_name
        ebsif_other=${ebsif_name/#APPTAINER/SINGULARITY}
        if [[ ! -v "$ebsif_note" && -v "$ebsif_other" && "${!ebsif_name}" == "${!ebsif_other}" ]]; then
            unset "$ebsif_name" "$ebsif_other"
        fi
    done
}

