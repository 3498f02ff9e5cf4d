"""Choose containers by name, component or date."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Optional, TypeVar

from easybuild.easyblocks.generic.container import newest
from easybuild.easyblocks.generic.container.values import normal_name, shown_module

from ebsif.catalog.container import CatalogError, Container
from ebsif.catalog.packagenames import OTHER_NAMES
from ebsif.text import did_you_mean

# packaging is imported only where it is needed: most selections don't compare versions
if TYPE_CHECKING:
    from packaging.requirements import Requirement

Thing = TypeVar("Thing")

# A date in place of a version.
SNAPSHOT = re.compile(r"20\d{6}")


class UnknownNameError(CatalogError):
    """No container has this name; the message lists the known ones."""


def parse_requirement(text: str) -> "Requirement":
    """Return a requirement such as ``vllm>=0.8``; raise CatalogError if the text is none."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        raise CatalogError(
            f"'{text}' is not a requirement: write a name, with or without versions, such as vllm>=0.8"
        ) from None


def satisfies(container: Container, requirement: "Requirement") -> bool:
    """Return whether a container satisfies a requirement; pre-releases count."""
    version, specifier = container.versions.get(normal_name(requirement.name)), requirement.specifier
    if version and specifier and SNAPSHOT.fullmatch(version) and not re.search(r"\d{8}", str(specifier)):
        # the date of a build: which version that is, is unknown
        return False
    return is_in(version, requirement)


def is_in(version: Optional[str], requirement: "Requirement") -> bool:
    """Return whether a requirement allows a version, pre-releases included; no requirement allows None."""
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


def has_keyword(container: Container, requirement: "Requirement") -> bool:
    """Return whether a container has a keyword, for software in the image whose version the record doesn't know."""
    return not requirement.specifier and normal_name(requirement.name) in map(normal_name, container.keywords)


def having(containers: Iterable[Container], wanted: Iterable["Requirement"]) -> tuple[list[Container], list[Container]]:
    """Return the containers that satisfy requirements, and those that may, because a version isn't recorded."""
    known = list(containers)
    packages = {**OTHER_NAMES, **{normal_name(one.name): one.package for one in known if one.package}}
    sure, unsure = set(known), set(known)
    for requirement in wanted:
        name = normal_name(requirement.name)
        # PyTorch's package is torch, in containers of another name, too
        package = parse_requirement(f"{packages.get(name, name)}{requirement.specifier}")
        keyword = parse_requirement(name)
        found = {
            one
            for one in known
            if satisfies(one, requirement) or satisfies(one, package) or has_keyword(one, requirement)
        }
        sure &= found
        unsure &= found | {one for one in known if name not in one.versions and has_keyword(one, keyword)}
    return [one for one in known if one in sure], [one for one in known if one in unsure - sure]


def age(container: Container) -> tuple:
    """Return the sort key of a container among those of its software, the newest one last."""
    return newest.module_key(container.module_or_version.partition("/")[2], container.date or "")


def day(container: Container) -> str:
    """Return the sort key of the date of a container, whatever its software and version."""
    return newest.day_key(container.date or "")


def newest_first(containers: Iterable[Container]) -> list[Container]:
    """Return containers by software, each with its newest one first; software with the latest date first."""
    groups: dict[str, list[Container]] = {}
    for container in sorted(containers, key=day, reverse=True):
        groups.setdefault(container.name, []).append(container)
    return [container for group in groups.values() for container in sorted(group, key=age, reverse=True)]


def ways(wanted: str) -> Iterator[Callable[[str], bool]]:
    """
    Yield the ways in which a text can name a module, best first: its name, its software, NAME/VERSION, a part.

    They take names as `plain` returns them. A part has at least two characters; ``2.7`` is a part of 2.7.1, but not of
    12.7 or 2.70.
    """
    text = plain(wanted)
    flat = text.replace("/", "-").strip("-")
    part = re.compile(
        (r"(?<![0-9])(?<![0-9]\.)" if flat[:1].isdigit() else "")
        + re.escape(flat)
        + (r"(?![0-9])" if flat[-1:].isdigit() else "")
    )
    yield lambda module: text in (module, module.replace("/", "-", 1))
    yield lambda module: text == module.partition("/")[0]
    yield lambda module: "/" in text and module.startswith(f"{text}-")
    yield lambda module: len(flat) > 1 and bool(part.search(module.replace("/", "-")))


def plain(name: str) -> str:
    """Return a name as it is compared: lower case, without the v of a version, the dot of a hidden one, and .eb."""
    software, slash, version = shown_module(name.lower().removesuffix(".eb")).partition("/")
    return software + slash + (version[1:] if re.match(r"v\d", version) else version)


def spellings(module: str, text: str) -> set[str]:
    """Return the names of a module as people write it, with a hyphen if the text is that of an easyconfig."""
    names = {shown_module(module), shown_module("/".join(module.split("/")[-2:]))}
    return {f"{name.replace('/', '-', 1)}.eb" for name in names} if text.endswith(".eb") else names


def spelled_alike(text: str, named: Iterable[tuple[Iterable[str], Thing]]) -> list[Thing]:
    """Return the things, given with names of modules, that have a name; in other upper or lower case if none has."""
    spelled = [({one for name in names for one in spellings(name, text)}, thing) for names, thing in named]
    return [thing for names, thing in spelled if text in names] or [
        thing for names, thing in spelled if plain(text) in map(plain, names)
    ]


def matching(wanted: str, named: Iterable[tuple[str, Thing]]) -> list[Thing]:
    """Return the things, given with their names, that a text names in the best of all ways."""
    known = [(plain(name), thing) for name, thing in named]
    for is_named in ways(wanted):
        things = [thing for name, thing in known if is_named(name)]
        if things:
            return things
    return []


# Prefix of the environment variables with the default version of a container.
DEFAULT_VERSION = "EBSIF_VERSION_"


def duplicates(containers: Iterable[Container]) -> dict[Container, Container]:
    """Return the containers that have the same module as an earlier one, each with the first of these."""
    first: dict[str, Container] = {}
    found: dict[Container, Container] = {}
    for container in containers:
        with contextlib.suppress(CatalogError):
            other = first.setdefault(container.module.lower(), container)
            if other is not container:
                found[container] = other
    return found


def repeated_aliases(containers: Iterable[Container]) -> Iterator[tuple[Container, str, Container]]:
    """Yield the aliases that are a module or an alias of another container, too: container, alias, the other one."""
    containers = list(containers)
    first = {one.module.lower(): one for one in containers}
    for container in containers:
        for alias in container.aliases:
            other = first.setdefault(f"{container.name}/{alias}".lower(), container)
            if other is not container:
                yield container, alias, other


def repeated_defaults(containers: Iterable[Container]) -> dict[Container, Container]:
    """Return the containers that are a second default of their name, each with the first one."""
    by_name: dict[str, list[Container]] = {}
    for container in containers:
        by_name.setdefault(container.name.lower(), []).append(container)
    found: dict[Container, Container] = {}
    for some in by_name.values():
        defaults = [one for one in without_label(some) if one.default]
        found.update((other, defaults[0]) for other in defaults[1:])
    return found


def without_label(containers: list[Container]) -> list[Container]:
    """Return the containers without label, all if each has one: labeled containers must be named explicitly."""
    return [one for one in containers if not one.label] or containers


def named(containers: Iterable[Container]) -> Iterator[tuple[str, Container]]:
    """Yield containers with each of their names."""
    for container in containers:
        yield container.module_or_version, container
        for alias in container.aliases:
            yield f"{container.name}/{alias}", container


def find(containers: Iterable[Container], wanted: str) -> list[Container]:
    """Return the containers that a name stands for, newest first. Raise UnknownNameError if there is none (S004-11)."""
    containers = list(containers)
    matches = matching(wanted, named(containers))
    if matches:
        return newest_first(dict.fromkeys(matches))
    name, _, version = wanted.partition("/")
    versions = [
        one.module_or_version.partition("/")[2] for one in newest_first(containers) if one.name.lower() == name.lower()
    ]
    if versions:
        raise UnknownNameError(no_version(version, name, versions, "known"))
    known = sorted({one.name for one in containers})
    said = wanted if wanted.startswith((".", "/", "~")) else name
    raise UnknownNameError(
        f"there is no container '{said}' (known: {', '.join(known) or 'none'}){did_you_mean(name, known)}"
    )


def no_version(version: str, name: str, versions: Iterable[str], which: str) -> str:
    """Return the message about a version of a software that isn't one of the known, or installed, ones."""
    return f"there is no version '{version.removeprefix('v')}' of {name}; {which} versions:" + "".join(
        f"\n  {one}" for one in versions
    )


def with_version(wanted: str) -> str:
    """Return a name of a software with the version in EBSIF_VERSION_<NAME>, if that is set (S004-10)."""
    version = os.environ.get(DEFAULT_VERSION + re.sub(r"\W", "_", wanted).upper())
    return f"{wanted}/{version}" if version and "/" not in wanted else wanted


def find_one(containers: Iterable[Container], wanted: str) -> Container:
    """
    Return the one container that a name stands for; see `find`.

    Archived and labeled ones come only if there is no other. The name of a software stands for the version in
    EBSIF_VERSION_<NAME>, else for this account's own record, else for the catalog's default, else for the newest one
    (S004-10). Raise CatalogError, which lists the candidates, if it could be several.
    """
    matches = find(containers, with_version(wanted))
    candidates = [one for one in matches if not one.archived] or matches
    matches = without_label(candidates)
    if matches[0].name.lower() == wanted.lower():
        matches = [one for one in matches if one.is_own] or matches
        matches = [one for one in matches if one.default] or matches[:1]
    if len(matches) > 1:
        raise CatalogError(ambiguous(wanted, [one.module for one in candidates]))
    return matches[0]


def ambiguous(wanted: str, modules: Iterable[str]) -> str:
    """Return the message about a name that could be any of several modules."""
    return f"'{wanted}' is ambiguous; choose one of:" + "".join(f"\n  {module}" for module in dict.fromkeys(modules))
