# shellcheck shell=bash disable=SC2034
# For `make test-pythons`: Debian bullseye with Python 3.9, and with PyPy for Python 3.7. Nothing else that a test could
# use by accident: no runtime, no modules tool.
suite=bullseye
make_root() {
    debian base-files bash dash coreutils findutils grep sed git python3 python3-venv pypy3
}
