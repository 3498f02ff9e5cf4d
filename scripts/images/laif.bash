# shellcheck shell=bash disable=SC2034
# Like images of the LUMI AI Factory (https://github.com/Lumi-supercomputer/LUMI-AI-Guide, 2026), which are OCI images:
# the distribution's Python, externally managed, and a venv in /opt/venv, which the image activates only by PATH; a list
# of all packages in /.sbom.json; an entry point that sets variables by rank. Here with Debian trixie's Python 3.13, and
# with a fake torch, whose torchrun starts a program once.
suite=trixie
python=3.13
torch_standin=2.10.0+rocm7.0

make_root() {
    lay_out_image grep
    install_torch_standin
    write_sbom
}

# lay_out_image PACKAGE...: install everything except torch, and these packages of Debian.
lay_out_image() {
    debian_with_list python3 python3-venv bash dash coreutils sed "$@"
    in_root python3 -m venv /opt/venv
    install_entry_point
    install_oci_settings
}

# debian_with_list PACKAGE...: like `debian`, and write name and version of each installed package to a line of $work/apt.
debian_with_list() {
    # shellcheck disable=SC2016  # mmdebstrap runs the hook with the root file system as $1
    install_debian extract "$@" --extract-hook='for file in "$1"/var/cache/apt/archives/*.deb; do
            dpkg-deb -W --showformat "\${Package} \${Version}\n" "$file"; done >"$1.apt"'
    mv "${root:?}.apt" "${work:?}/apt"
    mkdir -p "$root"/{etc,proc,sys,root,tmp,var/tmp}
    printf 'root:x:0:0:root:/root:/bin/bash\n' >"$root/etc/passwd"
    printf 'root:x:0:\n' >"$root/etc/group"
    # pip reads this file at start
    mkdir -p "$root/etc/ssl/certs"
    cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
}

# Like the Factory's: one device for each rank if the job asks for it, and a workaround for jobs on one node.
install_entry_point() {
    cat >"$root/opt/oci-entrypoint.sh" <<'END'
#!/bin/sh
if [ "${SLURM_NNODES:-}" = 1 ] && [ -z "${SLURM_GPUS_ON_NODE:-}" ]; then
    export FI_HMEM_DISABLE_P2P=1
fi
if [ "${ROCR_USE_SLURM_LOCALID:-}" = 1 ]; then
    export ROCR_VISIBLE_DEVICES="$SLURM_LOCALID"
fi
if [ "${MAP_HIP_TO_ROCR_VISIBLE_DEVICES:-}" = 1 ]; then
    export HIP_VISIBLE_DEVICES="$ROCR_VISIBLE_DEVICES"
fi
exec "$@"
END
    chmod 755 "$root/opt/oci-entrypoint.sh"
}

# Add the environment and the runscript that the container runtime creates from an OCI image's settings, by converting
# an empty image with these settings.
install_oci_settings() {
    local layout=$work/oci environment=(
        PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
        # ends in a colon, as in the Factory's images, from a variable that is empty during the build
        "PYTHONPATH=/opt/venv/lib/python${python:?}/site-packages:"
        MPIR_CVAR_CH4_OFI_ENABLE_HMEM=1 MPIR_CVAR_CH4_OFI_ENABLE_MR_HMEM=1 MPIR_CVAR_ENABLE_GPU=1)
    mkdir -p "$layout/blobs/sha256" "$layout/empty"
    tar -C "$layout/empty" -cf "$layout/layer.tar" .
    printf '{"architecture": "%s", "os": "linux", "config": {"Entrypoint": ["/opt/oci-entrypoint.sh"],
        "Cmd": ["/bin/bash"], "Env": [%s]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
        "$(dpkg --print-architecture)" "$(json_list "${environment[@]}")" "$(sha256 "$layout/layer.tar")" >"$layout/config"
    printf '{"schemaVersion": 2, "config": %s, "layers": [%s]}' "$(blob config image.config.v1+json)" \
        "$(blob layer.tar image.layer.v1.tar)" >"$layout/manifest"
    printf '{"schemaVersion": 2, "manifests": [%s]}' "$(blob manifest image.manifest.v1+json)" >"$layout/index.json"
    printf '{"imageLayoutVersion": "1.0.0"}' >"$layout/oci-layout"
    "${runtime:?}" --silent build --sandbox "$work/settings" "oci:$layout"
    mkdir -p "$root/.singularity.d/env"
    cp -p "$work/settings/.singularity.d/env/10-docker2singularity.sh" "$root/.singularity.d/env"
    cp -p "$work/settings/.singularity.d/runscript" "$root/.singularity.d"
}

json_list() {
    printf '"%s"\n' "$@" | paste -sd,
}

sha256() {
    local digest
    digest=$(sha256sum "$1")
    printf '%s' "${digest%% *}"
}

# blob FILE TYPE: add a file to the layout; print its descriptor.
blob() {
    local digest
    digest=$(sha256 "$layout/$1")
    cp "$layout/$1" "$layout/blobs/sha256/$digest"
    printf '{"mediaType": "application/vnd.oci.%s", "digest": "sha256:%s", "size": %d}' "$2" "$digest" \
        "$(stat -c %s "$layout/$1")"
}

install_torch_standin() {
    local packages=$root/opt/venv/lib/python$python/site-packages
    local info=$packages/torch-$torch_standin.dist-info
    mkdir -p "$packages/torch/distributed" "$info"
    printf '__version__ = "%s"\n' "$torch_standin" >"$packages/torch/__init__.py"
    : >"$packages/torch/distributed/__init__.py"
    cat >"$packages/torch/distributed/run.py" <<'END'
import os
import sys


def main():
    program = os.environ.get("PYTHON_EXEC", sys.executable)
    os.execv(program, [program, *sys.argv[1:]])
END
    printf 'Metadata-Version: 2.1\nName: torch\nVersion: %s\n' "$torch_standin" >"$info/METADATA"
    printf '[console_scripts]\ntorchrun = torch.distributed.run:main\n' >"$info/entry_points.txt"
    printf 'pip\n' >"$info/INSTALLER"
    printf '%s,,\n' torch/__init__.py torch/distributed/{__init__,run}.py ../../../bin/torchrun \
        "${info##*/}"/{METADATA,entry_points.txt,INSTALLER,RECORD} >"$info/RECORD"
    cat >"$root/opt/venv/bin/torchrun" <<'END'
#!/opt/venv/bin/python3
import sys
from torch.distributed.run import main
if __name__ == "__main__":
    sys.exit(main())
END
    chmod 755 "$root/opt/venv/bin/torchrun"
}

write_sbom() {
    {
        printf '{"apt": ['
        sed 's/\(.*\) \(.*\)/{"name": "\1", "version": "\2"}/' "$work/apt" | paste -sd,
        printf '], "pip": '
        in_root /opt/venv/bin/python -m pip --disable-pip-version-check list --format json
        printf '}\n'
    } >"$root/.sbom.json"
}
