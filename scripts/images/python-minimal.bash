# shellcheck shell=bash
# An incomplete Python: Debian's python3-minimal, without the modules json, venv and ensurepip.
make_root() {
    debian python3-minimal bash dash coreutils
}
