#!/usr/bin/env bash
# environments.bash MODULES_TOOL MODULE: print the environment without a container module, an empty entry, and the
# environment with it; a NUL ends each entry.
code=$("$1" bash unload "$2" ${EBSIF_LOADED_MODULE:+"$EBSIF_LOADED_MODULE"}) || exit
eval "$code" >&2
# what the user has set for the runtime, modules merge with their own
unset SIF "${!APPTAINERENV_@}" "${!SINGULARITYENV_@}" APPTAINER_BINDPATH APPTAINER_OVERLAY APPTAINER_NV APPTAINER_ROCM \
    SINGULARITY_BINDPATH SINGULARITY_OVERLAY SINGULARITY_NV SINGULARITY_ROCM
env -0
printf '\0'
code=$("$1" bash load "$2") || exit
eval "$code" >&2 || exit
env -0
