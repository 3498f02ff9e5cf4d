"""What a single line of a requirements.txt says: its package, and the extras of that."""

import contextlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Optional

from easybuild.easyblocks.generic.container.requirements import package_lines, package_name
from easybuild.easyblocks.generic.container.values import normal_name

# packaging is imported only where it is needed: many commands only compare names
if TYPE_CHECKING:
    from packaging.requirements import Requirement

# The path or URL of a wheel, whose file name begins with that of the package.
WHEEL = re.compile(r"[^\s@]*/([A-Za-z0-9_.]+)-[^/\s]*\.whl\b")


def parsed(line: str) -> "Optional[Requirement]":
    """Return a requirement line as a requirement of packaging; None if it has another form."""
    from packaging.requirements import InvalidRequirement, Requirement

    with contextlib.suppress(InvalidRequirement):
        # -C is the short form of --config-settings
        return Requirement(re.split(r"\s(?:#|--|-C)", line)[0].strip())
    return None


def name_in(line: str) -> str:
    """Return the normalized package name of a requirement line; empty for comments and options."""
    wheel = WHEEL.match(line)
    return normal_name(wheel[1]) if wheel else next(map(package_name, package_lines(line)), "")


def names_in(lines: Iterable[str]) -> set[str]:
    """Return the normalized names of the packages in requirement lines."""
    return set(filter(None, map(name_in, lines)))


def allows(line: str, version: str) -> bool:
    """Return whether a requirement line allows a version."""
    wanted = parsed(line)
    return not wanted or wanted.specifier.contains(version, prereleases=True)


def is_exact(wanted: "Requirement") -> bool:
    """Return whether a requirement allows one version only."""
    return bool(re.fullmatch(r"==[^*,]+", str(wanted.specifier)))


def has_hash(line: str) -> bool:
    """Return whether a requirement line names the files that pip accepts; if one does, all of a stage have to."""
    return "--hash" in line


def extras_in(line: str) -> set[str]:
    """Return the extras in a requirement line."""
    requirement = parsed(line)
    return requirement.extras if requirement else set()


def with_extras(line: str, extras: set[str]) -> str:
    """Return a requirement line for another version of a package, with the extras that were asked for before."""
    requirement, wheel = parsed(line), WHEEL.match(line)
    end = wheel.end() if wheel else len(requirement.name) if requirement else 0
    if not (extras and end) or (requirement.extras if requirement else line[end:].startswith("[")):
        return line
    return f"{line.strip()[:end]}[{','.join(sorted(extras))}]{line.strip()[end:]}"
