# shellcheck shell=bash
# Sourced by the container runtime at each start of a container (/.singularity.d/env/98-ebsif.sh): unset the variables
# that site and container take away, whether they come from the image or from the caller.
#
# The runtime puts the caller's variables back afterwards, apart from those that have an empty value here: these it
# unsets. What it puts back is in __exported_env__, one in a line.
[ -r /runscripts/distributed.conf ] && while read -r ebsif_word ebsif_name; do
    case $ebsif_word:$ebsif_name in
        # which GPUs are seen is a choice for each process; conda-python-distributed makes it for ranks
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
