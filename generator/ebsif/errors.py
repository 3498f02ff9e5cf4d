"""Errors that users see as a message, without a traceback."""

import os
import sys

# Exit statuses besides 0, the same for all commands.
FOUND, USAGE, FAILED = 1, 2, 3


class EbsifError(Exception):
    """An error that a user can cause; the message says what is wrong, where, and what to do."""

    status = FAILED


class UsageError(EbsifError):
    """The command line is incomplete or contradicts itself; the message says what to write."""

    status = USAGE


def how_to_add(library: str) -> str:
    """Return how to install a library that ebsif can do without (str): beside it, or elsewhere."""
    pip = f"{sys.executable} -m pip install"
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return f"run `{pip} {library}`"
    # ebsif is a module, for example; an exported variable would reach containers
    return (
        f"run `{pip} --target DIRECTORY {library}`, and put `PYTHONPATH=DIRECTORY:$PYTHONPATH` before this "
        "command, or ask the site for it"
    )
