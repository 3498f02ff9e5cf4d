"""Compute the SHA256 of an image, with progress, and tell how a file differs from the image of a record."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Optional

from easybuild.easyblocks.generic.container.values import format_size

from ebsif import processes
from ebsif.report.steps import Now, Steps

BLOCK = 4 * 1024 * 1024  # bytes
LONG = 20 * BLOCK  # the size of files that take long


def sha256(path: Path, what: str = "the image") -> str:
    """Return the SHA256 of a file; show progress if it is large, and what it is."""
    digest, done, size = hashlib.sha256(), 0, path.stat().st_size

    def progress() -> Now:
        return Now(f"{format_size(done)} of {format_size(size)}", done, size)

    with path.open("rb") as image, Steps(size > LONG) as steps:
        steps.begin(f"SHA256 of {what}", important=False, watch=progress)
        for block in iter(lambda: image.read(BLOCK), b""):
            processes.stop_if_ending()
            digest.update(block)
            done += len(block)
    return digest.hexdigest()


class Difference(NamedTuple):
    """How a file differs from the image of a record: truncated, replaced or altered; what both have."""

    how: str
    figures: str


def of_size(found: int, size: int) -> Difference:
    """Return how a file of another size than the image of a record differs from it."""
    return Difference("truncated" if found < size else "replaced", f"it has {found} bytes, not {size}")


def difference(
    path: Path, size: Optional[int], sha256: Optional[str], digest: Optional[Callable[[Path], str]] = None
) -> Optional[Difference]:
    """
    Return how a file differs from an image with that size and SHA256, as far as these are known; None if it doesn't.

    The whole file is read by `digest`, if that is given. Raise OSError if it can't be read.
    """
    found = path.stat().st_size
    if size not in (None, found):
        return of_size(found, size or 0)
    actual = digest(path) if digest and sha256 else sha256
    return None if actual == sha256 else Difference("altered", f"its SHA256 is {actual}, not {sha256}")
