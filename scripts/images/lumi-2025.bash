# shellcheck shell=bash
# As AMD's images for LUMI since 2025: a Conda environment that the image activates itself. Of the packages that its
# record lists (PyTorch 2.7.1 of August 2025) there are names and versions only, and of their programs ones that say by
# which Python they are run.
make_root() {
    debian python3 python3-venv bash dash coreutils
    local prefix=/opt/miniconda3/envs/pytorch packages wheel name version
    lay_out_python "$prefix"
    packages=$prefix/lib/python${python:?}/site-packages
    for wheel in "${root:?}"/usr/share/python-wheels/{pip,setuptools}-*.whl; do
        in_root "$prefix/bin/python" -m zipfile -e "${wheel#"$root"}" "$packages"
    done
    while read -r name version; do
        mkdir "$root$packages/$name-$version.dist-info"
        printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$name" "$version" \
            >"$root$packages/$name-$version.dist-info/METADATA"
    done <<'END'
torch 2.7.1+gitc717e12
deepspeed 0.17.4
flash_attn 2.7.3
transformers 4.55.3
vllm 0.10.1+rocm624
xformers 0.0.32+09d42ac5.d20250822
END
    # its Python is 3.12, which Debian doesn't have
    ln -s python3 "$root$prefix/bin/python3.12"
    for name in accelerate huggingface-cli ray torchrun; do
        printf '#!%s/bin/python\nimport sys\nprint(sys.prefix)\n' "$prefix" >"$root$prefix/bin/$name"
    done
    for name in pip pip3 pip3.12; do
        printf '#!%s/bin/python\nfrom pip._internal.cli.main import main\nmain()\n' "$prefix" >"$root$prefix/bin/$name"
    done
    chmod 755 "$root$prefix"/bin/*
    # shellcheck disable=SC2016
    printf 'export PATH="%s/bin:$PATH" CONDA_PREFIX=%s CONDA_DEFAULT_ENV=pytorch CONDA_SHLVL=1\n' "$prefix" "$prefix" \
        >"$root/.singularity.d/env/91-conda.sh"
}
