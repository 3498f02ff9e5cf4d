# Sourced by commands that need no loaded module: set the environment of the module of this installation (`ebsif_root`),
# without a modules tool, and of the environment in EBSIF_VENV, if any. In the module's own container there is nothing to do.
# shellcheck source=common.bash
source "${ebsif_root:?}/share/ebsif/common.bash"
if in_container; then
    refuse_other_container
else
    [[ -r "$ebsif_root/share/ebsif/module.conf" ]] || refuse 1 \
        "$ebsif_root/share/ebsif/module.conf is missing: write the module again with eb --module-only --force, or load it"
    # shellcheck source=container.sh
    source "$ebsif_root/share/ebsif/container.sh" load || exit 1
    if [[ -n "${EBSIF_VENV:-}" ]]; then
        [[ -r "$EBSIF_VENV/bin/activate" ]] || refuse 1 "the environment $EBSIF_VENV doesn't exist any more"
        # its module is loaded, whatever the modules tool says; it would load another one
        module() {
            refuse 1 "the environment $EBSIF_VENV belongs to the module ${_EBSIF_MODULE:-}, not to $EBSIF_LOADED_MODULE"
        }
        # shellcheck source=/dev/null
        LOADEDMODULES=$EBSIF_LOADED_MODULE source "$EBSIF_VENV/bin/activate" || exit 1
        # other modules may be used by what is started
        unset EBSIF_VENV
    fi
fi
