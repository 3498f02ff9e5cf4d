"""What is told besides results: hints and commands, as much of it as a person wants."""

import difflib
import shlex
import sys

QUIET, NORMAL, VERBOSE = -1, 0, 1

_level = NORMAL


def set_level(level):
    """Say how much is told from now on: QUIET, NORMAL or VERBOSE."""
    global _level  # noqa: PLW0603 one process, one command line
    _level = level


def plain(text):
    r"""Return somebody else's text so that it can be shown: in one line, control characters as \x1b and the like."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in str(text))


def difference(path, before, after):
    """Print what would change in a file, as `diff -u`; before is None if it is not there."""
    lines = difflib.unified_diff((before or "").splitlines(keepends=True), after.splitlines(keepends=True),
                                 "/dev/null" if before is None else str(path), str(path))
    sys.stdout.writelines(lines)


def size(number):
    """Return a number of bytes as a person reads it (str)."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"


def counted(number, noun):
    """Return how many there are of something (str): 1 error, 2 errors."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def hint(text):
    """Tell a person how to go on, or what was done; not with --quiet. For standard output."""
    if _level > QUIET:
        print(text)


def note(text):
    """Tell what was done or may go wrong, beside a result; not with --quiet. For standard error."""
    if _level > QUIET:
        print(f"ebsif: {text}", file=sys.stderr)


def command(words):
    """Tell which program is going to be run, with --verbose. For standard error."""
    if _level >= VERBOSE:
        print("+ " + " ".join(shlex.quote(str(word)) for word in words), file=sys.stderr)
