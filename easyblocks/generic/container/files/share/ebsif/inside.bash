# Sourced by a wrapper that is called inside a container: run the container's program of the same name. Needs `root`, the
# installation directory.

root=${root:?}
# shellcheck source=common.bash
source "$root/share/ebsif/common.bash"
name=${0##*/}
refuse_other_container
IFS=:
for folder in $PATH; do
    if [[ -x "$folder/$name" && ! "$folder" -ef "$root/bin" && ! "$folder" -ef "$root/interpreter" ]]; then
        exec "$folder/$name" "$@"
    fi
done
refuse 127 "the container has no such program"
