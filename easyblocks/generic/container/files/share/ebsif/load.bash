# Sourced by commands that need no loaded module: set the environment of the module of this installation (`root`), without
# a modules tool. In the module's own container there is nothing to do.
# shellcheck source=common.bash
source "${root:?}/share/ebsif/common.bash"
if in_container; then
    refuse_other_container
else
    [[ -r "$root/share/ebsif/environment.sh" ]] || refuse 1 \
        "$root/share/ebsif/environment.sh is missing: write the module again with eb --module-only --force, or load it"
    # shellcheck source=/dev/null
    source "$root/share/ebsif/environment.sh" load || exit 1
fi
