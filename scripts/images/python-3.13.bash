# shellcheck shell=bash disable=SC2034
# For `make test-pythons`: Debian trixie with Python 3.13, and nothing else that a test could use by accident.
suite=trixie
make_root() {
    # libstdc++6 is for pyzmq
    debian base-files bash dash coreutils findutils grep sed git libstdc++6 python3 python3-venv
}
