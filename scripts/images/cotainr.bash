# shellcheck shell=bash
# Like images built by cotainr (https://github.com/DeiC-HPC/cotainr, 2023 to 2025): Conda in /opt/conda with one
# environment, which a script in the image activates, and cotainr's labels. Instead of Conda it has a shell function that
# only supports `conda activate`.
make_root() {
    debian python3 python3-venv bash dash coreutils
    local prefix=/opt/conda/envs/conda_container_env wheel
    lay_out_python "$prefix"
    for wheel in "${root:?}"/usr/share/python-wheels/{pip,setuptools}-*.whl; do
        in_root "$prefix/bin/python" -m zipfile -e "${wheel#"$root"}" "$prefix/lib/python${python:?}/site-packages"
    done
    mkdir -p "$root/opt/conda/etc/profile.d"
    cat >"$root/opt/conda/etc/profile.d/conda.sh" <<'END'
export CONDA_EXE=/opt/conda/bin/conda CONDA_PYTHON_EXE=/opt/conda/bin/python
conda() {
    export CONDA_DEFAULT_ENV=$2 CONDA_PREFIX=/opt/conda/envs/$2 CONDA_SHLVL=1
    export PATH="$CONDA_PREFIX/bin:/opt/conda/condabin:$PATH"
}
END
    printf '%s\n' 'source /opt/conda/etc/profile.d/conda.sh' 'conda activate conda_container_env' \
        >"$root/.singularity.d/env/92-cotainr-env.sh"
    cat >"$root/.singularity.d/labels.json" <<'END'
{
  "cotainr.command": "cotainr build my.sif --base-image=docker://debian --conda-env=my.yml",
  "cotainr.version": "2025.3.0",
  "cotainr.url": "https://github.com/DeiC-HPC/cotainr"
}
END
}
