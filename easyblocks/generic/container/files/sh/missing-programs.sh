# shellcheck shell=sh
# Print the names for which there is no program in the container.
# Usage: NAME...
for name; do
    command -v "$name" >/dev/null || printf '%s\n' "$name"
done
