"""Read lock files: pylock.toml (PEP 751), and uv.lock, which uv writes as such a file."""

import functools
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import unquote, urlsplit

from easybuild.easyblocks.generic.container.written import escape

from ebsif import processes
from ebsif.packages.formats import pyproject
from ebsif.packages.wanted import Choice, KnownImage, RequirementsError, WantedPackages

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from packaging.pylock import Package

# Hashes that pip checks
ALGORITHMS = ("sha256", "sha384", "sha512")
HEXADECIMAL = re.compile(r"[0-9a-fA-F]+\Z")
# for uv, which only reads the file
SECONDS = 300
# only what was named: neither the project itself nor the groups that uv installs by default; nothing is looked up
UV_EXPORT = (
    "export",
    "--frozen",
    "--offline",
    "--quiet",
    "--no-emit-project",
    "--no-default-groups",
    "--format",
    "pylock.toml",
)


def wanted_by(
    content: dict[str, Any], folder: Path, project: dict[str, Any], image: KnownImage, choice: Choice
) -> WantedPackages:
    """
    Return the locked packages that an image needs, with their hashes.

    `folder` has the lock file, and `project` is the content of the pyproject.toml there, if there is one.
    """
    packages = packages_in(content, image, choice)
    wanted = Locked(folder, project, image).wanted(packages)
    groups, defaults = (content.get(name) or [] for name in ("dependency-groups", "default-groups"))
    wanted.offered = Choice(content.get("extras") or [], [name for name in groups if name not in defaults])
    return wanted


def read_uv(folder: Path, project: dict[str, Any], image: KnownImage, choice: Choice) -> WantedPackages:
    """
    Return the locked packages of a project that an image needs; see `wanted_by`.

    Packages of the image need nothing that it lacks, so what only they need is left out, unless another version is
    locked.
    """
    chosen = [
        word
        for option, names in (("--extra", choice.extras), ("--group", choice.groups))
        for name in names
        for word in (option, name)
    ]
    packages = packages_in(exported(folder, chosen), image, Choice())
    there = [
        package.name for package in packages if is_same(str(package.version or ""), image.packages.get(package.name))
    ]
    if there:
        pruned = [word for name in there for word in ("--prune", name)]
        needed = {package.name for package in packages_in(exported(folder, [*chosen, *pruned]), image, Choice())}
        packages = [package for package in packages if package.name in {*needed, *there}]
    wanted = Locked(folder, project, image).wanted(packages)
    wanted.offered = pyproject.offered(project)
    return wanted


def exported(folder: Path, options: Sequence[str]) -> dict[str, Any]:
    """Return the uv.lock in a directory as the content of a pylock.toml; raise RequirementsError if uv can't."""
    program = shutil.which("uv")
    if not program:
        raise RequirementsError(
            "needs uv, which is not on PATH: install it for yourself (`python3 -m pip install --user uv`, and add "
            "~/.local/bin to PATH), or write a requirements.txt where it is (`uv export -o requirements.txt`)"
        )
    # paths in its output are relative to the directory where uv works
    done = processes.run([program, *UV_EXPORT, *options, "--directory", folder.absolute()], SECONDS, name="uv")
    if done.returncode:
        raise RequirementsError(f"can't be read by uv: {done.stderr.strip().removeprefix('error: ')}")
    try:
        return tomllib.loads(done.stdout)
    except tomllib.TOMLDecodeError as error:
        raise RequirementsError(f"can't be read by this uv, which writes no pylock.toml ({error}): update uv") from None


def packages_in(values: dict[str, Any], image: KnownImage, choice: Choice) -> "list[Package]":
    """Return the packages in the content of a pylock.toml that an image needs."""
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

    try:
        content = Pylock.from_dict(values)
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        raise RequirementsError(f"is not a valid lock file: {error}") from None
    choice.check(Choice(content.extras or [], content.dependency_groups or []))
    image.check_python(content.requires_python)
    if content.environments and not any(image.applies(marker, choice) for marker in content.environments):
        raise RequirementsError(f"is locked for other environments: {'; '.join(map(str, content.environments))}")
    wanted = Choice(choice.extras, [*choice.groups, *(content.default_groups or [])])
    packages = [package for package in content.packages if image.applies(package.marker, wanted)]
    for package in packages:
        image.check_python(package.requires_python)
    return packages


@dataclass
class Locked:
    """Collects the packages of a lock file as requirements for one image; see `wanted_by`."""

    folder: Path
    project: dict[str, Any]
    image: KnownImage
    lines: dict[str, str] = field(default_factory=dict)
    places: dict[str, None] = field(default_factory=dict)
    unused_indexes: dict[str, None] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def wanted(self, packages: "Iterable[Package]") -> WantedPackages:
        """Return packages as requirements with hashes, and messages on what isn't installed or searched."""
        for package in packages:
            self.add(package)
        if self.unused_indexes:
            self.messages.append(
                f"pip searches the index that it is configured for, not {', '.join(self.unused_indexes)} (to add an "
                f"index, declare it in {self.folder / 'pyproject.toml'} as [[tool.uv.index]])"
            )
        return WantedPackages([*self.places, *(self.lines[name] for name in sorted(self.lines))], self.messages)

    def add(self, package: "Package") -> None:
        """Add a package, or the reason why it is left out."""
        if package.vcs:
            self.leave_out(
                package,
                f"it comes from a repository ({package.vcs.url or package.vcs.path}, commit "
                f"{package.vcs.commit_id}), which has no hash: install it in a stage of its own",
            )
        elif package.directory:
            self.leave_out(package, f"it is the directory {package.directory.path}: build a wheel of it")
        elif package.archive:
            url = package.archive.url or (self.folder / str(package.archive.path)).resolve().as_uri()
            self.add_line(package, {unquote(urlsplit(url).path): package.archive.hashes}, url)
        else:
            files: list[Any] = [*(package.wheels or []), *([package.sdist] if package.sdist else [])]
            self.add_line(package, {file.filename: file.hashes for file in files})
            for place in [package.index] if package.index else [file.path or file.url or "" for file in files]:
                self.search(place, is_index=bool(package.index))

    def leave_out(self, package: "Package", why: str) -> None:
        """Name a package that is not installed."""
        self.messages.append(f"{package.name} is not installed: {why}")

    def add_line(self, package: "Package", files: Any, url: str = "") -> None:
        """Add the requirement for a package with the hashes of its files, by name; `url` if it is in no index."""
        name, version = package.name, str(package.version or "")
        hashes = sorted(
            {
                f"{kind}:{value}"
                for file, found in files.items()
                if self.is_for_image(file)
                for kind, value in found.items()
                if kind in ALGORITHMS and HEXADECIMAL.match(value)
            }
        )
        if not hashes:
            # with hashes for some packages, pip wants them for all
            raise RequirementsError(
                f"has no file of {name} {version} for this image with a hash that pip can check "
                f"({', '.join(ALGORITHMS)}): lock it again, from an index with hashes"
            )
        if re.search(r"\s", url):
            # options of pip could follow
            raise RequirementsError(f"the URL of {name} has a blank: '{escape(url)}'")
        if is_same(version, self.image.packages.get(name)):
            # pip accepts the package of the image; if it isn't there after all, the index may have it
            url = ""
        line = " ".join([f"{name} @ {url}" if url else f"{name}=={version}", *(f"--hash={one}" for one in hashes)])
        if self.lines.setdefault(name, line) != line:
            raise RequirementsError(f"has several versions of {name} for this image: lock it for one environment")

    def is_for_image(self, file: str) -> bool:
        """Return whether a file may be installed in the image: most of the wheels in a lock file are for others."""
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename

        if not file.endswith(".whl"):
            return True
        try:
            tags = parse_wheel_filename(file.rpartition("/")[2])[3]
        except InvalidWheelFilename:
            return False
        minor = int(self.image.python.split(".")[1]) if self.image.python else None
        return any(
            (tag.platform == "any" or re.match("(many)?linux", tag.platform))
            and (
                minor is None
                or not tag.interpreter.startswith("cp")
                or tag.interpreter == f"cp3{minor}"
                or (tag.abi == "abi3" and int(tag.interpreter[3:] or 0) <= minor)
            )
            for tag in tags
        )

    def search(self, place: str, is_index: bool) -> None:
        """
        Let pip also search a directory with packages, or an index that the project declares.

        Other indexes were configured where the file was locked, perhaps by somebody else: pip searches the index that
        it is configured for here instead. The hashes tell whether the files are the same.
        """
        parts = urlsplit(place)
        if parts.scheme in ("", "file"):
            folder = self.folder / unquote(parts.path)
            folder = (folder if folder.is_dir() else folder.parent).resolve()
            self.places[f"--find-links {shlex.quote(str(folder))}"] = None
        elif is_index and without_credentials(place) in self.declared_indexes:
            self.places[f"--extra-index-url {place}"] = None
        elif is_index:
            self.unused_indexes[place] = None

    @functools.cached_property
    def declared_indexes(self) -> set[str]:
        """The URLs of the indexes that the project beside the lock file declares."""
        try:
            return {without_credentials(index["url"]) for index in self.project["tool"]["uv"]["index"]}
        except (AttributeError, KeyError, TypeError):  # no such table, or another form, which uv refuses
            return set()


def is_same(version: str, there: Optional[str]) -> bool:
    """Return whether a package of the image, if there is one, has a locked version; 2.7.1+rocm6.2.4 is 2.7.1."""
    from packaging.specifiers import SpecifierSet

    return bool(version and there) and (
        there == version or SpecifierSet(f"=={version}").contains(str(there), prereleases=True)
    )


def without_credentials(url: str) -> str:
    """Return the URL of an index in the form in which lock files have it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
