"""What all formats of requirements share: what is read from a file, and what is known about the image."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ebsif.errors import EbsifError

# packaging is imported only where it is needed: most requirements are those of a requirements.txt

# Pythons that images may have, if the version is not known
PYTHONS = [f"3.{minor}" for minor in range(6, 17)]
# above the last patch release of any Python
LAST_PATCH = 99


class RequirementsError(EbsifError):
    """A file with requirements can't be used; the message says why, where, and what to do."""


@dataclass
class Wanted:
    """The lines of a requirements.txt, and messages on those parts of a file that can't be expressed by them."""

    lines: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Image:
    """
    What is known about an image without looking into it.

    Attributes
    ----------
    python
        Version of its Python, with or without the patch release.
    packages
        Versions of its packages by normalized name; there may be more packages.
    sha256
        The SHA256 of its file, if it is known.
    """

    python: Optional[str] = None
    packages: dict[str, str] = field(default_factory=dict)
    sha256: Optional[str] = None

    @property
    def pythons(self) -> list[str]:
        """The first and the last version that its Python may have, for each minor version that is possible."""
        if self.python and self.python.count(".") > 1:
            return [self.python]
        return [f"{minor}.{patch}" for minor in ([self.python] if self.python else PYTHONS)
                for patch in (0, LAST_PATCH)]

    @property
    def marker_environments(self) -> list[dict[str, str]]:
        """The values of environment markers in the image, for each version that its Python may have."""
        return [{"python_version": ".".join(version.split(".")[:2]), "python_full_version": version,
                 "implementation_version": version, "implementation_name": "cpython",
                 "platform_python_implementation": "CPython", "sys_platform": "linux", "platform_system": "Linux",
                 "os_name": "posix"} for version in self.pythons]

    def has_python(self, versions: str) -> bool:
        """Return whether its Python may satisfy a version specification of pip; patch releases are compatible."""
        from packaging.specifiers import SpecifierSet

        asked, minor = SpecifierSet(versions), ".".join((self.python or "").split(".")[:2])
        return not self.python or any(asked.contains(f"{minor}.{patch}") for patch in range(LAST_PATCH + 1))

    def applies(self, path: Path, marker: Any, extras: frozenset[str] = frozenset(),
                groups: frozenset[str] = frozenset()) -> bool:
        """
        Return whether an environment marker in a file (packaging.markers.Marker or None) is true in the image.

        If the patch release of its Python matters and is not known, the marker counts as true: one package more does
        no harm.

        Raises
        ------
        RequirementsError
            If that depends on the version of Python, which is not known.
        """
        if marker is None:
            return True
        found = {marker.evaluate({**values, "extras": extras, "dependency_groups": groups}, context="lock_file")
                 for values in self.marker_environments}
        if len(found) > 1 and not self.python:
            raise RequirementsError(f"{path}: '{marker}' depends on the Python of the image, whose version is not "
                                    "known: extend a container of the catalogue, or use a requirements.txt")
        return any(found)


def check_python(path: Path, asked: Optional[str], image: Image) -> None:
    """
    Check that the Python of the image satisfies a ``requires-python``.

    Raises
    ------
    RequirementsError
        If it doesn't; the message names both versions.
    """
    from packaging.specifiers import InvalidSpecifier

    try:
        fits = not asked or image.has_python(str(asked))
    except InvalidSpecifier:
        raise RequirementsError(f"{path}: requires-python '{asked}' is not a valid version specification") from None
    if not fits:
        raise RequirementsError(
            f"{path} requires Python {asked}, but the image has Python {image.python}: choose a container with "
            f"another Python (ebsif list --has 'python{asked}'), or change 'requires-python'")


def texts(value: Any, path: Path, name: str, more: Any = str) -> list:
    """Return a value if it is a list of strings (or of `more`); raise RequirementsError otherwise."""
    if not isinstance(value, list) or not all(isinstance(one, (str, more)) for one in value):
        raise RequirementsError(f"{path}: {name} should be a list of requirements, each a string")
    return value


def table(value: Any, path: Path, name: str) -> dict:
    """Return a value if it is a table of TOML; raise RequirementsError otherwise."""
    if not isinstance(value, dict):
        raise RequirementsError(f"{path}: {name} should be a table")
    return value


def known_or_none(names) -> str:
    """Return names for the end of a message."""
    return f"known: {', '.join(sorted(names)) or 'none'}"
