# Sourced by make-squashfs and unmake-squashfs: work that leaves nothing half-made behind.
# Needs common.bash, and `root`, the installation directory.
root=${root:?}

# Set `place`, where user software is: the installation, or the directory that the user has named.
find_place() {
    place=${EBSIF_USER_SOFTWARE:-$root}
    # the module binds that name: it has to mean the same from everywhere
    [[ "$place" == /* ]] || refuse 2 "EBSIF_USER_SOFTWARE has to be a full path: export EBSIF_USER_SOFTWARE='$PWD/$place'"
    # in a container, where it may not be seen, the commands refuse for that reason
    [[ -d "$place" ]] || in_container || refuse 2 "EBSIF_USER_SOFTWARE names no directory: $place; make it (mkdir), or unset the variable"
}

# How to have user software that one may change, where that of the module is others'.
own="for user software of your own name a directory of yours (mkdir DIRECTORY; export EBSIF_USER_SOFTWARE=\$(realpath DIRECTORY)), then run unmake-squashfs and reload the module"

# Make `work`, a directory in that place that disappears however the command ends.
# There, so that the last step is a rename within one file system.
make_work_directory() {
    work=
    trap 'remove_work_directory' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    remove_leftovers
    [[ -w "$place" ]] || refuse 4 "can't write in $place: it is read-only, or not yours to change; $own"
    work=$(mktemp -d "$place/.${0##*/}.${HOSTNAME:-host}.$$.XXXXXXXX") ||
        refuse 4 "can't write in $place: is the disk or your quota full?"
}

# Remove what killed commands left in that place: one's own, of processes of this machine that are no more.
remove_leftovers() {
    local left pid
    for left in "$place/.${0##*/}.${HOSTNAME:-host}".*.*; do
        pid=${left%.*}
        pid=${pid##*.}
        if [[ "$pid" =~ ^[0-9]+$ && -d "$left" && -O "$left" && ! -d "/proc/$pid" ]]; then
            work=$left
            remove_work_directory
        fi
    done
    work=
}

remove_work_directory() {
    if [[ -n "$work" ]]; then
        # what was unpacked may hold directories without write permission
        chmod -R u+rwX -- "$work" 2>/dev/null || true
        rm -rf -- "$work"
    fi
}

# need PROGRAM: end unless it can be run.
need() {
    type -P "$1" >/dev/null ||
        refuse 4 "$1 is not on PATH: install squashfs-tools, or use a node that has it; nothing was changed"
}

# check_readable DIRECTORY: end unless all of it can be read: mksquashfs packs what it can't read as empty files and goes
# on (the option that changes that came with 4.3, and its name says nothing of what else it stops for).
check_readable() {
    local unreadable
    unreadable=$(find "$1" \( -type f ! -readable -o -type d \( ! -readable -o ! -executable \) -prune \) -print) ||
        refuse 4 "can't look into all of $1; nothing was changed"
    [[ -z "$unreadable" ]] ||
        refuse 4 "can't read $(shorten "$unreadable"): their owners can change that (chmod); nothing was changed"
}

# Print a line for each file and directory below a directory: size (of files) and path, with the target of links.
list_directory() {
    LC_ALL=C find "$1" -mindepth 1 \( -type f -printf %s -o -true \) -printf ' /%P' \( -type l -printf ' -> %l' -o -true \) \
        -printf '\n' | LC_ALL=C sed -n '/^[0-9]* \//p' | LC_ALL=C sort
}

# The same of a SquashFS file.
list_squashfs() {
    LC_ALL=C unsquashfs -ll "$1" | LC_ALL=C sed -n -e 's,^-[^ ]* .* \([0-9][0-9]*\) [0-9-]* [0-9:]* squashfs-root/,\1 /,p' \
        -e 's,^[a-z][^ ]* .* squashfs-root/, /,p' | LC_ALL=C sort
}

# check_complete LIST OTHER [WHY]: end unless two such lists are the same, with what is in one only.
check_complete() {
    local different
    different=$(LC_ALL=C comm -3 <(printf '%s\n' "$1") <(printf '%s\n' "$2") | sed 's/^[^/]*//' | sort -u)
    [[ -z "$different" ]] ||
        refuse 4 "${3:-not all of it could be read, or it changed meanwhile}; nothing was changed: $(shorten "$different")"
}

# shorten LINES: print the first few as one line.
shorten() {
    local lines line text
    mapfile -t lines <<<"$1"
    text=${lines[0]}
    for line in "${lines[@]:1:4}"; do
        text+=", $line"
    done
    ((${#lines[@]} <= 5)) || text+=" and $((${#lines[@]} - 5)) more"
    printf '%s' "$text"
}

# owner PATH: print whose it is, if it's not one's own: nobody is told to remove what belongs to others.
owner() {
    [[ -O "$1" ]] || stat -c %U -- "$1"
}

# refuse_existing PATH ADVICE: end, for what should be made is there already.
refuse_existing() {
    local others
    others=$(owner "$1")
    [[ -z "$others" || -L "$1" ]] || refuse 3 "$1 exists, and it is $others's; it was not touched; $own"
    refuse 3 "$1 exists: $2; it was not touched"
}

# Set `progress`, options for mksquashfs and unsquashfs, and `chatter`, where their standard output goes: the bar on a
# terminal, nothing elsewhere. Their errors are kept apart, for the message.
# shellcheck disable=SC2034  # both are for the command that sources this
show_progress() {
    progress=(-no-progress)
    chatter=/dev/null
    if [[ -t 1 ]]; then
        progress=()
        chatter=/dev/stdout
    fi
}

# run PROGRAM ARGUMENT...: run it; `said` is the end of what it printed as errors. In memory: the disk may be full.
run() {
    local status=0
    { said=$("$@" 2>&1 >&3 </dev/null); } 3>"$chatter" || status=$?
    # shellcheck disable=SC2034  # for the command that sources this
    said=$(printf '%s\n' "$said" | tail -n 5)
    return "$status"
}

# True if a group shares this place: it may write here, and what is made here belongs to it (set-gid).
is_shared() {
    [[ -g "$place" && $(stat -c %A -- "$place") == ?????w* ]]
}

# Begin to try whether zstd can be used, an order of magnitude faster than gzip at the same size: mksquashfs needs to
# have it, and the runtime here needs to mount it. That takes the time of starting a container, in which the files can be
# packed already.
try_zstd() {
    mkdir "$work/empty"
    (mksquashfs "$work/empty" "$work/probe" -comp zstd -no-progress >/dev/null 2>&1 && is_mountable "$work/probe") &
    # shellcheck disable=SC2034  # for the command that sources this
    trial=$!
}

# is_mountable FILE: true if the runtime here can mount this SquashFS file, tried with the image of this installation.
is_mountable() {
    local runtime image=${SIF:-} found file=$1
    runtime=$(type -P apptainer) || runtime=$(type -P singularity) || return 1
    for found in "$root"/*.sif; do
        image=${image:-$found}
    done
    file=${file//,/\\,}
    file=${file//:/\\:}
    (
        unset {APPTAINER,SINGULARITY}_{BIND,BINDPATH,OVERLAY}
        exec "$runtime" exec --bind "$file:/user-software:image-src=/,ro" "$image" true
    ) >/dev/null 2>&1 </dev/null
}
