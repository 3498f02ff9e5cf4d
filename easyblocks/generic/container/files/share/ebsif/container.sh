# shellcheck shell=bash
# Sets the environment of the module without a modules tool: decides what container.lua and container.tcl decide, from
# module.conf next to this file. Usage, in bash: source container.sh load|unload|check
#
# With `check`: true if the container that is loaded has the user software of EBSIF_USER_SOFTWARE.
#
# A container module that is loaded already, say for the Jupyter server that starts this, is unloaded first. If it is
# this one, nothing is done. No program is started, except to load the modules that the easyconfig names as dependencies.

ebsif_warn() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
}

ebsif_refuse() {
    ebsif_warn "$1"
    return 1
}

ebsif_set() {
    export "$1=$2"
    EBSIF_SET+=${EBSIF_SET:+ }$1
}

# ebsif_split LINE: set `ebsif_name` and `ebsif_value` to its first word and the rest, whose blanks at the ends count.
ebsif_split() {
    ebsif_name=${1%% *} ebsif_value=${1#* }
}

# ebsif_suggest NAME VALUE: set a variable, for both runtimes if its name begins with *, unless the person has.
ebsif_suggest() {
    local ebsif_apptainer=${1/#\*/APPTAINER} ebsif_singularity=${1/#\*/SINGULARITY}
    [[ -z "${!ebsif_apptainer:-}${!ebsif_singularity:-}" ]] || return 0
    ebsif_set "$ebsif_apptainer" "$2"
    [[ "$ebsif_apptainer" == "$ebsif_singularity" ]] || ebsif_set "$ebsif_singularity" "$2"
}

# ebsif_items LIST SEPARATOR: set `ebsif_list` to the items of a list.
ebsif_items() {
    local IFS=$2
    set -o noglob
    # shellcheck disable=SC2206  # splits it
    ebsif_list=($1)
    set +o noglob
}

# ebsif_add NAME SEPARATOR ITEMS: add to a list what it lacks, and note it, so that unloading takes that out.
ebsif_add() {
    local ebsif_item ebsif_added=''
    ebsif_items "$3" "$2"
    for ebsif_item in "${ebsif_list[@]}"; do
        [[ -z "$ebsif_item" || "$2${!1:-}$2" == *"$2$ebsif_item$2"* ]] || ebsif_added+=$2$ebsif_item
    done
    ebsif_added=${ebsif_added#"$2"}
    [[ -n "$ebsif_added" ]] || return 0
    ebsif_set "EBSIF_ADDED_$1" "$ebsif_added"
    if [[ "$1" == PATH ]]; then
        PATH=$ebsif_added$2$PATH
    else
        export "$1=${!1:-}${!1:+$2}$ebsif_added"
    fi
}

# ebsif_extend NAME SEPARATOR ITEMS: add to the lists of both runtimes; one that isn't set begins with the person's other one.
ebsif_extend() {
    local ebsif_apptainer=APPTAINER$1 ebsif_singularity=SINGULARITY$1
    local ebsif_theirs=${!ebsif_apptainer:-} ebsif_others=${!ebsif_singularity:-}
    ebsif_add "$ebsif_apptainer" "$2" "${ebsif_theirs:-$ebsif_others}$2$3"
    ebsif_add "$ebsif_singularity" "$2" "${ebsif_others:-$ebsif_theirs}$2$3"
}

# ebsif_without NAME SEPARATOR ITEMS: take items out of a list.
ebsif_without() {
    local ebsif_text=$2${!1:-}$2 ebsif_item
    ebsif_items "$3" "$2"
    for ebsif_item in "${ebsif_list[@]/#/$2}"; do
        # the last one, which the module has added
        [[ "$ebsif_text" != *"$ebsif_item$2"* ]] || ebsif_text=${ebsif_text%"$ebsif_item$2"*}$2${ebsif_text##*"$ebsif_item$2"}
    done
    ebsif_text=${ebsif_text#"$2"} ebsif_text=${ebsif_text%"$2"}
    if [[ -n "$ebsif_text" ]]; then export "$1=$ebsif_text"; else unset "$1"; fi
}

# Undo what a container module has set, whichever it is.
ebsif_unload() {
    local ebsif_name ebsif_folder
    for ebsif_name in ${!EBSIF_ADDED_*}; do
        case $ebsif_name in
            *_BINDPATH | *_OVERLAY) ebsif_without "${ebsif_name#EBSIF_ADDED_}" , "${!ebsif_name}" ;;
            *) ebsif_without "${ebsif_name#EBSIF_ADDED_}" : "${!ebsif_name}" ;;
        esac
    done
    [[ -z "${CONTAINERROOT:-}" ]] || while read -r ebsif_name ebsif_folder; do
        [[ "$ebsif_folder" == /* ]] || ebsif_folder=$CONTAINERROOT/$ebsif_folder
        [[ -z "$ebsif_name" ]] || ebsif_without "$ebsif_name" : "$ebsif_folder"
    done <<<"${ebsif_conf[path]:-}"$'\n'"${ebsif_conf[path_append]:-}"
    # of a module written by hand in whose place this one is
    [[ "${SINGULARITY_BIND:-}" != *"$ebsif_root/runscripts:/runscripts"* ]] || unset SINGULARITY_BIND
    # shellcheck disable=SC2086  # names
    unset ${EBSIF_SET:-} EBSIF_SET
}

# Modules tools can't add to a list with a line break; here the same holds.
ebsif_check_lists() {
    local ebsif_list
    for ebsif_list in {APPTAINER,SINGULARITY}{_BINDPATH,_OVERLAY,ENV_PREPEND_PATH}; do
        [[ "${!ebsif_list:-}" != *$'\n'* ]] || ebsif_refuse \
            "$ebsif_list has a line break: modules tools run the rest of it. Unset it." || return
    done
}

ebsif_find_image() {
    local ebsif_top=${ebsif_conf[image_root_variable]:-} ebsif_tried=
    ebsif_top=${ebsif_top:+${!ebsif_top:-}}
    while IFS= read -r ebsif_image; do
        case $ebsif_image in
            ./*) ebsif_image=$ebsif_root/${ebsif_image#./} ;;
            [!/]*) ebsif_image=${ebsif_top:-${ebsif_conf[image_root]:-}}/$ebsif_image ;;
        esac
        [[ ! -f "$ebsif_image" ]] || return 0
        ebsif_tried+=${ebsif_tried:+, }$ebsif_image
    done <<<"${ebsif_conf[image]:-}"
    ebsif_refuse "The image of this container is missing: no copy was found on this node. Looked for: $ebsif_tried. ${ebsif_conf[image_remedy]:-}"
}

# ebsif_is_odd PATH: true if it is no full path, or can't be bound into a container.
ebsif_is_odd() {
    # classes of characters are ASCII, as in the other programs
    local LC_ALL=C
    [[ "$1" != /* || "$1" == *[[:cntrl:]]* || "$1" == *[,:]' '* || "$1" == *' '[,:]* ]]
}

# ebsif_spell PATH: set `ebsif_own` to the path as Lmod spells it in a bind.
ebsif_spell() {
    ebsif_own=$1/
    while [[ "$ebsif_own" == *//* ]]; do ebsif_own=${ebsif_own/\/\//\/}; done
    while [[ "$ebsif_own" == */./* ]]; do ebsif_own=${ebsif_own/\/.\//\/}; done
    ebsif_own=${ebsif_own%/}
}

ebsif_find_user_software() {
    local ebsif_own ebsif_folder
    ebsif_spell "${EBSIF_USER_SOFTWARE:-}"
    if [[ -n "$ebsif_own" ]] && { ebsif_is_odd "$ebsif_own" || [[ ! -d "$ebsif_own" ]]; }; then
        ebsif_refuse "EBSIF_USER_SOFTWARE=$ebsif_own is not the full path of a directory that can be bound into a container. Create it, choose another one, or unset the variable."
        return
    fi
    for ebsif_folder in ${ebsif_own:+"$ebsif_own"} "$ebsif_root"; do
        ebsif_user_software=$ebsif_folder/user-software.squashfs
        [[ ! -f "$ebsif_user_software" || ! -d "$ebsif_folder/user-software" ]] || ebsif_warn \
            "$ebsif_folder has both user-software.squashfs and the directory user-software: the file is used, and changes in the directory have no effect."
        [[ ! -f "$ebsif_user_software" ]] || return 0
        ebsif_user_software=$ebsif_folder/user-software
        [[ ! -d "$ebsif_user_software" ]] || return 0
    done
    ebsif_user_software=
}

# True if the user software that is mounted is what EBSIF_USER_SOFTWARE asks for: that of an empty directory is the module's.
ebsif_is_mounted() {
    local ebsif_own ebsif_mounted=${EBSIF_MOUNTED_USER_SOFTWARE:-$ebsif_root/}
    ebsif_spell "${EBSIF_USER_SOFTWARE:-}"
    [[ -z "$ebsif_own" || "$ebsif_mounted" == "$ebsif_own"/* || (
        -d "$ebsif_own" && ! -f "$ebsif_own/user-software.squashfs" && ! -d "$ebsif_own/user-software" &&
        "${ebsif_mounted%/*}" -ef "$ebsif_root") ]]
}

# ebsif_escape PATH: set `ebsif_escaped`, the path in a bind.
ebsif_escape() {
    ebsif_escaped=${1//,/\\,}
    ebsif_escaped=${ebsif_escaped//:/\\:}
}

# ebsif_add_binds WHERE: add the binds on standard input, one per line, with '?' before optional ones.
ebsif_add_binds() {
    local ebsif_line ebsif_bind ebsif_source ebsif_escaped
    while IFS= read -r ebsif_line || [[ -n "$ebsif_line" ]]; do
        # '?' is never the bind itself: nothing, or a comment, may come after it
        [[ "$ebsif_line" =~ ^[[:space:]]*([?]?)[[:space:]]*(.*)$ ]]
        ebsif_line=${BASH_REMATCH[1]} ebsif_bind=${BASH_REMATCH[2]}
        ebsif_bind=${ebsif_bind%"${ebsif_bind##*[![:space:]]}"}
        [[ "$ebsif_bind" == [!#]* ]] || continue
        ebsif_escape "$ebsif_root"
        ebsif_bind=${ebsif_bind/#.\//"$ebsif_escaped/"}
        [[ "$ebsif_bind" =~ ^(\\[,:]|[^:])* ]]
        ebsif_source=${BASH_REMATCH[0]//\\:/:}
        ebsif_source=${ebsif_source//\\,/,}
        if [[ -e "$ebsif_source" ]]; then
            ebsif_binds+=${ebsif_binds:+,}$ebsif_bind
        elif [[ -z "$ebsif_line" ]]; then
            ebsif_refuse "This container needs $ebsif_source, which doesn't exist on this node. $1" || return
        fi
    done
}

ebsif_find_binds() {
    local ebsif_file=${ebsif_conf[bind_file]:-} ebsif_escaped
    ebsif_add_binds "${ebsif_conf[bind_remedy]:-}" <<<"${ebsif_conf[bind]:-}" || return
    if [[ -f "$ebsif_file" && -r "$ebsif_file" ]]; then
        ebsif_add_binds "It is listed in $ebsif_file." <"$ebsif_file" || return
    elif [[ -n "$ebsif_file" && (-e "$ebsif_file" || -z "${ebsif_conf[bind_default]:-}") ]]; then
        ebsif_refuse "The list of bind mounts can't be read: $ebsif_file" || return
    else
        ebsif_add_binds '' <<<"${ebsif_conf[bind_default]:-}" || return
    fi
    if [[ -n "$ebsif_user_software" ]]; then
        ebsif_escape "$ebsif_user_software"
        ebsif_binds+=,$ebsif_escaped:/user-software
        [[ ! -f "$ebsif_user_software" ]] || ebsif_binds+=${ebsif_conf[user_software]}
    fi
}

# EasyBuild's part of the module: other modules, and variables that refer to others (expand).
ebsif_prepare() {
    local ebsif_line ebsif_name ebsif_value ebsif_expanded ebsif_tool=${LMOD_CMD:-${MODULES_CMD:-}}
    while read -r ebsif_name; do
        [[ -z "$ebsif_name" || ":${LOADEDMODULES:-}:" != *":$ebsif_name"[:/]* ]] || ebsif_refuse \
            "This container can't be used together with the module $ebsif_name: unload that first." || return
    done <<<"${ebsif_conf[conflict]:-}"
    while read -r ebsif_name; do
        [[ -n "$ebsif_name" && ":${LOADEDMODULES:-}:" != *":$ebsif_name"[:/]* ]] || continue
        [[ ! -x "$ebsif_tool" ]] || eval "$("$ebsif_tool" bash load "$ebsif_name")"
        [[ ":${LOADEDMODULES:-}:" == *":$ebsif_name"[:/]* ]] || ebsif_refuse \
            "This container needs the module $ebsif_name, which can't be loaded here: load it before you start this." || return
    done <<<"${ebsif_conf[needs]:-}"
    while IFS= read -r ebsif_line; do
        ebsif_split "$ebsif_line"
        ebsif_expanded=
        while [[ "$ebsif_value" =~ ^(.*)\$[{]?([A-Za-z_][A-Za-z0-9_]*)[}]?(.*)$ ]]; do
            ebsif_value=${BASH_REMATCH[1]} ebsif_expanded=${!BASH_REMATCH[2]:-}${BASH_REMATCH[3]}$ebsif_expanded
        done
        [[ -z "$ebsif_name" ]] || ebsif_set "$ebsif_name" "$ebsif_value$ebsif_expanded"
    done <<<"${ebsif_conf[expand]:-}"
    while read -r ebsif_name ebsif_value; do
        [[ "$ebsif_value" == /* ]] || ebsif_value=$ebsif_root/$ebsif_value
        [[ -z "$ebsif_name" || ! -e "$ebsif_value" ]] || export "$ebsif_name=$ebsif_value${!ebsif_name:+:${!ebsif_name}}"
    done <<<"${ebsif_conf[path]:-}"
    while read -r ebsif_name ebsif_value; do
        [[ "$ebsif_value" == /* ]] || ebsif_value=$ebsif_root/$ebsif_value
        [[ -z "$ebsif_name" || ! -e "$ebsif_value" ]] || export "$ebsif_name=${!ebsif_name:+${!ebsif_name}:}$ebsif_value"
    done <<<"${ebsif_conf[path_append]:-}"
}

ebsif_load() {
    local ebsif_image ebsif_user_software='' ebsif_binds='' ebsif_line ebsif_name ebsif_value ebsif_path ebsif_suffix
    local ebsif_overlays
    ebsif_check_lists && ebsif_find_image || return
    [[ -z "${ebsif_conf[user_software]:-}" ]] || ebsif_find_user_software || return
    ebsif_find_binds || return
    EBSIF_SET=
    ebsif_prepare || return
    for ebsif_suffix in '' "${ebsif_conf[suffix]}"; do
        ebsif_set "SIF$ebsif_suffix" "$ebsif_image"
        ebsif_set "RUNSCRIPTS$ebsif_suffix" "$ebsif_root/runscripts"
    done
    ebsif_set CONTAINERROOT "$ebsif_root"
    ebsif_set EBSIF_LOADED_MODULE "${ebsif_conf[module]}"
    ebsif_set EBSIF_MOUNTED_USER_SOFTWARE "$ebsif_user_software"
    while IFS= read -r ebsif_line; do
        ebsif_split "$ebsif_line"
        [[ -z "$ebsif_name" ]] || ebsif_set "$ebsif_name" "$ebsif_value"
    done <<<"${ebsif_conf[set]:-}"
    while IFS= read -r ebsif_line; do
        ebsif_path=${ebsif_line%% *}
        ebsif_split "${ebsif_line#* }"
        [[ "$ebsif_path" != user_software ]] || ebsif_path=$ebsif_user_software
        [[ ! -e "$ebsif_path" ]] || ebsif_suggest "$ebsif_name" "$ebsif_value"
    done <<<"${ebsif_conf[where]:-}"
    while IFS= read -r ebsif_line; do
        ebsif_split "$ebsif_line"
        [[ -z "$ebsif_name" ]] || ebsif_suggest "$ebsif_name" "$ebsif_value"
    done <<<"${ebsif_conf[default]:-}"
    ebsif_extend _BINDPATH , "$ebsif_binds"
    ebsif_overlays=
    while read -r ebsif_path; do
        [[ -z "$ebsif_path" ]] || ebsif_overlays+=${ebsif_overlays:+,}$ebsif_root$ebsif_path
    done <<<"${ebsif_conf[overlay]:-}"
    [[ -z "$ebsif_overlays" ]] || ebsif_extend _OVERLAY , "$ebsif_overlays"
    ebsif_extend ENV_PREPEND_PATH : "${ebsif_conf[search_path]}"
    # programs that mount images, so that signals don't end them (share/ebsif/mounter)
    ebsif_path=
    while read -r ebsif_name; do
        [[ -z "$ebsif_name" || ! -f "/usr/bin/$ebsif_name" ]] ||
            ebsif_path+=${ebsif_path:+:}$ebsif_root/share/ebsif/mounters/$ebsif_name
    done <<<"${ebsif_conf[mounter]:-}"
    ebsif_add PATH : "$ebsif_path"
    export EBSIF_SET
}

# ebsif_main FILE load|unload|check
ebsif_main() {
    local ebsif_root=${1%/share/ebsif/*} ebsif_line ebsif_name ebsif_value ebsif_list
    local -A ebsif_conf=()
    ebsif_root=${ebsif_root%/bin/..}
    [[ "$ebsif_root" == /* && "$ebsif_root/" != */../* ]] || ebsif_root=$(cd -- "${1%/*}/../.." && pwd)
    if [[ "$2" == check ]]; then
        ebsif_is_mounted
        return
    fi
    while IFS= read -r ebsif_line; do
        ebsif_split "$ebsif_line"
        ebsif_conf[$ebsif_name]+=${ebsif_conf[$ebsif_name]:+$'\n'}$ebsif_value
    done <"$ebsif_root/share/ebsif/module.conf" || return
    if [[ "$2" == load && "${CONTAINERROOT:-}" -ef "$ebsif_root" && -n "${EBSIF_LOADED_MODULE:-}" && -f "${SIF:-}" &&
        -e "${EBSIF_MOUNTED_USER_SOFTWARE:-$SIF}" ]] && ebsif_is_mounted; then
        return 0
    fi
    ebsif_unload
    [[ "$2" == unload ]] || ebsif_load
}

ebsif_main "${BASH_SOURCE[0]}" "${1:-load}"
