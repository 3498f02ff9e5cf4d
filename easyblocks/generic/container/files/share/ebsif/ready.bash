# Sourced before the runtime is started: is the module of this installation (`root`) loaded? Sets `runtime`.
if [[ "${CONTAINERROOT:-}" -ef "${root:?}" && -f "${SIF:-}" && -e "${EBSIF_MOUNTED_USER_SOFTWARE:-$SIF}" ]]; then
    unset -f apptainer singularity
    for runtime in apptainer singularity; do
        ! hash "$runtime" 2>/dev/null || return 0
    done
fi

# From here on only what was wrong is said: before every start of a container bash reads what is above, and a thousand
# characters are a twentieth of its time (docs/performance.md). No program is started: `hash` looks on PATH. The runtime
# itself would only say that something can't be mounted.
# shellcheck source=common.bash
source "$root/share/ebsif/common.bash"
[[ -n "${SIF:-}" && -n "${CONTAINERROOT:-}" ]] || refuse 1 "load the module of this container first: SIF is not set"
[[ "$CONTAINERROOT" -ef "$root" ]] ||
    refuse 1 "this is a command of the installation $root, but the module that is loaded is that of $CONTAINERROOT"
[[ -f "$SIF" ]] ||
    refuse 1 "the image $SIF is gone: reload the module ($anew), it then uses the site's copy if there is one"
[[ -e "${EBSIF_MOUNTED_USER_SOFTWARE:-$SIF}" ]] ||
    refuse 1 "$EBSIF_MOUNTED_USER_SOFTWARE is gone since the module was loaded: reload the module ($anew)"
refuse 127 "neither apptainer nor singularity is on PATH; on a cluster, try this on a compute node or load the site's module for it"
