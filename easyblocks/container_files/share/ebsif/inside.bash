# Sourced by a wrapper that is called in a container: become the program of the container that has its name. Needs
# `root`, the installation directory.

root=${root:?}
# shellcheck source=common.bash
source "$root/share/ebsif/common.bash"
name=${0##*/}
[[ -n "${SIF:-}" && "${APPTAINER_CONTAINER:-${SINGULARITY_CONTAINER:-}}" == "$SIF" ]] || refuse 1 \
    "this is another container (${APPTAINER_CONTAINER:-${SINGULARITY_CONTAINER:-unknown}}), and no container can be started in it: leave it first"
IFS=:
for folder in $PATH; do
    if [[ -x "$folder/$name" && ! "$folder" -ef "$root/bin" ]]; then
        exec "$folder/$name" "$@"
    fi
done
refuse 127 "there is no such program in the container"
