# shellcheck shell=bash disable=SC2034
# For `make test-pythons`: Debian bullseye with Python 3.9, with PyPy for Python 3.7, and with the programs that unit
# tests use. Nothing else that a test could use by accident: no runtime, no modules tool.
suite=bullseye
make_root() {
    debian base-files bash dash coreutils findutils grep sed git tar gzip squashfs-tools gcc libc6-dev \
        python3 python3-venv pypy3
    # the runtime adds the account to it
    printf 'root:x:0:0:root:/root:/bin/bash\n' >"${root:?}/etc/passwd"
}
