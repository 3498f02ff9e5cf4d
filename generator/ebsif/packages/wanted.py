"""Packages that are wanted: what is read from a file, for which image, and what is chosen of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.errors import EbsifError

if TYPE_CHECKING:
    from packaging.markers import Marker
    from packaging.requirements import Requirement

# Pythons that images may have, if the version is not known
PYTHONS = [f"3.{minor}" for minor in range(6, 17)]
# above the last patch release of any Python
LAST_PATCH = 99


class RequirementsError(EbsifError):
    """Requirements can't be used; the message says why, and what to do. `requirements` adds the path of the file."""


@dataclass(frozen=True)
class Choice:
    """Extras and dependency groups of a project: those that somebody wants, as they were typed, or all that it has."""

    extras: Sequence[str] = ()
    groups: Sequence[str] = ()

    def check(self, offered: "Choice") -> None:
        """Raise RequirementsError if a project lacks something that is wanted."""
        for kind, names, known in (
            ("extra", self.extras, offered.extras),
            ("dependency group", self.groups, offered.groups),
        ):
            for name in names:
                if normal_name(name) not in map(normal_name, known):
                    raise RequirementsError(f"has no {kind} '{name}' (known: {', '.join(sorted(known)) or 'none'})")

    def left_out(self, offered: "Choice") -> list[str]:
        """Return a message on what a project has and isn't wanted; none if there is nothing."""
        options = [
            f"{option} {name}"
            for option, names, known in (
                ("--extra", self.extras, offered.extras),
                ("--group", self.groups, offered.groups),
            )
            for name in sorted(known)
            if normal_name(name) not in map(normal_name, names)
        ]
        return [f"installed only if you add them: {', '.join(options)}"] if options else []


@dataclass
class WantedPackages:
    """
    The lines of a requirements.txt, and messages on those parts of a file that can't be expressed by them.

    `wrong` are messages on what is a mistake, with which nothing is installed, and `offered` is what a project has
    besides.
    """

    lines: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    offered: Choice = Choice()


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

    def needs(self, wanted: "Requirement", extras: Iterable[str] = ()) -> bool:
        """Return whether a package with these extras needs in it what a requirement names."""
        return not wanted.marker or any(
            wanted.marker.evaluate({**values, "extra": extra})
            for values in self.marker_environments
            for extra in (*extras, "")
        )

    def applies(self, marker: "Optional[Marker]", choice: Choice) -> bool:
        """
        Return whether an environment marker in a lock file is true in it.

        If the patch release of its Python matters and is not known, the marker counts as true: an extra package is
        harmless. Raise RequirementsError if the version of its Python matters and is not known.
        """
        if marker is None:
            return True
        chosen = {
            "extras": frozenset(map(normal_name, choice.extras)),
            "dependency_groups": frozenset(map(normal_name, choice.groups)),
        }
        results = {marker.evaluate({**values, **chosen}, context="lock_file") for values in self.marker_environments}
        if len(results) > 1 and not self.python:
            raise RequirementsError(
                f"'{marker}' depends on the Python of the image, whose version is not known: extend a container of the "
                "catalog, or use a requirements.txt"
            )
        return any(results)

    def has_python(self, versions: str) -> bool:
        """Return whether its Python may satisfy a version specification of pip; patch releases are compatible."""
        from packaging.specifiers import SpecifierSet

        asked, minor = SpecifierSet(versions), ".".join((self.python or "").split(".")[:2])
        return not self.python or any(asked.contains(f"{minor}.{patch}") for patch in range(LAST_PATCH + 1))

    def check_python(self, asked: Any) -> None:
        """Raise RequirementsError if its Python doesn't satisfy a `requires-python`."""
        from packaging.specifiers import InvalidSpecifier

        try:
            fits = not asked or self.has_python(str(asked))
        except InvalidSpecifier:
            raise RequirementsError(f"requires-python '{asked}' is not a valid version specification") from None
        if not fits:
            raise RequirementsError(
                f"requires Python {asked}, but the image has Python {self.python}: choose a container with "
                f"another Python (ebsif list --has 'python{asked}'), or change 'requires-python'"
            )


def texts(value: Any, name: str, more: Any = str) -> list:
    """Return a value if it is a list of strings (or of `more`); raise RequirementsError otherwise."""
    if not isinstance(value, list) or not all(isinstance(item, (str, more)) for item in value):
        raise RequirementsError(f"{name} should be a list of requirements, each a string")
    return value
