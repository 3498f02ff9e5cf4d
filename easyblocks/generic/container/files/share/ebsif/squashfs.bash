# shellcheck shell=bash
# Sourced by make-squashfs and unmake-squashfs: functions that leave nothing half-finished behind.
# Needs common.bash, and `ebsif_root`, the installation directory.

# Advice for users who can't change the module's user software.
own="to get your own user software, set EBSIF_USER_SOFTWARE to a directory of yours (mkdir DIRECTORY; export EBSIF_USER_SOFTWARE=\$(realpath DIRECTORY)), then run unmake-squashfs and reload the module"

# Set `place`, the parent directory of user software: the installation, or the user's EBSIF_USER_SOFTWARE.
find_place() {
    place=${EBSIF_USER_SOFTWARE:-${ebsif_root:?}}
    # inside a container the directory may be invisible; the commands refuse to run there anyway
    [[ -d "$place" ]] || in_container || refuse 2 "EBSIF_USER_SOFTWARE is not a directory: $place; create it (mkdir), or unset the variable"
}

# Create `work`, a temporary directory next to user software, so that the last step is a rename within one file system.
# It is removed however the command ends; if it is killed, by the next one on this machine.
make_work_directory() {
    [[ -w "$place" ]] || refuse 4 "can't write to $place: it is read-only, or you don't have permission; $own"
    local name left process space
    # HOSTNAME may be the node where a job was submitted; containers have process numbers of their own
    space=$(readlink /proc/self/ns/pid)
    name="$place/.${0##*/}.$(</proc/sys/kernel/hostname).${space//[!0-9]/}"
    for left in "$name".*.*; do
        process=${left#"$name".}
        [[ -L "$left" || ! -O "$left" || -d "/proc/${process%.*}" ]] || remove_directory "$left"
    done
    work=
    trap 'remove_directory "$work"' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    work=$(mktemp -d "$name.$$.XXXXXXXX") || refuse 4 "can't write to $place: is the disk or your quota full?"
    # a progress bar on a terminal, for the command that sources this
    # shellcheck disable=SC2034
    progress=(-no-progress) chatter=/dev/null
    # shellcheck disable=SC2034
    [[ ! -t 1 ]] || progress=() chatter=/dev/stdout
}

# remove_directory DIRECTORY: remove it if there is one; directories in it may lack write permission.
remove_directory() {
    chmod -R -- u+rwX "$1" 2>/dev/null || true
    rm -rf -- "$1"
}

# need PROGRAM: stop unless it is on PATH.
need() {
    type -P "$1" >/dev/null ||
        refuse 4 "$1 is not on PATH: install squashfs-tools, or use a node that has it; nothing was changed"
}

# check_readable DIRECTORY: stop unless all of it is readable, because mksquashfs packs unreadable files as empty ones and
# continues. (There is an option against that since 4.3, but it also stops for other reasons.)
check_readable() {
    find "$1" \( -type f ! -readable -o -type d \( ! -readable -o ! -executable \) -prune \) -print >"$work/unreadable" ||
        refuse 4 "can't read all of $1; nothing was changed"
    [[ ! -s "$work/unreadable" ]] ||
        refuse 4 "can't read $(shorten "$work/unreadable"): ask their owners for permission (chmod); nothing was changed"
}

# Print a line for each file and directory below a directory: size (of files) and path, with the target of links.
list_directory() {
    LC_ALL=C find "$1" -mindepth 1 \( -type f -printf %s -o -true \) -printf ' /%P' \( -type l -printf ' -> %l' -o -true \) \
        -printf '\n' | LC_ALL=C sed -n '/^[0-9]* \//p' | LC_ALL=C sort
}

# The same for a SquashFS file.
list_squashfs() {
    LC_ALL=C unsquashfs -ll "$1" | LC_ALL=C sed -n -e 's,^-[^ ]* .* \([0-9][0-9]*\) [0-9-]* [0-9:]* squashfs-root/,\1 /,p' \
        -e 's,^[a-z][^ ]* .* squashfs-root/, /,p' | LC_ALL=C sort
}

# check_complete [WHY]: stop unless the lists in the files `before` and `after` are the same, and show the differences.
check_complete() {
    LC_ALL=C comm -3 "$work/before" "$work/after" | sed 's/^[^/]*//' | sort -u >"$work/different"
    [[ ! -s "$work/different" ]] || refuse 4 \
        "${1:-not everything could be read, or files changed meanwhile}; nothing was changed: $(shorten "$work/different")"
}

# shorten FILE: print its first lines as one line.
shorten() {
    local lines text
    mapfile -t lines <"$1"
    printf -v text '%s, ' "${lines[@]:0:5}"
    text=${text%, }
    ((${#lines[@]} <= 5)) || text+=" and $((${#lines[@]} - 5)) more"
    printf '%s' "$text"
}

# owner PATH: print its owner unless that is the user, so that nobody is told to remove files of others.
owner() {
    [[ -O "$1" ]] || stat -c %U -- "$1"
}

# refuse_existing PATH ADVICE: stop if the result already exists.
refuse_existing() {
    local others
    [[ -e "$1" || -L "$1" ]] || return 0
    others=$(owner "$1")
    [[ -z "$others" || -L "$1" ]] || refuse 3 "$1 exists and belongs to $others; it was not touched; $own"
    refuse 3 "$1 exists: $2; it was not touched"
}

# True if a group shares this directory: it is group-writable, and new files belong to the group (set-gid).
is_shared() {
    [[ -g "$place" && $(stat -c %A -- "$place") == ?????w* ]]
}
