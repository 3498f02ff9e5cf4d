"""Compute the SHA256 of an image, with progress, and tell how a file differs from the image of a record."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Optional

from easybuild.easyblocks.generic.container import sif
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


def sha256_unsigned(path: Path) -> str:
    """
    Return the SHA256 that a signed image had before, unless it had been changed since the runtime made it.

    Signing adds objects at the end, fills rows of the table, and changes time, free rows and size in the header.
    """
    with path.open("rb") as image:
        header = list(sif.HEADER.unpack(image.read(sif.HEADER.size)))
        created, number, start, begin = header[4], header[7], header[8], header[10]
        image.seek(start)
        table, end, rows = image.read(min(number, sif.MOST) * sif.DESCRIPTOR.size), begin, []
        for place in range(0, len(table) - sif.DESCRIPTOR.size + 1, sif.DESCRIPTOR.size):
            row = table[place:place + sif.DESCRIPTOR.size]
            kind, used, _, _, _, first, size, *_ = sif.DESCRIPTOR.unpack(row)
            if used and kind != sif.SIGNATURE:
                end = max(end, first + size)
            rows.append(row if kind != sif.SIGNATURE else bytes(sif.DESCRIPTOR.size))
        header[5:7] = created, sum(not any(row) for row in rows)
        header[11] = end - begin
        image.seek(sif.HEADER.size)
        head = sif.HEADER.pack(*header) + image.read(start - sif.HEADER.size) + b''.join(rows)
        digest, left = hashlib.sha256(head), end - len(head)
        image.seek(len(head))
        while left > 0:
            block = image.read(min(BLOCK, left))
            if not block:
                break
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


class Difference(NamedTuple):
    """How a file differs from the image of a record: truncated, replaced, signed or altered; what both have."""

    how: str
    figures: str


def difference(path: Path, size: Optional[int], sha256: Optional[str],
               digest: Optional[Callable[[Path], str]] = None) -> Optional[Difference]:
    """
    Return how a file differs from an image with that size and SHA256, as far as these are known; None if it doesn't.

    The whole file is read by `digest`, if that is given, and if signatures were added since. Raise OSError if it can't
    be read.
    """
    found = path.stat().st_size
    different = different_size(found, size)
    if different and size and found > size and sha256 and sif.signers(path) and sha256_unsigned(path) == sha256:
        return different._replace(how="signed")
    if different or not (digest and sha256):
        return different
    actual = digest(path)
    return None if actual == sha256 else Difference("altered", f"its SHA256 is {actual}, not {sha256}")


def different_size(size: int, recorded: Optional[int]) -> Optional[Difference]:
    """Return how an image of a size differs from that of a record; None if it doesn't, or the record has no size."""
    if recorded in (None, size):
        return None
    return Difference("truncated" if size < (recorded or 0) else "replaced", f"it has {size} bytes, not {recorded}")
