# Sourced before the runtime is started, if the image has modules of its own (`own_modules`): takes the host's modules
# out of the environment, because programs in the container would find neither them nor what they refer to. Keeps what
# the container module has set, and the variables that EBSIF_OWN_MODULES refers to.

ebsif_of_host() {
    local name
    local -a listed
    local -A kept
    IFS=, read -r -a listed <<<"${!EBSIF_OWN_MODULES:-}"
    for name in "${listed[@]}" ${!APPTAINER*} ${!SINGULARITY*} ${!EBSIF*} ${!SIF*} ${!RUNSCRIPTS*} CONTAINERROOT; do
        [[ ! "$name" =~ ^[A-Za-z_][A-Za-z0-9_]*$ || ! -v "$name" ]] || kept[$name]=${!name}
    done
    if [[ -x "${LMOD_CMD:-}" ]]; then
        eval "$("$LMOD_CMD" bash --force purge)"
        eval "$("${LMOD_CMD%/*}/clearLMOD_cmd" --shell bash --full --quiet)"
    elif [[ -r "${MODULES_CMD:-}" ]]; then
        eval "$("$MODULES_CMD" bash purge --force)"
        # shellcheck disable=SC2086  # names
        unset MODULEPATH LOADEDMODULES _LMFILES_ MODULESHOME MODULES_CMD ${!__MODULES_*}
    fi
    for name in "${!kept[@]}"; do
        export "$name=${kept[$name]}"
    done
}

# In the container, the runtime takes the binds out of the environment: for containers that are started from there, in
# steps of a job for instance.
EBSIF_BINDS=${APPTAINER_BIND:-${SINGULARITY_BIND:-}},${APPTAINER_BINDPATH:-${SINGULARITY_BINDPATH:-}}
export EBSIF_BINDS=${EBSIF_BINDS#,}

# The modules may be those of the container already, in a job that was submitted there. Then the programs that they
# provide should be found too, but the runtime begins with the search paths of the image.
if [[ -n "${EBSIF_MODULES_OF:-}" && "$EBSIF_MODULES_OF" == "${EBSIF_LOADED_MODULE:-}" ]]; then
    export APPTAINERENV_PATH=$PATH SINGULARITYENV_PATH=$PATH
    export APPTAINERENV_LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-} SINGULARITYENV_LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
else
    ebsif_of_host
fi
