# shellcheck shell=sh
# Print those of the names that are no programs in the container.
# Usage: NAME...
for name; do
    command -v "$name" >/dev/null || printf '%s\n' "$name"
done
