# Sourced by make-squashfs and unmake-squashfs: work that leaves nothing half-made behind.
# Needs common.bash, and `root`, the installation directory.
root=${root:?}

# Set `place`, where user software is: the installation, or the directory that the user has named.
find_place() {
    place=${EBSIF_USER_SOFTWARE:-$root}
    # in a container, where it may not be seen, the commands refuse for that reason
    [[ -d "$place" ]] || in_container || refuse 2 "EBSIF_USER_SOFTWARE names no directory: $place; make it (mkdir), or unset the variable"
}

# Make `work`, a directory in that place that disappears however the command ends.
# There, so that the last step is a rename within one file system.
make_work_directory() {
    work=
    trap 'remove_work_directory' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    remove_leftovers
    work=$(mktemp -d "$place/.${0##*/}.${HOSTNAME:-host}.$$.XXXXXXXX") ||
        refuse 4 "can't write in $place: is it read-only, or is the disk or your quota full?"
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

# count_files DIRECTORY: print how many files and directories it holds, itself included.
count_files() {
    find "$1" -printf . | wc -c
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
