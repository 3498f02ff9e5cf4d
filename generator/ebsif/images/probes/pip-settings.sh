# shellcheck shell=sh
# Print where pip of the image looks for packages, as one configuration file: what counts more comes later.
set -f
for file in "${XDG_CONFIG_DIRS:-/etc/xdg}/pip/pip.conf" /etc/pip.conf "${PIP_CONFIG_FILE:-}"; do
    # pip reads no file at all then
    [ "${PIP_CONFIG_FILE:-}" != /dev/null ] || break
    [ ! -f "$file" ] || { cat "$file" && echo; }
done
echo '[:env:]'
for name in INDEX_URL EXTRA_INDEX_URL FIND_LINKS NO_INDEX; do
    eval "value=\${PIP_$name:-}"
    # shellcheck disable=SC2086,SC2116
    # split: a value of several lines would be several settings
    [ -z "$value" ] || echo "$name = $(echo $value)"
done
