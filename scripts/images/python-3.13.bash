# shellcheck shell=bash disable=SC2034
# For `make test-pythons`: Debian trixie with Python 3.13 and the programs that unit tests use, and nothing else that a
# test could use by accident.
suite=trixie
make_root() {
    # libstdc++6 is for pyzmq
    debian base-files bash dash coreutils findutils grep sed git tar gzip squashfs-tools gcc libc6-dev libstdc++6 \
        python3 python3-venv
    # the runtime adds the account to it
    printf 'root:x:0:0:root:/root:/bin/bash\n' >"${root:?}/etc/passwd"
}
