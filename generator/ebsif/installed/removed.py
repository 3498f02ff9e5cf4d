"""The names of modules that were removed today: files that were made with one must not find another module there."""

import contextlib
import time
from pathlib import Path

from ebsif import files
from ebsif.eb import framework

TODAY = "%Y%m%d"


def remember(module: str) -> None:
    """Keep the name of a removed module if it has the date of today: tomorrow no new one gets that name."""
    if time.strftime(TODAY) in module:
        # the module is removed all the same
        with contextlib.suppress(OSError):
            files.replace(place(), "".join(f"{one}\n" for one in sorted({*of_today(), module})), shared=True)


def of_today() -> set[str]:
    """Return the names of the modules that were removed today and have its date."""
    try:
        names = place().read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {name for name in names if time.strftime(TODAY) in name}


def place() -> Path:
    """Return the file with the names, beside the installations: other accounts may install there, too."""
    return framework.prefix()[0] / ".ebsif-removed"
