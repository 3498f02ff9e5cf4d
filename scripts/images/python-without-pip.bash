# shellcheck shell=bash
# Python in a venv created without pip, as uv does, from a Python without ensurepip that the distribution manages: the
# image contains no program that could install a package.
make_root() {
    debian python3 bash dash coreutils
    in_root python3 -m venv --without-pip /opt/venv
    local packages=${root:?}/opt/venv/lib/python${python:?}/site-packages
    mkdir "$packages/shipped-1.0.dist-info"
    printf 'Metadata-Version: 2.1\nName: shipped\nVersion: 1.0\n' >"$packages/shipped-1.0.dist-info/METADATA"
    printf 'shipped.py,,\nshipped-1.0.dist-info/RECORD,,\n' >"$packages/shipped-1.0.dist-info/RECORD"
    printf '__version__ = "1.0"\n' >"$packages/shipped.py"
    # shellcheck disable=SC2016
    printf 'export PATH="/opt/venv/bin:$PATH" VIRTUAL_ENV=/opt/venv\n' >"$root/.singularity.d/env/91-venv.sh"
}
