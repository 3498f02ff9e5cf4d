# shellcheck shell=bash
# Python in a venv, /opt/venv, which the image activates, as in many Docker images, and a Python like Conda's. Both have
# the programs `tell`, an entry point, and `tell-script`, a script: they print the Python that runs them and their child
# processes, and all of these must see a package of the user's. `tell-system` is for another Python.
make_root() {
    debian python3 python3-venv bash dash coreutils
    local wheel prefix packages
    local conda=/opt/miniconda3
    lay_out_python "$conda/envs/pytorch"
    mkdir -p "${root:?}$conda/bin"
    install -m 755 "${recipe:?}/activate" "$root$conda/bin/activate"
    printf "export WITH_CONDA='source %s/bin/activate pytorch'\n" "$conda" >"$root/.singularity.d/env/10-conda.sh"
    in_root python3 -m venv --without-pip /opt/venv
    # shellcheck disable=SC2016
    printf 'export PATH="/opt/venv/bin:$PATH" VIRTUAL_ENV=/opt/venv\n' >"$root/.singularity.d/env/91-venv.sh"
    for prefix in /opt/venv "$conda/envs/pytorch"; do
        packages=$prefix/lib/python${python:?}/site-packages
        for wheel in "$root"/usr/share/python-wheels/{pip,setuptools}-*.whl; do
            in_root "$prefix/bin/python" -m zipfile -e "${wheel#"$root"}" "$packages"
        done
        add_programs "$prefix/bin" "$packages"
    done
}

# add_programs DIRECTORY PACKAGES: add the programs and files that pip would have installed for a package.
add_programs() {
    local info=$root$2/tell-1.0.dist-info
    cat >"$root$2/tell.py" <<'EOF'
import multiprocessing
import subprocess
import sys

CODE = "import sys, byhand; print(sys.prefix)"


def where(_):
    import byhand
    return sys.prefix


def main():
    import byhand
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        started = pool.map(where, [0])
    for python in (sys.executable, "python"):
        child = subprocess.run([python, "-c", CODE], stdout=subprocess.PIPE, check=True, universal_newlines=True)
        started.append(child.stdout.strip())
    print(sys.prefix, *started)


if __name__ == "__main__":
    main()
EOF
    mkdir "$info"
    printf 'Metadata-Version: 2.1\nName: tell\nVersion: 1.0\n' >"$info/METADATA"
    printf '[console_scripts]\ntell = tell:main\n' >"$info/entry_points.txt"
    printf 'tell.py,,\n../../../bin/tell,,\n' >"$info/RECORD"
    printf '#!%s/python\nimport tell\n\ntell.main()\n' "$1" >"$root$1/tell"
    { printf '#!%s/python\n' "$1"; cat "$root$2/tell.py"; } >"$root$1/tell-script"
    { printf '#!/usr/bin/python3\n'; cat "$root$2/tell.py"; } >"$root$1/tell-system"
    chmod 755 "$root$1"/tell*
}
