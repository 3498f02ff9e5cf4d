# Sourced by a wrapper that is called inside a container: run the container's program of the same name. Needs
# `ebsif_root`, the installation directory.

ebsif_root=${ebsif_root:?}
# shellcheck source=common.bash
source "$ebsif_root/share/ebsif/common.bash"
ebsif_name=${0##*/}
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
for ebsif_folder in $PATH; do
    if [[ -x "$ebsif_folder/$ebsif_name" && ! "$ebsif_folder" -ef "$ebsif_root/bin" &&
        ! "$ebsif_folder" -ef "$ebsif_root/interpreter" ]] &&
        ! starts_the_caller "$ebsif_folder/$ebsif_name"; then
        exec "$ebsif_folder/$ebsif_name" "$@"
    fi
done
refuse 127 "the container has no such program"
