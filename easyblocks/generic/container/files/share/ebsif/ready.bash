# Sourced before starting the runtime: check that the module of this installation (`ebsif_root`) is loaded, and set
# `ebsif_runtime`.
# shellcheck source=without-host-modules.bash
[[ -z "${EBSIF_OWN_MODULES:-}" ]] || source "${ebsif_root:?}/share/ebsif/without-host-modules.bash"
if [[ "${CONTAINERROOT:-}" -ef "${ebsif_root:?}" && -f "${SIF:-}" && "${EBSIF_LOADED_MODULE:-}" && -e "${EBSIF_MOUNTED_USER_SOFTWARE:-$SIF}" ]]; then
    unset -f apptainer singularity
    for ebsif_runtime in apptainer singularity; do
        ! hash "$ebsif_runtime" 2>/dev/null || return 0
    done
fi

# Slow path: explain what is missing. Bash reads this only if the checks above failed; keep those short, a thousand
# characters take 5 % of the start-up time (docs/performance.md). The runtime's own errors would be less helpful.
# shellcheck source=common.bash
source "$ebsif_root/share/ebsif/common.bash"
place=$(cd -- "$ebsif_root" && pwd)
printf -v alone '%q' "$place/bin/with-module"
[[ -n "${SIF:-}" && -n "${CONTAINERROOT:-}" ]] ||
    refuse 1 "load the module of this container first (SIF or CONTAINERROOT is not set), or put $alone before the command"
[[ "$CONTAINERROOT" -ef "$ebsif_root" ]] ||
    refuse 1 "this command belongs to the installation $place, but the loaded module is the one of $CONTAINERROOT"
# as modules written by hand leave them
[[ -n "${EBSIF_LOADED_MODULE:-}" ]] ||
    refuse 1 "the module was installed again after it was loaded here: reload it (module unload NAME; module load NAME)"
[[ -f "$SIF" ]] ||
    refuse 1 "the image $SIF is missing: reload the module ($ebsif_reload) to use the site's copy, if there is one"
[[ -e "${EBSIF_MOUNTED_USER_SOFTWARE:-$SIF}" ]] ||
    refuse 1 "$EBSIF_MOUNTED_USER_SOFTWARE was removed after the module was loaded: reload the module ($ebsif_reload)"
refuse 127 "neither apptainer nor singularity is on PATH: on a cluster, try a compute node, or load the site's module for the runtime"
