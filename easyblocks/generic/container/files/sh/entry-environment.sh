# shellcheck shell=sh
# Print the variables that an entry point sets or changes, as lines NAME=VALUE with line breaks in values replaced by
# carriage returns. Omits variables whose value differs each time.
# Usage: ENTRY_POINT
variables() {
    "$@" env -0 | tr '\n\0' '\r\n' | sort
}
variables >"$TMPDIR/before"
variables "$1" >"$TMPDIR/after"
variables "$1" | comm -12 - "$TMPDIR/after" | comm -13 "$TMPDIR/before" -
