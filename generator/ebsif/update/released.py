"""Read what a release says about an image in files beside it: its SHA256, and its packages.

The LUMI AI Factory, for example, publishes NAME.md with the output of sha256sum, and NAME.json with the packages.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, NamedTuple, Optional

from ebsif.images.packages import read_packages

# A line of sha256sum.
SUM = re.compile(r"^([0-9a-f]{64}) [ *](?:.*/)?([^/\n]+?)\r?$", re.MULTILINE)
OF_SUMS = ".sha256"

LARGEST = 64_000_000  # bytes of a file that is read


class Stated(NamedTuple):
    """The SHA256 of an image, and the file that states it."""

    sha256: str
    place: Any


@dataclass(frozen=True)
class Release:
    """
    The files beside an image, in a directory or on a web server.

    Attributes
    ----------
    name
        File name of the image.
    places
        Where the files are, by their names.
    read
        Returns the text of a file at such a place; '' if it can't be read.
    """

    name: str
    places: Mapping[str, Any]
    read: Callable[[Any], str]

    @classmethod
    def in_directory(cls, image: Path) -> "Release":
        """Return the files beside an image in a directory."""
        beside = []
        with contextlib.suppress(OSError):
            beside = list(image.parent.iterdir())
        return cls(image.name, {path.name: path for path in beside}, text_of)

    @cached_property
    def stated(self) -> Optional[Stated]:
        """The SHA256 that a file states; None if none does, or if two disagree."""
        found = [Stated(digest, self.places[file]) for file in self.sums()
                 for digest, name in SUM.findall(self.read(self.places[file])) if name == self.name]
        return found[0] if len({one.sha256 for one in found}) == 1 else None

    def sums(self) -> Iterator[str]:
        """Yield the names of the files that may state the SHA256, beginning with those that are named as the image."""
        own = dict.fromkeys((self.beside(".md"), self.name + OF_SUMS, self.beside(OF_SUMS), "SHA256SUMS",
                             "sha256sum.txt"))
        # not those of the other images
        others = [file for file in sorted(self.places) if file.endswith(OF_SUMS) and not {
            file[:-len(OF_SUMS)], PurePath(file).with_suffix(".sif").name} & self.places.keys()]
        yield from (file for file in dict.fromkeys([*own, *others]) if file in self.places)

    @property
    def bill(self) -> Any:
        """Where the list of packages is, None if there is none."""
        return self.places.get(self.beside(".json"))

    @property
    def packages(self) -> dict[str, dict[str, str]]:
        """The versions of the packages that the release lists, by kind and name."""
        return read_packages(self.read(self.bill)) if self.bill else {}

    def beside(self, suffix):
        """Return the name of the file with another suffix than the image (str)."""
        return PurePath(self.name).with_suffix(suffix).name


def text_of(path):
    """Return the text of a file; '' if there is none, or it can't be read or is too large."""
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size <= LARGEST:
            return path.read_text(encoding="utf-8", errors="replace")
    return ""
