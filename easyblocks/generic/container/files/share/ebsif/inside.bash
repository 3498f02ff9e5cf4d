# Sourced by a wrapper that is called inside a container: run the container's program of the same name. Needs `root`, the
# installation directory.

root=${root:?}
# shellcheck source=common.bash
source "$root/share/ebsif/common.bash"
name=${0##*/}
refuse_other_container

# True for a file that `ebsif python --write` has written: it would start the caller again.
starts_the_caller() {
    local line
    {
        IFS= read -r line && [[ "$line" == '#!/bin/bash -p' ]] &&
            IFS= read -r line && [[ "$line" == *"written by \`ebsif python\`." ]]
    } <"$1"
}

IFS=:
for folder in $PATH; do
    if [[ -x "$folder/$name" && ! "$folder" -ef "$root/bin" && ! "$folder" -ef "$root/interpreter" ]] &&
        ! starts_the_caller "$folder/$name"; then
        exec "$folder/$name" "$@"
    fi
done
refuse 127 "the container has no such program"
