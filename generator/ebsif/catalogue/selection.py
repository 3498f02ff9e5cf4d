"""Choose containers by name, component or date."""

import contextlib
import difflib
import os
import re
from collections.abc import Iterable
from typing import Optional

from easybuild.easyblocks.generic.container.texts import normal_name, shown_module

from ebsif.catalogue.container import CatalogueError, Container
from ebsif.errors import EbsifError

# packaging is imported only where it is needed: most selections don't compare versions


# A date in place of a version.
SNAPSHOT = re.compile(r"20\d{6}")


class UnknownName(CatalogueError):
    """No container has this name; the message lists the known ones."""


class SelectionError(EbsifError):
    """A requirement can't be parsed; the message says how to write it."""


def components_of(container: Container) -> dict[str, str]:
    """Return the components of a container, itself included: versions by normalized name."""
    found = {normal_name(name): version for name, version in container.components.items()}
    found[normal_name(container.name)] = container.version
    if container.package:
        found[normal_name(container.package)] = container.version
    if container.python:
        found["python"] = container.python
    return found


def parse_requirement(text):
    """
    Return a requirement (packaging.requirements.Requirement) such as ``vllm>=0.8``.

    Raises
    ------
    SelectionError
        If the text is not a requirement.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        raise SelectionError(f"'{text}' is not a requirement: write a name, with or without versions, such as "
                             "vllm>=0.8") from None


def satisfies(container: Container, requirement) -> bool:
    """Return whether a container satisfies a requirement (packaging.requirements.Requirement); pre-releases count."""
    version, specifier = components_of(container).get(normal_name(requirement.name)), requirement.specifier
    if version and specifier and SNAPSHOT.fullmatch(version) and not re.search(r"\d{8}", str(specifier)):
        # the date of a build: which version that is, is unknown
        return False
    return is_in(version, requirement)


def is_in(version: Optional[str], requirement) -> bool:
    """
    Return whether a requirement (packaging.requirements.Requirement) allows a version; pre-releases count.

    No version (None) means that there is no such component, which no requirement allows.
    """
    from packaging.version import InvalidVersion, Version

    if version is None:
        return False
    if not requirement.specifier:
        return True
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        # a commit, for example, which can only be equal
        return str(requirement.specifier) == f"=={version}"


def has_keyword(container: Container, requirement) -> bool:
    """Return whether a container has a keyword, for software in the image whose version the record doesn't know."""
    return not requirement.specifier and normal_name(requirement.name) in map(normal_name, container.keywords)


def version_key(version: str) -> tuple:
    """Return the sort key of a version; anything else, such as a commit, comes first."""
    from packaging.version import InvalidVersion, Version

    try:
        return (1, Version(version), version)
    except InvalidVersion:
        return (0, Version("0"), version)


def natural_key(text: str) -> list:
    """Return the sort key of a text in which numbers are compared as numbers: 2.9 comes before 2.10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", text)]


def date_key(container: Container) -> tuple:
    """Return the sort key of a container by date; those without a date come first, by version."""
    return container.date or "", version_key(container.version)


def matches(module: str, wanted: str) -> int:
    """
    Return how well a part of a name fits a module: 2 if it consists of whole words, 1 if not, 0 if it doesn't fit.

    ``2.7`` is a part of 2.7.1, but not of 12.7 or 2.70; ``torch-2.7`` is a part of PyTorch/2.7.1.
    """
    name, part = (shown_module(text.lower()).replace("/", "-") for text in (module, wanted.removesuffix(".eb")))
    part = part.strip("-")
    numbers = r"(?<![0-9])(?<![0-9]\.)" if part[:1].isdigit() else "", r"(?![0-9])" if part[-1:].isdigit() else ""
    exact = f"{numbers[0]}{re.escape(part)}{numbers[1]}"
    if len(part) > 1 and re.search(rf"(?<![a-z0-9]){exact}(?![a-z0-9])", name):
        return 2
    # a few letters are in many words
    return 1 if len(part) > 3 and re.search(exact, name) else 0


def best_matches(modules: Iterable[str], wanted: str) -> list[str]:
    """Return the modules that a part of a name fits best."""
    fitting = {module: matches(module, wanted) for module in modules}
    best = max(fitting.values(), default=0)
    return [module for module, rank in fitting.items() if best and rank == best]


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """Return the names that resemble a mistyped one as the end of a message, empty if there is none."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wanted.lower(), names, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(names[name] for name in close)}?" if close else ""


# Prefix of the environment variables with the default version of a container.
DEFAULT_VERSION = "EBSIF_VERSION_"


def duplicates(containers: Iterable[Container]) -> dict[Container, Container]:
    """Return the containers that have the same module as an earlier one, each with the first of these."""
    first, found = {}, {}
    for container in containers:
        with contextlib.suppress(CatalogueError):
            other = first.setdefault(container.module.lower(), container)
            if other is not container:
                found[container] = other
    return found


def repeated_defaults(containers: Iterable[Container]) -> dict[Container, Container]:
    """Return the containers that are a second default of their name, each with the first one."""
    named = {}
    for container in containers:
        named.setdefault(container.name.lower(), []).append(container)
    found = {}
    for some in named.values():
        first, *others = [one for one in without_label(some) if one.default] or [None]
        found.update(dict.fromkeys(others, first))
    return found


def without_label(containers: list[Container]) -> list[Container]:
    """Return the containers without label, all if each has one: the others are for those who name them."""
    return [one for one in containers if not one.label] or containers


def find(containers: Iterable[Container], wanted: str, parts: bool = True) -> list[Container]:
    """
    Return the containers that a name stands for.

    Parameters
    ----------
    containers
        The containers to choose from.
    wanted
        ``PyTorch``, ``PyTorch/2.7.0`` (or v2.7.0), ``PyTorch/2.7.0-rocm-...``, the name of an easyconfig, or a part
        of any of these, such as ``torch-2.7``.
    parts
        Whether parts of names count.

    Returns
    -------
    list of Container
        At least one container.

    Raises
    ------
    UnknownName
        If there is none; the message lists the known ones (S004-11).
    """
    name, _, version = wanted.partition("/")
    named = [one for one in containers if one.name.lower() == name.lower()]
    if not named:
        exact = [one for one in containers if wanted.removesuffix(".eb") == one.module_or_version.replace("/", "-", 1)]
        found = exact or (fitting(containers, wanted) if parts else [])
        if found:
            return found
        known = sorted({one.name for one in containers})
        raise UnknownName(f"there is no container '{name}' (known: "
                          f"{', '.join(known) or 'none'}){did_you_mean(name, known)}")
    if not version:
        return named
    version = version.removeprefix("v")
    found = ([one for one in named if one.module_or_version == f"{one.name}/{version}"]
             or [one for one in named if version in one.aliases]
             or [one for one in named if one.version == version]
             or (fitting(named, version) if parts else []))
    if not found:
        known = "\n  ".join(one.module_or_version.split("/", 1)[1] for one in named)
        raise UnknownName(f"there is no version '{version}' of {named[0].name}; known versions:\n  {known}")
    return found


def fitting(containers: Iterable[Container], wanted: str) -> list[Container]:
    """Return the containers that a part of a name fits best."""
    modules = {one: one.module_or_version for one in containers}
    best = set(best_matches(modules.values(), wanted))
    return [one for one, module in modules.items() if module in best]


def find_one(containers: Iterable[Container], wanted: str, parts: bool = True) -> Container:
    """
    Return the one container that a name stands for; of several with the same image, the one without label.

    A name without a version stands for the version in EBSIF_VERSION_<NAME>, else for the catalogue's default, else for
    the newest one (S004-10). Parts of names count unless `parts` is false.

    Raises
    ------
    CatalogueError
        If there is none, or more than one; the message lists them.
    """
    version = None if "/" in wanted else os.environ.get(DEFAULT_VERSION + re.sub(r"\W", "_", wanted).upper())
    found = find(containers, f"{wanted}/{version}" if version else wanted, parts)
    found = without_label(found)
    if found[0].name.lower() == wanted.lower() and not version:
        newest = max([one for one in found if not one.archived] or found, key=date_key)
        found = [one for one in found if one.default] or [newest]
    if len(found) > 1:
        names = "\n  ".join(sorted((one.module for one in found), key=natural_key))
        raise CatalogueError(f"'{wanted}' is ambiguous; choose one of:\n  {names}")
    return found[0]
