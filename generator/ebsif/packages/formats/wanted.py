"""What all formats of requirements share: what is read from a file, and what is known about the image."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.errors import EbsifError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# packaging is imported only where it is needed: most requirements are those of a requirements.txt
if TYPE_CHECKING:
    from packaging.markers import Marker

Part = TypeVar("Part")

# Pythons that images may have, if the version is not known
PYTHONS = [f"3.{minor}" for minor in range(6, 17)]
# above the last patch release of any Python
LAST_PATCH = 99


class RequirementsError(EbsifError):
    """A file with requirements can't be used; the message says why, where, and what to do."""


class WrongLinesError(RequirementsError):
    """Some of several lines can't be used; the message says it of each of them. `lines` are the others."""

    def __init__(self, text: str, lines: Sequence[str] = ()) -> None:
        """Keep the lines that can be used, to find out what else is wrong."""
        super().__init__(text)
        self.lines = lines


@dataclass
class WantedPackages:
    """The lines of a requirements.txt, and messages on those parts of a file that can't be expressed by them."""

    lines: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class KnownImage:
    """
    What is known about an image without looking into it.

    That is the version of its Python, with or without the patch release; versions of some of its packages by normalized
    name; the SHA256 of its file.
    """

    python: Optional[str] = None
    packages: dict[str, str] = field(default_factory=dict)
    sha256: Optional[str] = None

    @property
    def marker_environments(self) -> list[dict[str, str]]:
        """The values of environment markers in the image, for the first and last release that its Python may be."""
        known = self.python and self.python.count(".") > 1
        pythons = (
            [self.python]
            if known
            else [
                f"{minor}.{patch}" for minor in ([self.python] if self.python else PYTHONS) for patch in (0, LAST_PATCH)
            ]
        )
        return [
            {
                "python_version": ".".join(version.split(".")[:2]),
                "python_full_version": version,
                "implementation_version": version,
                "implementation_name": "cpython",
                "platform_python_implementation": "CPython",
                "sys_platform": "linux",
                "platform_system": "Linux",
                "os_name": "posix",
            }
            for version in map(str, pythons)
        ]

    def has_python(self, versions: str) -> bool:
        """Return whether its Python may satisfy a version specification of pip; patch releases are compatible."""
        from packaging.specifiers import SpecifierSet

        asked, minor = SpecifierSet(versions), ".".join((self.python or "").split(".")[:2])
        return not self.python or any(asked.contains(f"{minor}.{patch}") for patch in range(LAST_PATCH + 1))

    def applies(
        self,
        path: Path,
        marker: "Optional[Marker]",
        extras: frozenset[str] = frozenset(),
        groups: frozenset[str] = frozenset(),
    ) -> bool:
        """
        Return whether an environment marker in a lock file is true in the image.

        If the patch release of its Python matters and is not known, the marker counts as true: an extra package is
        harmless. Raise RequirementsError if the version of its Python matters and is not known.
        """
        if marker is None:
            return True
        results = {
            marker.evaluate({**values, "extras": extras, "dependency_groups": groups}, context="lock_file")
            for values in self.marker_environments
        }
        if len(results) > 1 and not self.python:
            raise RequirementsError(
                f"{path}: '{marker}' depends on the Python of the image, whose version is not "
                "known: extend a container of the catalog, or use a requirements.txt"
            )
        return any(results)


def collected(parts: Iterable[Part], lines_of: Callable[[Part], list[str]]) -> list[str]:
    """Return the lines that a function makes of several parts; raise WrongLinesError on all parts that are wrong."""
    lines: list[str] = []
    wrong: list[str] = []
    for part in parts:
        try:
            lines += lines_of(part)
        except RequirementsError as error:
            wrong.append(str(error))
            lines += error.lines if isinstance(error, WrongLinesError) else []
    if wrong:
        raise WrongLinesError("\n".join(wrong), lines)
    return lines


def load_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; raise RequirementsError if it is not valid TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # also a number with too many digits
        raise RequirementsError(f"{path} can't be read: {error}") from None


def check_python(path: Path, asked: Any, image: KnownImage) -> None:
    """Raise RequirementsError if the Python of the image doesn't satisfy a `requires-python`."""
    from packaging.specifiers import InvalidSpecifier

    try:
        fits = not asked or image.has_python(str(asked))
    except InvalidSpecifier:
        raise RequirementsError(f"{path}: requires-python '{asked}' is not a valid version specification") from None
    if not fits:
        raise RequirementsError(
            f"{path} requires Python {asked}, but the image has Python {image.python}: choose a container with "
            f"another Python (ebsif list --has 'python{asked}'), or change 'requires-python'"
        )


def without(names: Iterable[str], chosen: Iterable[str]) -> list[str]:
    """Return names of extras or dependency groups, sorted, but for those that are chosen."""
    taken = set(map(normal_name, chosen))
    return sorted(name for name in names if normal_name(name) not in taken)


def not_chosen(path: Path, extras: Iterable[str], groups: Iterable[str]) -> list[str]:
    """Return a message on what of a file isn't installed unless it is asked for; none if there is nothing."""
    options = [f"--extra {name}" for name in extras] + [f"--group {name}" for name in groups]
    return [f"{path}: installed only if you add them: {', '.join(options)}"] if options else []


def texts(value: Any, path: Path, name: str, more: Any = str) -> list:
    """Return a value if it is a list of strings (or of `more`); raise RequirementsError otherwise."""
    if not isinstance(value, list) or not all(isinstance(item, (str, more)) for item in value):
        raise RequirementsError(f"{path}: {name} should be a list of requirements, each a string")
    return value


def unknown(path: Path, kind: str, name: str, known: Iterable[str]) -> RequirementsError:
    """Return the error for an extra or dependency group that a file doesn't have."""
    return RequirementsError(f"{path} has no {kind} '{name}' (known: {', '.join(sorted(known)) or 'none'})")
