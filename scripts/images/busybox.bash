# shellcheck shell=bash
# No bash and no Python, as images for one program are: busybox alone.
make_root() {
    debian busybox-static
    local name
    for name in $("${root:?}/bin/busybox" --list); do
        [[ $name == busybox ]] || ln -s busybox "$root/bin/$name"
    done
    printf 'PRETTY_NAME="busybox"\n' >"$root/etc/os-release"
}
