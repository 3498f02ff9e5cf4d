"""The disk space of installations, in which files that they share by hard links count once."""

import os
from collections.abc import Iterable
from pathlib import Path


def sizes(roots: Iterable[Path]) -> tuple[list[int], int]:
    """Return the bytes on disk in each directory, and in all of them together."""
    everything: dict[tuple[int, int], int] = {}
    each = []
    for root in roots:
        inside: dict[tuple[int, int], int] = {}
        for folder, _, names in os.walk(root):
            for name in [".", *names]:
                try:
                    status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 hundreds of thousands of files
                except OSError:  # removed in this moment
                    continue
                inside[status.st_dev, status.st_ino] = status.st_blocks * 512
        each.append(sum(inside.values()))
        everything.update(inside)
    return each, sum(everything.values())
