# shellcheck shell=bash
# Python in a Conda-like environment with constraints of the image for pip and uv, as in NVIDIA's images (PIP_CONSTRAINT):
# they pin its packages `pure`, which is pure Python, and `native`, which is compiled.
make_root() {
    debian python3 python3-venv bash dash coreutils
    local prefix=/opt/miniconda3/envs/pytorch
    lay_out_python "$prefix"
    local packages=${root:?}$prefix/lib/python${python:?}/site-packages name wheel
    for wheel in "$root"/usr/share/python-wheels/{pip,setuptools}-*.whl; do
        in_root "$prefix/bin/python" -m zipfile -e "${wheel#"$root"}" "${packages#"$root"}"
    done
    for name in pure native; do
        mkdir "$packages/$name-1.0.dist-info"
        printf 'Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n' "$name" >"$packages/$name-1.0.dist-info/METADATA"
        printf '__version__ = "1.0"\n' >"$packages/$name.py"
        printf '%s.py,,\n%s-1.0.dist-info/RECORD,,\n' "$name" "$name" >"$packages/$name-1.0.dist-info/RECORD"
    done
    printf 'native_parts.so,,\n' >>"$packages/native-1.0.dist-info/RECORD"
    : >"$packages/native_parts.so"
    # so that the runtime can add the account
    touch "$root"/etc/{passwd,group}
    mkdir "$root/etc/pip"
    printf 'pure==1.0\nnative==1.0\n' >"$root/etc/pip/constraint.txt"
    {
        # shellcheck disable=SC2016
        printf 'export PATH="%s/bin:$PATH"\n' "$prefix"
        printf 'export %s=/etc/pip/constraint.txt\n' PIP_CONSTRAINT PIP_BUILD_CONSTRAINT UV_CONSTRAINT UV_OVERRIDE
    } >"$root/.singularity.d/env/90-environment.sh"
}
