"""Ask a person at a terminal."""

import sys

from ebsif.errors import EbsifError


def confirmed(question: str, without_terminal: EbsifError) -> bool:
    """Return whether the user confirms at a terminal; raise an error where there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise without_terminal
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
