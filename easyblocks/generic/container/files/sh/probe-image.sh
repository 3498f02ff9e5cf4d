# shellcheck shell=sh
# Print whether the image has bash and python3, and the output of installed-packages.py, which is standard input.
# Meanwhile copy its databases of packages, its labels, the paths of its Conda environments and some of its variables to a
# directory, and run a command that makes a venv, whose output and exit status are put there as well.
# Usage: BLOCKS DIRECTORY ROOT "VARIABLE..." [COMMAND...]

# No file gets larger than BLOCKS of 512 bytes, as much as eb reads. Some shells end if they can't set a limit.
# shellcheck disable=SC3045  # all shells have it
! (ulimit -f "$1") 2>/dev/null || ulimit -f "$1"
shift

if [ $# -gt 3 ]; then
    {
        folder=$1
        shift 3
        "$@" >"$folder/output" 2>"$folder/errors"
        echo $? >"$folder/status"
    } &
fi

for name in bash python3; do
    printf '%s\t%s\n' "$name" "$(command -v "$name")"
done

# an image may lack any of these programs
{
    for file in "$2/etc/os-release" "$2/.sbom.json" "$2/.singularity.d/labels.json"; do
        [ ! -r "$file" ] || cat "$file" >"$1/${file##*/}"
    done
    # status.d: images without a package manager; they have checksums there, too
    for file in "$2/var/lib/dpkg/status" "$2"/var/lib/dpkg/status.d/*; do
        [ ! -f "$file" ] || [ "${file%.md5sums}" != "$file" ] || { cat "$file" && echo; } >>"$1/dpkg"
    done
    for file in "$2/lib/apk/db/installed" "$2/usr/lib/apk/db/installed"; do
        # one may be a link to the other
        [ ! -f "$file" ] || cat "$file" >"$1/apk"
    done
    if [ -d "$2/var/lib/rpm" ] || [ -d "$2/usr/lib/sysimage/rpm" ]; then
        rpm -qa --queryformat '%{NAME}==%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\n' >"$1/rpm"
    fi
    # without reading the files, which also list all files of the packages
    python=$(command -v python3)
    for folder in "${CONDA_PREFIX:-}" "${python%/bin/python3}" "$2" "$2"/*conda* "$2"/*mamba* "$2/opt" "$2"/opt/* \
        "$2"/opt/*/envs/* "$2/usr/local" "$2"/usr/local/*conda* "$2"/root/*conda*; do
        for file in "$folder"/conda-meta/*.json; do
            [ ! -f "$file" ] || echo "$file"
        done
    done >"$1/conda"
    for name in $3; do
        eval "value=\${$name-}"
        # shellcheck disable=SC2154
        [ -z "$value" ] || printf '%s\t%s\n' "$name" "$value"
    done >"$1/variables"
    for folder in "$2"/*conda*/envs/* "$2"/*mamba*/envs/* "$2"/opt/*/envs/* "$2"/usr/local/*conda*/envs/* \
        "$2"/root/*conda*/envs/*; do
        [ ! -x "$folder/bin/python3" ] || echo "$folder"
    done >"$1/environments"
} 2>/dev/null &

# the image may be usable even if its Python isn't
! command -v python3 >/dev/null || python3 - || :

wait
