# shellcheck shell=sh
# Sourced to find the directory on this node for what a job needs there only.

# find_node DIRECTORY: set `path` to the first directory that can be used, of EBSIF_NODE_LOCAL and those of the site, which
# caches.conf names, beside the run scripts in DIRECTORY (without that file, /tmp). Status 1: there is none. Starts no process.
find_node() {
    # shellcheck disable=SC2016
    ! usable '${EBSIF_NODE_LOCAL}' || return 0
    # a module without caches
    if [ ! -r "$1/caches.conf" ]; then
        usable /tmp
        return
    fi
    while read -r word template rest; do
        [ "$word" != node ] || ! usable "$template" || return 0
    done <"$1/caches.conf"
    return 1
}

usable() {
    expand "$1" && [ -d "$path" ] && [ -w "$path" ]
}

# expand TEMPLATE: set `path` to a full path, each ${NAME} replaced; false if a variable is missing or empty.
expand() {
    template=$1 path=''
    while [ "$template" != "${template#*\$\{}" ]; do
        name=${template#*\$\{}
        eval "value=\${${name%%\}*}:-}"
        [ -n "$value" ] || return 1
        path="$path${template%%\$\{*}$value"
        template=${name#*\}}
    done
    path=$path$template
    case $path in
        *"
"*) return 1 ;;
        /*) return 0 ;;
        *) return 1 ;;
    esac
}
