"""Write the files of an attempt to make a module: none stays of one that fails, and none that differs is lost."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from easybuild.easyblocks.generic.container.record import lockfile

from ebsif import files
from ebsif.eb.framework import ModulePlace
from ebsif.environments.extension import Companion, ExtendingError
from ebsif.environments.installing import InUseError
from ebsif.installed import places
from ebsif.report import output

# What to do about a file with other content.
REPLACING = "use --rebuild to replace and install it again, or choose another --name or --date"


@contextlib.contextmanager
def removed_after_failure(*paths: Path) -> Iterator[list[Path]]:
    """
    Yield a list for those of some files that an attempt has written; remove them if it fails (C-04).

    Those that were there before or are in use stay, and all stay after Ctrl-C.
    """
    new, written = [path for path in paths if not path.exists()], list[Path]()
    try:
        yield written
    except InUseError:
        raise
    except Exception:
        for path in new:
            if path in written:
                path.unlink(missing_ok=True)
        raise


def require_unused(place: ModulePlace) -> None:
    """Raise ExtendingError while eb installs a module from an easyconfig that is there: it reads that again."""
    wait = places.in_use(place.module, place.installation) if place.easyconfig.exists() else None
    if wait:
        raise ExtendingError(f"{place.easyconfig} is in use: {wait}")


def write(path: Path, text: str, again: bool, kind: str = "easyconfig", remedy: str = REPLACING) -> None:
    """
    Write an easyconfig or another file; if `again` is true, a different one of that name is renamed first.

    Otherwise raise an error with a remedy.
    """
    for kept in files.write_new({path: text}, aside=again, remedy=remedy):
        report_aside(kept, kind)


def lock_beside(text: str) -> Companion:
    """Return the companion of an easyconfig that is the lock with a text."""
    return Companion(lockfile.COPY_SUFFIX, lambda path, again: write(path, text, again, "lock"))


def set_aside(path: Path, kind: str) -> None:
    """Rename a file that is going to be replaced; say so."""
    report_aside(files.set_aside(path), kind)


def report_aside(path: Path, kind: str) -> None:
    """Say where the earlier file of a kind is now."""
    output.hint(f"the previous {kind} is now {path}")
