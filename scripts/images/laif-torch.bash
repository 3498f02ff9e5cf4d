# shellcheck shell=bash disable=SC2034
# Like laif.bash, but for jobs: with the example image's PyTorch for CPUs, MPICH, and a runscript that does what the entry
# point does, as in the Factory's images until April 2026. Debian bookworm, Python 3.11.
# shellcheck source=laif.bash
source "${here:?}/images/laif.bash"
made_from+=("$here/images/laif.bash")
suite=bookworm
python=3.11

make_root() {
    lay_out_image mpich
    printf '#!/bin/sh\nexec /opt/oci-entrypoint.sh "$@"\n' >"$root/.singularity.d/runscript"
    copy_torch
    write_sbom
}

# Copy packages from the example image, which has the same Python, and change its programs to run the venv's. The venv
# keeps its own pip.
copy_torch() {
    local image packages=/opt/venv/lib/python$python/site-packages
    image=$("$here/build-example-image")
    # shellcheck disable=SC2016
    "${runtime:?}" --silent exec --no-home --bind "$root/opt/venv:/opt/venv" "$image" bash -euc '
        shopt -s extglob
        cp -a "$1"/lib/python*/site-packages/!(@(pip|setuptools|wheel|_distutils_hack|pkg_resources|distutils)*) "$2"
        for program in "$1"/bin/*; do
            [[ -e /opt/venv/bin/${program##*/} || $program == */wheel ]] || ! grep -q "^#!$1/bin/" "$program" ||
                sed "1s|.*|#!/opt/venv/bin/python|" "$program" >"/opt/venv/bin/${program##*/}"
        done' bash "${prefix:?}" "$packages"
    chmod 755 "$root"/opt/venv/bin/*
}
