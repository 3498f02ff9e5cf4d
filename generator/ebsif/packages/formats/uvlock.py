"""Read a uv.lock: the packages that a project needs in an image, with their hashes."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.packages.formats.locked import Locked, name_of
from ebsif.packages.formats.toml import load
from ebsif.packages.formats.wanted import Image, RequirementsError, Wanted, check_python, known_or_none

# The format has a version of its own; newer revisions of version 1 can be read.
VERSION = 1
# Kinds of sources that are directories of this machine
LOCAL = ("virtual", "editable", "directory")


def read(path: Path, image: Image, extras: Iterable[str], groups: Iterable[str]) -> Wanted:
    """
    Return the locked packages that a project needs in an image, with their hashes, without the project itself.

    Parameters
    ----------
    path
        The lock file.
    image
        The image, in which markers are evaluated. What its packages need is not followed: the image has it.
    extras, groups
        Names of extras and dependency groups to install too.

    Raises
    ------
    RequirementsError
        If the file is invalid or not for this image, or has other versions than the image.
    """
    content = load(path)
    if content.get("version") != VERSION:
        raise RequirementsError(f"{path}: format version {content.get('version')} is not supported (only {VERSION}): "
                                "write a pylock.toml with 'uv export --format pylock.toml -o pylock.toml'")
    check_python(path, content.get("requires-python"), image)
    try:
        return Walk(path, image, content, list(map(normal_name, extras)), list(map(normal_name, groups))).wanted()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RequirementsError(f"{path} is not a valid uv.lock: {error!r}") from None


@dataclass
class Walk:
    """Follows the dependencies in a lock file, from its projects to everything that they need."""

    path: Path
    image: Image
    content: dict[str, Any]
    extras: list[str]
    groups: list[str]
    seen: set[tuple[int, str]] = field(default_factory=set)

    def wanted(self) -> Wanted:
        """Return the requirements."""
        self.locked = Locked(self.path, self.image)
        self.packages: dict[str, list[dict]] = {}
        for package in self.content.get("package", []):
            self.packages.setdefault(normal_name(package["name"]), []).append(package)
        projects = self.projects()
        self.check_names(projects)
        # the form in which uv encodes choices of the projects in markers
        self.active = frozenset(f"{kind}-{len(one['name'])}-{one['name']}-{name}" for one in projects
                                for kind, names in (("extra", self.extras), ("group", self.groups)) for name in names)
        for project in projects:
            for name in ["", *self.extras]:
                self.follow(project, name)
            for name in self.groups:
                self.follow_all(tables_of(project, "dev-dependencies").get(name, []))
        return self.locked.wanted()

    def projects(self) -> list[dict]:
        """Return the project in the directory of the lock file; if there is none, the members of the workspace."""
        local = [one for packages in self.packages.values() for one in packages if source_of(one)[0] in LOCAL]
        here = [one for one in local if source_of(one)[1] in (".", "")]
        members = self.content.get("manifest", {}).get("members", [])
        found = here or [one for one in local if one["name"] in members]
        if not found:
            raise RequirementsError(f"{self.path} has no project: only lock files of projects can be read")
        return found

    def check_names(self, projects):
        """Raise RequirementsError if no project has an extra or dependency group."""
        for kind, names, key in (("extra", self.extras, "optional-dependencies"),
                                 ("dependency group", self.groups, "dev-dependencies")):
            known = {name for project in projects for name in tables_of(project, key)}
            for name in names:
                if name not in known:
                    raise RequirementsError(f"{self.path} has no {kind} '{name}' ({known_or_none(known)})")

    def follow(self, package, extra):
        """Add what a package, or one of its extras, needs."""
        if (id(package), extra) not in self.seen:
            self.seen.add((id(package), extra))
            self.follow_all(tables_of(package, "optional-dependencies").get(extra, []) if extra
                            else package.get("dependencies", []))

    def follow_all(self, dependencies):
        """Add dependencies and what they need."""
        for dependency in dependencies:
            if not self.applies(dependency.get("marker")):
                continue
            for package in self.targets(dependency):
                if self.add(package):
                    for extra in ["", *map(normal_name, dependency.get("extra", []))]:
                        self.follow(package, extra)

    def applies(self, marker) -> bool:
        """Return whether a marker of uv is true in the image."""
        from packaging.markers import Marker

        if not marker:
            return True
        # in the form for lock files, which can be evaluated with several extras
        text = re.sub(r"\bextra == ('[^']*')", r"\1 in extras", marker)
        text = re.sub(r"\bextra != ('[^']*')", r"\1 not in extras", text)
        return self.image.applies(self.path, Marker(text), self.active)

    def targets(self, dependency) -> Iterator[dict]:
        """Yield the package of a dependency: for some, several versions are locked, each for some environments."""
        for package in self.packages[normal_name(dependency["name"])]:
            markers = package.get("resolution-markers", [])
            if dependency.get("version", package.get("version")) == package.get("version") \
                    and dependency.get("source", package["source"]) == package["source"] \
                    and (not markers or any(map(self.applies, markers))):
                yield package

    def add(self, package) -> bool:
        """Add a package; return whether to follow its dependencies."""
        name, version, (kind, place) = package["name"], package.get("version", ""), source_of(package)
        if kind in LOCAL:
            if (id(package), "") not in self.seen:
                self.locked.leave_out(name, f"it is the directory {place}: build a wheel of it")
            return True
        if kind == "git":
            self.locked.leave_out(name, f"it comes from a repository ({place}), which has no hash: install it in a "
                                        "stage of its own")
            return True
        files = [(file.get("filename") or name_of(file.get("url") or file.get("path") or place), [file.get("hash", "")])
                 for file in [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]]
        if kind == "registry":
            self.locked.search(place)
            self.locked.add(name, version, files)
        else:
            self.locked.add(name, version, files, place if "://" in place else
                            (self.path.parent / place).resolve().as_uri())
        return name not in self.image.packages


def source_of(package):
    """Return kind and place of a package's source (two str)."""
    source = package["source"]
    for kind in (*LOCAL, "git", "registry", "url", "path"):
        if kind in source:
            return kind, str(source[kind])
    raise KeyError(f"source of {package['name']}")


def tables_of(package, key):
    """Return the dependencies of a package by normalized name of extra or group (dict)."""
    return {normal_name(name): dependencies for name, dependencies in package.get(key, {}).items()}
