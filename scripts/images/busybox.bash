# shellcheck shell=bash
# Only busybox: no bash and no Python, like images for a single program.
make_root() {
    debian busybox-static
    local name
    for name in $("${root:?}/bin/busybox" --list); do
        [[ $name == busybox ]] || ln -s busybox "$root/bin/$name"
    done
    printf 'PRETTY_NAME="busybox"\n' >"$root/etc/os-release"
}
