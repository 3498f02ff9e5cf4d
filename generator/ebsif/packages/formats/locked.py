"""What lock files have in common: exact versions with hashes, and conflicts with the packages of the image."""

import functools
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ebsif.packages.formats import toml
from ebsif.packages.formats.wanted import Image, RequirementsError, Wanted

# Hashes that pip checks
ALGORITHMS = ("sha256", "sha384", "sha512")


@dataclass
class Locked:
    """
    Collects what a lock file says, for one image.

    Attributes
    ----------
    path
        The lock file.
    image
        The image.
    """

    path: Path
    image: Image
    lines: dict[str, str] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    conflicts: dict[str, tuple[str, str]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def add(self, name: str, version: str, files: Iterable[tuple[str, Iterable[str]]], url: str = "") -> None:
        """
        Add a package.

        Parameters
        ----------
        name, version
            Normalized name, and exact version.
        files
            Name and hashes, in pip's form (``sha256:...``), of each of its files.
        url
            Where the file is, if it doesn't come from an index.

        Raises
        ------
        RequirementsError
            If it has no hash that pip can check; with hashes for some packages, pip wants them for all.
        """
        hashes = sorted({one for file, found in files if self.is_for_image(file) for one in found
                         if one.split(":")[0] in ALGORITHMS})
        if not hashes:
            raise RequirementsError(f"{self.path} has no file of {name} {version} for this image with a hash that pip "
                                    f"can check ({', '.join(ALGORITHMS)}): lock it again, from an index with hashes")
        if version and self.is_in_image(name, version):
            # pip accepts the package of the image; if it isn't there after all, the index may have it
            url = ""
        what = f"{name} @ {url}" if url else f"{name}=={version}"
        line = " ".join([what, *(f"--hash={one}" for one in hashes)])
        if self.lines.setdefault(name, line) != line:
            raise RequirementsError(f"{self.path} has several versions of {name} for this image: lock it for one "
                                    "environment")

    def is_for_image(self, file: str) -> bool:
        """Return whether a file may be installed in the image: most of the wheels in a lock file are for others."""
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename

        if not file.endswith(".whl"):
            return True
        try:
            tags = parse_wheel_filename(file)[3]
        except InvalidWheelFilename:
            return False
        minor = int(self.image.python.split(".")[1]) if self.image.python else None
        return any(
            (tag.platform == "any" or re.match("(many)?linux", tag.platform))
            and (minor is None or not tag.interpreter.startswith("cp") or tag.interpreter == f"cp3{minor}"
                 or tag.abi == "abi3" and int(tag.interpreter[3:] or 0) <= minor) for tag in tags)

    def is_in_image(self, name: str, version: str) -> bool:
        """Return whether the image is known to have a package; another version is a conflict."""
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        found = self.image.packages.get(name)
        if not found:
            return False
        try:
            # 2.7.1+rocm6.2.4 is 2.7.1
            same = SpecifierSet(f"=={version}").contains(found, prereleases=True)
        except InvalidSpecifier:
            same = found == version
        if not same:
            self.conflicts[name] = (version, found)
        return same

    def leave_out(self, name: str, why: str) -> None:
        """Name a package that is not installed."""
        self.said.append(f"{self.path}: {name} is not installed: {why}")

    def search(self, place: str) -> None:
        """
        Let pip search a directory with packages, or an index of the project, in addition to its own index.

        Other indexes are those that happened to be configured where the file was locked; here, pip's own take their
        place. The hashes tell whether they have the same files.
        """
        parts = urlsplit(place)
        if parts.scheme in ("", "file"):
            folder = self.path.parent / unquote(parts.path)
            folder = (folder if folder.is_dir() else folder.parent).resolve()
            append_new(self.places, f"--find-links {shlex.quote(str(folder))}")
        elif without_credentials(place) in self.declared_indexes:
            append_new(self.places, f"--extra-index-url {place}")
        else:
            append_new(self.unused, place)

    @functools.cached_property
    def declared_indexes(self) -> set[str]:
        """The URLs of the indexes that the project beside the lock file declares."""
        project = self.path.with_name("pyproject.toml")
        try:
            indexes = toml.load(project)["tool"]["uv"]["index"] if project.is_file() else []
            return {without_credentials(one["url"]) for one in indexes}
        except (AttributeError, KeyError, TypeError):  # no such table, or another form, which uv refuses
            return set()

    def wanted(self) -> Wanted:
        """
        Return the requirements.

        Raises
        ------
        RequirementsError
            If the image has other versions, which can't be replaced.
        """
        if self.conflicts:
            conflicts = sorted(self.conflicts.items())
            listed = "".join(f"\n  {name} {version}, but the image has {found}" for name, (version, found) in conflicts)
            # indexes don't have the image's builds (+rocm), but those with the same version fit
            pins = ", ".join(f'"{name}=={found.partition("+")[0]}"' for name, (_, found) in conflicts)
            raise RequirementsError(
                f"{self.path} has other versions than the image, whose packages can't be replaced:{listed}\nLock it "
                f"again with the versions of the image (with uv: constraint-dependencies = [{pins}] in [tool.uv]), or "
                "choose a container that has the locked versions (ebsif list --has NAME==VERSION)")
        return Wanted([*self.places, *(self.lines[name] for name in sorted(self.lines))], [*self.said, *self.notes()])

    def notes(self) -> Iterator[str]:
        """Yield the message on indexes that are not searched."""
        if self.unused:
            yield (f"{self.path}: pip searches the index that it is configured for, not {', '.join(self.unused)} (to "
                   f"add an index, declare it in {self.path.with_name('pyproject.toml')} as [[tool.uv.index]])")


def append_new(items: list[str], item: str) -> None:
    """Append an item to a list that doesn't have it."""
    if item not in items:
        items.append(item)


def without_credentials(url: str) -> str:
    """Return a URL in the form in which lock files of uv have it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


def name_of(place: str) -> str:
    """Return the file name in a URL or path."""
    return unquote(urlsplit(place).path.rsplit("/", 1)[-1])
