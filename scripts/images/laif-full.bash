# shellcheck shell=bash
# Like the `full` images of the LUMI AI Factory: laif.bash with apt, as in their Ubuntu, and with stand-ins for packages of
# the image in https://github.com/lumi-ai-factory/laifs-container-recipes/issues/24, of the same versions and requirements
# (vllm and compressed-tensors didn't fit together there either), and for tqdm, as in LUMI-AI-Guide issue 106.
# shellcheck source=laif.bash
source "${here:?}/images/laif.bash"
made_from+=("$here/images/laif.bash")

make_root() {
    install_debian minbase python3 python3-venv ca-certificates
    # shellcheck disable=SC2016  # dpkg-query's own variables
    dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Package} ${Version}\n' >"${work:?}/apt"
    in_root python3 -m venv /opt/venv
    install_entry_point
    install_oci_settings
    install_torch_standin
    add_package tqdm 4.67.3
    add_package hf-xet 1.4.2
    compiled hf_xet
    add_package huggingface-hub 0.36.2 'hf-xet<2.0.0,>=1.1.3' 'tqdm>=4.42.1'
    add_package transformers 4.57.6 'huggingface-hub<1.0,>=0.34.0' 'tqdm>=4.27'
    add_package compressed-tensors 0.14.1a20260317 'transformers<5.0.0' torch
    add_package llmcompressor 0.10.0.2.dev0+lumi.aif.6a6cfec 'transformers<=4.57.6,>=4.56.1' compressed-tensors
    add_package vllm 0.16.0+lumi.aif.gfx90a.89a77b1 'transformers<5,>=4.56.0' 'compressed-tensors==0.13.0' torch
    compiled vllm
    write_sbom
}

# add_package NAME VERSION REQUIREMENT...: add a stand-in: a module with its version, and what pip knows of it.
add_package() {
    local name=$1 version=$2 requirement module=${1//-/_}
    local packages=$root/opt/venv/lib/python${python:?}/site-packages
    local info=$packages/$module-$version.dist-info
    mkdir -p "$packages/$module" "$info"
    printf '__version__ = "%s"\n' "$version" >"$packages/$module/__init__.py"
    {
        printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$name" "$version"
        for requirement in "${@:3}"; do printf 'Requires-Dist: %s\n' "$requirement"; done
    } >"$info/METADATA"
    printf '%s,,\n' "$module/__init__.py" "$module-$version.dist-info/METADATA" >"$info/RECORD"
}

# compiled MODULE: let a stand-in have a compiled extension.
compiled() {
    local packages=$root/opt/venv/lib/python$python/site-packages
    : >"$packages/$1/_C.abi3.so"
    printf '%s,,\n' "$1/_C.abi3.so" >>"$(echo "$packages/$1"-*.dist-info)/RECORD"
}
