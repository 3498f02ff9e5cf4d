"""Read what a release says about an image in files beside it: its SHA256, and its packages.

The LUMI AI Factory, for example, publishes NAME.md with the output of sha256sum, and NAME.json with the packages.
"""

import contextlib
import re
from pathlib import Path
from typing import NamedTuple, Optional

from ebsif.image.packages import read_packages

# A line of sha256sum.
SUM = re.compile(r"^([0-9a-f]{64}) [ *](?:.*/)?([^/\n]+)$", re.MULTILINE)

LARGEST = 64_000_000  # bytes of a file that is read


class Stated(NamedTuple):
    """The SHA256 of an image, and the file that states it."""

    sha256: str
    path: Path


def stated_sha256(image: Path) -> Optional[Stated]:
    """Return the SHA256 that a file beside an image states; None if there is none, or if two disagree."""
    names = [image.with_suffix(".md"), Path(f"{image}.sha256"), image.with_suffix(".sha256"),
             image.with_name("SHA256SUMS"), image.with_name("sha256sum.txt"), *sorted(image.parent.glob("*.sha256"))]
    stated = [Stated(digest, path) for path in dict.fromkeys(names) for digest, name in SUM.findall(text_of(path))
              if name == image.name]
    return stated[0] if len({one.sha256 for one in stated}) == 1 else None


def packages_beside(image: Path) -> dict[str, dict[str, str]]:
    """Return the versions of the packages that the file beside an image lists, by kind and name."""
    return read_packages(text_of(image.with_suffix(".json")))


def text_of(path):
    """Return the text of a file; '' if there is none, or it can't be read or is too large."""
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size <= LARGEST:
            return path.read_text(encoding="utf-8", errors="replace")
    return ""
