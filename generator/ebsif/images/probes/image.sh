# shellcheck shell=sh
# Runs in an image for `ebsif show IMAGE`. Prints one line for each finding: name, tab, value. Changes nothing.
say() {
    [ -z "$2" ] || printf '%s\t%s\n' "$1" "$2"
}

for name in PATH WITH_CONDA CONDA_PREFIX VIRTUAL_ENV PYTHONPATH LD_LIBRARY_PATH LD_PRELOAD; do
    eval "say environment.$name \"\${$name:-}\""
done
for file in /opt/rocm/.info/version /opt/rocm-*/.info/version; do
    [ ! -r "$file" ] || { say rocm "$(head -n 1 "$file" | cut -d - -f 1)"; break; }
done
# NVIDIA's images have the version in a variable; in the file, the third number can be the day of the build
cuda=${CUDA_VERSION:-$(sed -n '/"cuda" *:/,/}/s/.*"version" *: *"\([0-9.]*\)".*/\1/p' /usr/local/cuda/version.json 2>/dev/null)}
say cuda "$(echo "$cuda" | sed -n 's/^\([0-9]*\.[0-9]*\)\(\.[0-9]\{1,3\}\)\{0,1\}\(\.[0-9]*\)*$/\1\2/p' | head -n 1)"
# under which NVIDIA publishes the image: NVIDIA_PYTORCH_VERSION=25.03
say release "$(env | sed -n 's/^NVIDIA_[A-Z]*_VERSION=\([0-9]*\.[0-9.]*[0-9]\).*/\1/p' | head -n 1)"
say mpich "$(mpichversion 2>/dev/null | sed -n 's/^MPICH Version:[[:space:]]*//p')"
say openmpi "$(ompi_info --version 2>/dev/null | sed -n 's/^Open MPI v//p')"
say libfabric "$(fi_info --version 2>/dev/null | sed -n 's/^libfabric:[[:space:]]*//p')"
# libraries KIND TESTS...: say the libraries that find finds; wheels in user software have theirs far below it
libraries() {
    kind=$1
    shift
    {
        find /opt /usr/lib /usr/lib64 /usr/local -maxdepth 5 \( "$@" \)
        find /user-software -maxdepth 9 \( "$@" \)
    } 2>/dev/null | sort | while read -r file; do say "$kind" "$file"; done
}
libraries network-library -name 'libmpi.so.*' -o -name 'libfabric.so.*' -o -name 'libcxi.so.*' -o -name 'librccl.so.*' -o \
    -name 'libnccl.so.*'
libraries network-plugin -name 'librccl-net*.so*' -o -name 'libnccl-net*.so*'
for folder in /opt /usr/local /home /root /srv /*conda* /*mamba*; do
    find "$folder" -maxdepth 5 -type d -name conda-meta 2>/dev/null
done | sort -u | while read -r folder; do
    version=$(find "$folder" -name 'python-[0-9]*.json' | sed -n 's#.*/python-\([0-9.]*\)-.*#\1#p' | head -n 1)
    say conda "${folder%/conda-meta} $version"
done
say bash "$(command -v bash)"
say system "$(sed -n 's/^PRETTY_NAME="\{0,1\}\([^"]*\).*/\1/p' /etc/os-release 2>/dev/null)"
# the packages as the image lists them itself, line by line; the last line may be without its end
[ ! -r /.sbom.json ] || { sed 's/^/list	/' /.sbom.json && echo; }
# the last line, which shows that the output is complete
say end yes
