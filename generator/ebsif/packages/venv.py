"""The packages in a virtual environment, a directory or a SquashFS file, and their exact requirements."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Optional
from urllib.parse import quote, unquote, urlsplit

from easybuild.easyblocks.generic.container.newest import natural
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif import files
from ebsif.packages.wanted import RequirementsError, WantedPackages

# every new venv has these ...
TOOLS = {"pip"}
# ... and up to Python 3.11 these
OLD_TOOLS = {"setuptools", "wheel"}
# a venv, a directory with one, the user software of a module
PACKAGES = [f"{above}lib/python3.*/site-packages" for above in ("", "*/", "*/*/")]
METADATA = (".dist-info", ".egg-info")


@dataclass(frozen=True)
class VenvPackage:
    """
    An installed package, with name, version and needs from its metadata.

    `line` is the requirement that installs it again, None if nothing can; `said` is what the user should know. What
    it was installed from is `gone` if that's no longer there.
    """

    name: str
    version: str
    line: Optional[str]
    said: Optional[str]
    requires: tuple[str, ...] = ()
    gone: Optional[Path] = None


def packages(path: Path) -> dict[str, VenvPackage]:
    """Return all packages in an environment by their normalized name, those for installing others included."""
    with opened(path) as folder:
        inside = [package_in(info) for info in metadata_in(site_packages(folder, path))]
    return {normal_name(package.name): package for package in inside if package}


def read(path: Path) -> WantedPackages:
    """Return the packages of an environment with exact versions, and those that can't be installed elsewhere."""
    wanted = WantedPackages()
    with opened(path) as folder:
        place = site_packages(folder, path)
        tools = TOOLS | (OLD_TOOLS if int(place.parent.name.rpartition(".")[2]) < 12 else set())
        for info in metadata_in(place):
            package = package_in(info)
            if not package:
                wanted.impossible.append(f"{info.name}: no name or version in its metadata, not taken over")
            elif normal_name(package.name) not in tools:
                wanted.lines += [package.line] if package.line else []
                wanted.impossible += [f"{package.name} {package.version}: {package.said}"] if package.said else []
    if not wanted.lines:
        raise RequirementsError(
            f"{path} contains no package that pip can install" + "".join(f"\n  {text}" for text in wanted.impossible)
        )
    return wanted


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """Yield a directory, or one with the metadata of the packages in a SquashFS file."""
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise RequirementsError(f"{path} doesn't exist: a directory or a SquashFS file is required")
    program = shutil.which("unsquashfs")
    if not program:
        raise RequirementsError(f"{path} can't be read: unsquashfs is not on PATH (install squashfs-tools)")
    with tempfile.TemporaryDirectory(prefix="ebsif-environment-") as work:
        folder = Path(work, "environment")
        patterns = [f"{packages}/*{suffix}" for packages in PACKAGES for suffix in METADATA]
        done = subprocess.run(
            [program, "-no-xattrs", "-no-progress", "-d", folder, path, *patterns],
            text=True,
            capture_output=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
            raise RequirementsError(f"{path} can't be read as a SquashFS file: {said[-1]}")
        yield folder


def site_packages(folder: Path, path: Path) -> Path:
    """Return the directory of packages of the environment in a folder; raise RequirementsError unless there is one."""
    # of an environment that was upgraded, the newest Python
    places = {
        place.parents[2]: place
        for pattern in PACKAGES
        for place in sorted(folder.glob(pattern), key=lambda one: natural(str(one)))
    }
    # user software of a module: its venv, whatever else somebody has put there
    roots = [root for root in places if root.parent == folder / "venv"] or list(places)
    if not roots:
        raise RequirementsError(f"{path} contains no Python environment (lib/python3.*/site-packages)")
    if len(roots) > 1:
        listed = ", ".join(sorted(str(root.relative_to(folder)) for root in roots))
        raise RequirementsError(
            f"{path} contains several environments ({listed}): use the directory of one (unpack a "
            "SquashFS file with unsquashfs)"
        )
    return places[roots[0]]


def metadata_in(place: Path) -> list[Path]:
    """Return the files or directories with metadata in a directory of packages."""
    return sorted(info for info in place.iterdir() if info.suffix in METADATA)


def package_in(folder: Path) -> Optional[VenvPackage]:
    """Return the package whose metadata is in a folder, None if it has no name or version."""
    # takes long to import, and isn't needed when the Tab key is pressed
    from email.parser import HeaderParser

    metadata = HeaderParser().parsestr(text_of(folder / "METADATA") or text_of(folder / "PKG-INFO") or text_of(folder))
    name, version = metadata["Name"], metadata["Version"]
    if not (name and version):
        return None
    line, said, gone = requirement(name, version, text_of(folder / "direct_url.json"))
    return VenvPackage(name, version, line, said, tuple(metadata.get_all("Requires-Dist", [])), gone)


def directory_of(package: VenvPackage) -> Optional[Path]:
    """Return the directory of the project that a package was built from, if it is there; None for others."""
    line = package.line or ""
    path = Path(unquote(urlsplit(line).path) if line.startswith("file:") else line)
    return path if "/" in line and path.is_dir() else None


def text_of(path: Path) -> str:
    """Return the text of a file; empty if it is none, as a pipe, or can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except (OSError, ValueError):
        return ""


def requirement(name: str, version: str, direct_url: str) -> tuple[Optional[str], Optional[str], Optional[Path]]:
    """
    Return the requirement for a package (None if there is none), a message for the user, and what is gone.

    `direct_url` is where pip got the package (PEP 610); empty if it came from an index.
    """
    exact = f"{name}=={version}"
    if not direct_url:
        return exact, None, None
    try:
        origin = json.loads(direct_url)
        url, source = str(origin["url"]), origin.get("vcs_info")
        commit = f"{source['vcs']}+{url}@{source['commit_id']}" if source else ""
        editable = origin.get("dir_info", {}).get("editable")
        part = f"#subdirectory={quote(origin['subdirectory'])}" if "subdirectory" in origin else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return exact, "its direct_url.json can't be read: this version comes from the package index", None
    if commit:
        return f"{name} @ {commit}{part}", None, None
    if editable:
        return None, f"installed in development mode (pip install -e) from {url}, not taken over", None
    if not url.startswith("file:"):
        return f"{name} @ {url}{part}", None, None
    path = Path(unquote(urlsplit(url).path))
    if files.is_there(path):
        return (path.as_uri() if " " in str(path) else str(path)), None, None
    said = f"{path}, which it was installed from, no longer exists: this version comes from the package index"
    return exact, said, path
