"""The packages in a virtual environment, a directory or a SquashFS file, and their exact requirements."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Optional
from urllib.parse import quote, unquote, urlsplit

from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif import files
from ebsif.packages.formats.wanted import RequirementsError, Wanted

# every new venv has these ...
TOOLS = {"pip"}
# ... and up to Python 3.11 these
OLD_TOOLS = {"setuptools", "wheel"}
PACKAGES = re.compile(r"(?:(?P<root>.+)/)?lib/python3\.(?P<minor>\d+)/site-packages")
METADATA = (".dist-info", ".egg-info")


@dataclass
class Tree:
    """The relative paths of all files of an environment, and a directory with the metadata of its packages."""

    paths: set[PurePosixPath]
    folder: Path

    def children(self, folder: PurePosixPath) -> set[PurePosixPath]:
        """Return the paths directly in a folder."""
        return {path for path in self.paths if path.parent == folder}


@dataclass(frozen=True)
class Package:
    """
    An installed package, with name, version and needs from its metadata.

    `line` is the requirement that installs it again, None if nothing can; `said` is what the user should know.
    """

    name: str
    version: str
    line: Optional[str]
    said: Optional[str]
    requires: tuple[str, ...] = ()


def packages(path: Path) -> dict[str, Package]:
    """
    Return all packages in an environment by their normalized name, those for installing others included.

    Raise RequirementsError if it can't be read or contains no environment.
    """
    with opened(path) as tree:
        folder, _ = find(tree, path)
        inside = [package_in(tree.folder / info) for info in sorted(tree.children(folder)) if info.suffix in METADATA]
    return {normal_name(package.name): package for package in inside if package}


def read(path: Path) -> Wanted:
    """
    Return the packages of an environment with exact versions, and those that can't be installed elsewhere.

    Raise RequirementsError if it can't be read, or contains no environment or no packages.
    """
    with opened(path) as tree:
        packages, minor = find(tree, path)
        wanted = Wanted()
        for info in sorted(tree.children(packages)):
            if info.suffix in METADATA:
                add_package(tree.folder / info, minor, wanted)
    if not wanted.lines:
        raise RequirementsError(f"{path} contains no package that pip can install"
                                + "".join(f"\n  {text}" for text in wanted.impossible))
    return wanted


@contextmanager
def opened(path: Path) -> Iterator[Tree]:
    """Yield the files of a directory or SquashFS file."""
    if path.is_dir():
        yield Tree({PurePosixPath(folder).relative_to(path) / name
                    for folder, folders, files in os.walk(path) for name in [*folders, *files]}, path)
        return
    if not path.is_file():
        raise RequirementsError(f"{path} doesn't exist: a directory or a SquashFS file is required")
    lines = unsquash(path, ["-l"]).splitlines()
    paths = {PurePosixPath(line).relative_to("squashfs-root") for line in lines if line.startswith("squashfs-root/")}
    with tempfile.TemporaryDirectory(prefix="ebsif-environment-") as folder:
        place = Path(folder) / "environment"
        metadata = [str(inside) for inside in paths if inside.suffix in METADATA]
        if metadata:
            unsquash(path, ["-no-xattrs", "-no-progress", "-d", str(place)], metadata)
        yield Tree(paths, place)


def unsquash(path: Path, options: list[str], names: Iterable[str] = ()) -> str:
    """Run unsquashfs on a file, with options and names of files in it; return its output."""
    escaped = [re.sub(r"([\\*?\[\]])", r"\\\1", name) for name in names]
    program = shutil.which("unsquashfs")
    if not program:
        raise RequirementsError(f"{path} can't be read: unsquashfs is not on PATH (install squashfs-tools)")
    done = subprocess.run([program, *options, path, *escaped], capture_output=True, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
        raise RequirementsError(f"{path} can't be read as a SquashFS file: {said[-1]}")
    return done.stdout


def find(tree: Tree, path: Path) -> tuple[PurePosixPath, int]:
    """Return the directory of packages of an environment, and the minor version of its Python."""
    folders = {PurePosixPath(match.group("root") or "."): (folder, int(match.group("minor")))
               for folder in tree.paths for match in [PACKAGES.fullmatch(str(folder))] if match}
    # an environment inside another one belongs to a package
    outer = [root for root in folders if not any(other in root.parents for other in folders)]
    # user software of a module: its venv, whatever else somebody has put there
    outer = [root for root in outer if root.parent == PurePosixPath("venv")] or outer
    if not outer:
        raise RequirementsError(f"{path} contains no Python environment (lib/python3.*/site-packages)")
    if len(outer) > 1:
        raise RequirementsError(f"{path} contains several environments ({', '.join(sorted(map(str, outer)))}): use "
                                "the directory of one (unpack a SquashFS file with unsquashfs)")
    return folders[outer[0]]


def add_package(folder: Path, minor: int, wanted: Wanted) -> None:
    """Add the package whose metadata is in a folder, or the reason why it can't be installed elsewhere."""
    package = package_in(folder)
    if not package:
        wanted.impossible.append(f"{folder.name}: no name or version in its metadata, not taken over")
        return
    if normal_name(package.name) in TOOLS | (OLD_TOOLS if minor < 12 else set()):
        return
    if package.line:
        wanted.lines.append(package.line)
    if package.said:
        wanted.impossible.append(f"{package.name} {package.version}: {package.said}")


def package_in(folder: Path) -> Optional[Package]:
    """Return the package whose metadata is in a folder, None if it has no name or version."""
    # takes long to import, and isn't needed when the Tab key is pressed
    from email.parser import HeaderParser

    metadata = HeaderParser().parsestr(text_of(folder / "METADATA") or text_of(folder / "PKG-INFO") or text_of(folder))
    name, version = metadata["Name"], metadata["Version"]
    return Package(name, version, *requirement(name, version, text_of(folder / "direct_url.json")),
                   tuple(metadata.get_all("Requires-Dist", []))) if name and version else None


def text_of(path: Path) -> str:
    """Return the text of a file; empty if it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def requirement(name: str, version: str, direct_url: str) -> tuple[Optional[str], Optional[str]]:
    """
    Return the requirement for a package (None if there is none), and a message for the user.

    `direct_url` is where pip got the package (PEP 610); empty if it came from an index.
    """
    exact = f"{name}=={version}"
    if not direct_url:
        return exact, None
    try:
        origin = json.loads(direct_url)
        url, source = origin["url"], origin.get("vcs_info")
        editable = origin.get("dir_info", {}).get("editable")
        part = f"#subdirectory={quote(origin['subdirectory'])}" if "subdirectory" in origin else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return exact, "its direct_url.json can't be read: this version comes from the package index"
    if source:
        return f"{name} @ {source['vcs']}+{url}@{source['commit_id']}{part}", None
    if editable:
        return None, f"installed in development mode (pip install -e) from {url}, not taken over"
    if not url.startswith("file:"):
        return f"{name} @ {url}{part}", None
    path = Path(unquote(urlsplit(url).path))
    if files.is_there(path):
        return (path.as_uri() if " " in str(path) else str(path)), None
    return exact, f"{path}, which it was installed from, no longer exists: this version comes from the package index"
