# shellcheck shell=sh
# Print the variables that an entry point sets or changes, NAME=VALUE, one a line, a line break in a value as a carriage
# return. Not those that are different each time.
# Usage: ENTRY_POINT
variables() {
    "$@" env -0 | tr '\n\0' '\r\n' | sort
}
variables >"$TMPDIR/before"
variables "$1" >"$TMPDIR/after"
variables "$1" | comm -12 - "$TMPDIR/after" | comm -13 "$TMPDIR/before" -
