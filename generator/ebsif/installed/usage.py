"""The disk space of installations, in which files that they share by hard links count once."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Optional


def sizes(roots: Iterable[Path]) -> tuple[list[int], int]:
    """Return the bytes on disk in each directory, and in all of them together."""
    everything: dict[tuple[int, int], int] = {}
    each = []
    for root in roots:
        inside = files_in(root)
        each.append(sum(inside.values()))
        everything.update(inside)
    return each, sum(everything.values())


def sizes_for(account: int, roots: Iterable[Path]) -> list[int]:
    """Return the bytes on disk in each directory that belong to an account; shared files count in the first one."""
    seen: set[tuple[int, int]] = set()
    each = []
    for root in roots:
        inside = files_in(root, account)
        each.append(sum(size for file, size in inside.items() if file not in seen))
        seen.update(inside)
    return each


def size_of(root: Path) -> int:
    """Return the number of bytes that removing a directory frees; files with hard links elsewhere don't count."""
    names: dict[tuple[int, int], list[int]] = {}
    for folder, _, entries in os.walk(root):
        for entry in entries:
            status = os.lstat(os.path.join(folder, entry))  # noqa: PTH118 hundreds of thousands of files
            count = names.setdefault((status.st_dev, status.st_ino), [status.st_nlink, status.st_blocks * 512])
            count[0] -= 1
    return sum(size for left, size in names.values() if left == 0)


def files_in(root: Path, account: Optional[int] = None) -> dict[tuple[int, int], int]:
    """Return the bytes on disk of the files in a directory (if an account is given, of its files), by inode."""
    inside: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(root):
        for name in [".", *names]:
            try:
                status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 hundreds of thousands of files
            except OSError:  # removed in this moment
                continue
            if account in (None, status.st_uid):
                inside[status.st_dev, status.st_ino] = status.st_blocks * 512
    return inside
