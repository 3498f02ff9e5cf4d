# shellcheck shell=sh
# Print the mode and path of directories.
# Usage: DIRECTORY...
for path; do
    printf '%s %s\n' "$(stat -c %a "$path" 2>/dev/null || echo 755)" "$path"
done
