"""Read what a release says about an image in files beside it: its SHA256, and its packages.

The LUMI AI Factory, for example, publishes NAME.md with the output of sha256sum, and NAME.json with the packages.
"""

import contextlib
import re
from pathlib import Path, PurePath
from typing import NamedTuple, Optional, Union

from ebsif.images.inspection import read_packages

# A line of sha256sum.
SUM = re.compile(r"^([0-9a-f]{64}) [ *](?:\./)?([^\n]+?)\r?$", re.MULTILINE)

LARGEST = 64_000_000  # bytes of a file that is read


class Stated(NamedTuple):
    """The SHA256 of an image, and the file or URL that states it."""

    sha256: str
    place: Union[Path, str]


def stated_beside(image: Path) -> Optional[Stated]:
    """Return the SHA256 of an image that a file beside it states; None if none does, or if two disagree."""
    names = (f"{image.stem}.md", f"{image.name}.sha256", f"{image.stem}.sha256", "SHA256SUMS", "sha256sum.txt")
    found = [Stated(digest, file) for file in map(image.with_name, names) for digest, name in SUM.findall(text_of(file))
             if PurePath(name).name == image.name]
    return found[0] if len({one.sha256 for one in found}) == 1 else None


def packages_beside(image: Path) -> tuple[dict[str, dict[str, str]], Path]:
    """Return the versions of the packages that a file beside an image lists, by kind and name, and that file."""
    bill = image.with_suffix(".json")
    return read_packages(text_of(bill)), bill


def text_of(path: Path) -> str:
    """Return the text of a file; '' if there is none, or it can't be read or is too large."""
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size <= LARGEST:
            return path.read_text(encoding="utf-8", errors="replace")
    return ""
