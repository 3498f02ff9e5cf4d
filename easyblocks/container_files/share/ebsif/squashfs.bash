# Sourced by make-squashfs and unmake-squashfs: work that leaves nothing half-made behind.
# Needs common.bash, and `root`, the installation directory.
root=${root:?}

# Make `work`, a directory in the installation that disappears however the command ends.
# In the installation, so that the last step is a rename within one file system.
make_work_directory() {
    work=
    trap 'remove_work_directory' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    work=$(mktemp -d "$root/.${0##*/}.XXXXXXXX") ||
        refuse 4 "can't write in $root: is it read-only, or is the disk or your quota full?"
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
