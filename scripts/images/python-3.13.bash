# shellcheck shell=bash disable=SC2034
# For `make test-pythons`: Debian trixie with Python 3.13, and nothing else that a test could use by accident.
suite=trixie
make_root() {
    debian base-files bash dash coreutils findutils grep sed git python3 python3-venv
}
