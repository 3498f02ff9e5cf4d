# shellcheck shell=bash
# Sourced by the container runtime whenever a container starts (/.singularity.d/env/98-ebsif.sh): unset the variables
# that the site or the container removes, whether they come from the image or from the caller.
#
# Afterwards the runtime restores the caller's variables, which are in __exported_env__, one per line; those that are
# empty here it unsets.
[ -r /runscripts/distributed.conf ] && while read -r ebsif_word ebsif_name; do
    case $ebsif_word:$ebsif_name in
        # the visible GPUs may differ between processes; conda-python-distributed chooses them for ranks
        unset:*_VISIBLE_DEVICES) ;;
        unset:*)
            unset "$ebsif_name"
            case "
${__exported_env__:-}" in
                *"
$ebsif_name="*) export "$ebsif_name=" ;;
            esac
            ;;
    esac
done </runscripts/distributed.conf
unset ebsif_word ebsif_name
