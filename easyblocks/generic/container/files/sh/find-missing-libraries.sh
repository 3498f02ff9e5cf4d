# shellcheck shell=sh
# Print the libraries that programs of packages need and that aren't found, each with the program.
# Usage: PACKAGE...
for package; do
    dpkg -L "$package" 2>/dev/null
done | grep -E '^(/usr)?/s?bin/.' | while read -r program; do
    ldd "$program" 2>/dev/null | while read -r library arrow rest; do
        [ "$arrow $rest" != '=> not found' ] || printf '%s of %s\n' "$library" "$program"
    done
done
