"""Compute the SHA256 of an image, with progress."""

import hashlib
from pathlib import Path

from easybuild.easyblocks.generic.container.texts import format_size

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
