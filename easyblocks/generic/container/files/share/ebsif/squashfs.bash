# Sourced by make-squashfs and unmake-squashfs: functions that leave nothing half-finished behind.
# Needs common.bash, and `ebsif_root`, the installation directory.
ebsif_root=${ebsif_root:?}

# A variable that the person has exported would be exported with our value, too: a list of thousands of files is too long
# for the environment of programs. The others change what bash does.
unset -v POSIXLY_CORRECT TMOUT
while read -r ebsif_name; do
    [[ "$ebsif_name" != [[:lower:]]* ]] || unset -v "$ebsif_name"
done < <(compgen -e)

# Set `place`, the parent directory of user software: the installation, or the user's EBSIF_USER_SOFTWARE.
find_place() {
    place=${EBSIF_USER_SOFTWARE:-$ebsif_root}
    # the module binds this path: it must not depend on the working directory
    [[ "$place" == /* ]] || refuse 2 "EBSIF_USER_SOFTWARE must be a full path: export EBSIF_USER_SOFTWARE='$PWD/$place'"
    # inside a container the directory may be invisible; the commands refuse to run there anyway
    [[ -d "$place" ]] || in_container || refuse 2 "EBSIF_USER_SOFTWARE is not a directory: $place; create it (mkdir), or unset the variable"
}

# Advice for users who can't change the module's user software.
own="to get your own user software, set EBSIF_USER_SOFTWARE to a directory of yours (mkdir DIRECTORY; export EBSIF_USER_SOFTWARE=\$(realpath DIRECTORY)), then run unmake-squashfs and reload the module"

# Create `work`, a temporary directory next to user software, so that the last step is a rename within one file system.
# It is removed however the command ends.
make_work_directory() {
    work=
    trap 'remove_work_directory' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    remove_leftovers
    [[ -w "$place" ]] || refuse 4 "can't write to $place: it is read-only, or you don't have permission; $own"
    work=$(mktemp -d "$place/.${0##*/}.${HOSTNAME:-host}.$$.XXXXXXXX") ||
        refuse 4 "can't write to $place: is the disk or your quota full?"
}

# Remove the temporary directories of the user's killed commands: processes of this machine that no longer exist.
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
        # it may contain directories without write permission
        chmod -R u+rwX -- "$work" 2>/dev/null || true
        rm -rf -- "$work"
    fi
}

# need PROGRAM: stop unless it is on PATH.
need() {
    type -P "$1" >/dev/null ||
        refuse 4 "$1 is not on PATH: install squashfs-tools, or use a node that has it; nothing was changed"
}

# check_readable DIRECTORY: stop unless all of it is readable, because mksquashfs packs unreadable files as empty ones and
# continues. (There is an option against that since 4.3, but it also stops for other reasons.)
check_readable() {
    local unreadable
    unreadable=$(find "$1" \( -type f ! -readable -o -type d \( ! -readable -o ! -executable \) -prune \) -print) ||
        refuse 4 "can't read all of $1; nothing was changed"
    [[ -z "$unreadable" ]] ||
        refuse 4 "can't read $(shorten "$unreadable"): ask their owners for permission (chmod); nothing was changed"
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

# check_complete LIST OTHER [WHY]: stop unless both lists are the same, and show the differences.
check_complete() {
    local different
    different=$(LC_ALL=C comm -3 <(printf '%s\n' "$1") <(printf '%s\n' "$2") | sed 's/^[^/]*//' | sort -u)
    [[ -z "$different" ]] ||
        refuse 4 "${3:-not everything could be read, or files changed meanwhile}; nothing was changed: $(shorten "$different")"
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

# owner PATH: print its owner unless that is the user, so that nobody is told to remove files of others.
owner() {
    [[ -O "$1" ]] || stat -c %U -- "$1"
}

# refuse_existing PATH ADVICE: stop, because the result already exists.
refuse_existing() {
    local others
    others=$(owner "$1")
    [[ -z "$others" || -L "$1" ]] || refuse 3 "$1 exists and belongs to $others; it was not touched; $own"
    refuse 3 "$1 exists: $2; it was not touched"
}

# Set `progress`, options for mksquashfs and unsquashfs, and `chatter`, the target of their standard output: a progress
# bar on a terminal, else nothing. Standard error is kept for the error message.
# shellcheck disable=SC2034  # both are for the command that sources this
show_progress() {
    progress=(-no-progress)
    chatter=/dev/null
    if [[ -t 1 ]]; then
        progress=()
        chatter=/dev/stdout
    fi
}

# run PROGRAM ARGUMENT...: run it, and set `said` to the end of its standard error (in memory: the disk may be full).
run() {
    local status=0
    { said=$("$@" 2>&1 >&3 </dev/null); } 3>"$chatter" || status=$?
    # shellcheck disable=SC2034  # for the command that sources this
    said=$(printf '%s\n' "$said" | tail -n 5)
    return "$status"
}

# True if a group shares this directory: it is group-writable, and new files belong to the group (set-gid).
is_shared() {
    [[ -g "$place" && $(stat -c %A -- "$place") == ?????w* ]]
}

# Test in the background whether zstd can be used, which is ten times faster than gzip at the same size: mksquashfs must
# support it, and the runtime must be able to mount it. The test takes as long as starting a container; packing goes on.
try_zstd() {
    mkdir "$work/empty"
    (mksquashfs "$work/empty" "$work/probe" -comp zstd -no-progress >/dev/null 2>&1 && is_mountable "$work/probe") &
    # shellcheck disable=SC2034  # for the command that sources this
    trial=$!
}

# is_mountable FILE: true if the runtime can mount this SquashFS file, tested with the image of this installation.
is_mountable() {
    local runtime image=${SIF:-} found file=$1
    runtime=$(type -P apptainer) || runtime=$(type -P singularity) || return 1
    for found in "$ebsif_root"/*.sif; do
        image=${image:-$found}
    done
    file=${file//,/\\,}
    file=${file//:/\\:}
    (
        unset {APPTAINER,SINGULARITY}_{BIND,BINDPATH,OVERLAY}
        exec "$runtime" exec --bind "$file:/user-software:image-src=/,ro" "$image" true
    ) >/dev/null 2>&1 </dev/null
}
