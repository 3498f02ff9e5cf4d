# Sourced by a wrapper that is called inside a container: run the container's program of the same name. Needs `root`, the
# installation directory.

root=${root:?}
# shellcheck source=common.bash
source "$root/share/ebsif/common.bash"
name=${0##*/}
container=${APPTAINER_CONTAINER:-${SINGULARITY_CONTAINER:-unknown}}
# also compare the paths: the image may not be visible in the container
[[ -n "${SIF:-}" && ("$container" == "$SIF" || "$container" -ef "$SIF") ]] || refuse 1 \
    "this is another container ($container), and containers can't be nested: leave it first"
IFS=:
for folder in $PATH; do
    if [[ -x "$folder/$name" && ! "$folder" -ef "$root/bin" ]]; then
        exec "$folder/$name" "$@"
    fi
done
refuse 127 "the container has no such program"
