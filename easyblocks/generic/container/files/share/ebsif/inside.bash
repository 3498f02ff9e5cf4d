# Sourced by a wrapper that is called in a container: become the program of the container that has its name. Needs
# `root`, the installation directory.

root=${root:?}
# shellcheck source=common.bash
source "$root/share/ebsif/common.bash"
name=${0##*/}
container=${APPTAINER_CONTAINER:-${SINGULARITY_CONTAINER:-unknown}}
# the text as well: the image itself need not be seen in the container
[[ -n "${SIF:-}" && ("$container" == "$SIF" || "$container" -ef "$SIF") ]] || refuse 1 \
    "this is another container ($container), and no container can be started in it: leave it first"
IFS=:
for folder in $PATH; do
    if [[ -x "$folder/$name" && ! "$folder" -ef "$root/bin" ]]; then
        exec "$folder/$name" "$@"
    fi
done
refuse 127 "there is no such program in the container"
