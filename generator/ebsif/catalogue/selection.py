"""Choosing containers: by name, by what is in them, by when they were made."""

import contextlib
import os
import re

from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue.container import CatalogueError
from ebsif.errors import EbsifError

# packaging is loaded where it is needed: most lists are not chosen by versions


class SelectionError(EbsifError):
    """A wish can't be read; the message says how it is written."""


def components_of(container):
    """Return what is in a container (dict): versions by the normal name of each component, itself included."""
    found = {normal_name(name): version for name, version in container.components.items()}
    found[normal_name(container.name)] = container.version
    if container.package:
        found[normal_name(container.package)] = container.version
    if container.python:
        found["python"] = container.python
    return found


def parse_requirement(text):
    """
    Return a wish (packaging.requirements.Requirement) like ``vllm>=0.8``.

    Raises
    ------
    SelectionError
        If it is none.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        raise SelectionError(f"'{text}' can't be read: write a name, or one with versions, like vllm>=0.8") from None


def satisfies(container, requirement):
    """Tell whether a container has what is wished for, compared as versions are; pre-releases count."""
    from packaging.version import InvalidVersion, Version

    version = components_of(container).get(normal_name(requirement.name))
    if version is None:
        return False
    if not requirement.specifier:
        return True
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        # a commit, for example: it is that one or it is not
        return str(requirement.specifier) == f"=={version}"


def in_order(version):
    """Return what sorts a version; what is none, a commit for example, comes first."""
    from packaging.version import InvalidVersion, Version

    try:
        return (1, Version(version), version)
    except InvalidVersion:
        return (0, Version("0"), version)


def in_history(container):
    """Return what sorts containers by when they were made; those that don't say come first, by version."""
    return container.date or "", in_order(container.version)


# Begins the name of a variable with the version of a container that is meant where none is given.
DEFAULT_VERSION = "EBSIF_VERSION_"


def twins(containers):
    """Return the containers whose module an earlier one has as well, each with the first of them (dict)."""
    first, found = {}, {}
    for container in containers:
        with contextlib.suppress(CatalogueError):
            other = first.setdefault(container.module.lower(), container)
            if other is not container:
                found[container] = other
    return found


def find(containers, wanted):
    """
    Return the containers that a person means.

    Parameters
    ----------
    containers : list of Container
        Where to look.
    wanted : str
        ``PyTorch``, ``PyTorch/2.7.0`` (or v2.7.0), ``PyTorch/2.7.0-rocm-...``, the name of an easyconfig.

    Returns
    -------
    list of Container
        At least one.

    Raises
    ------
    CatalogueError
        If there is none; the known ones are listed (S004-11).
    """
    name, _, version = wanted.partition("/")
    named = [one for one in containers if one.name.lower() == name.lower()]
    if not named:
        exact = [one for one in containers if wanted.removesuffix(".eb") == one.module_or_version.replace("/", "-", 1)]
        if exact:
            return exact
        known = sorted({one.name for one in containers})
        raise CatalogueError(f"no container is named '{name}' (known: {', '.join(known) or 'none'})")
    if not version:
        return named
    version = version.removeprefix("v")
    found = ([one for one in named if one.module_or_version == f"{one.name}/{version}"]
             or [one for one in named if one.version == version])
    if not found:
        known = "\n  ".join(one.module_or_version.split("/", 1)[1] for one in named)
        raise CatalogueError(f"{named[0].name} has no version '{version}'; there are:\n  {known}")
    return found


def find_one(containers, wanted):
    """
    Return the one container that a person means (Container); of several of one image the plain one.

    Who gives a name alone means the version that EBSIF_VERSION_<NAME> names, else the newest one (S004-10).

    Raises
    ------
    CatalogueError
        If there is none, or more than one; they are listed.
    """
    default = None if "/" in wanted else os.environ.get(DEFAULT_VERSION + re.sub(r"\W", "_", wanted).upper())
    found = find(containers, f"{wanted}/{default}" if default else wanted)
    found = [one for one in found if not one.label] or found
    if found[0].name.lower() == wanted.lower() and not default:
        found = [max([one for one in found if not one.archived] or found, key=in_history)]
    if len(found) > 1:
        names = "\n  ".join(one.module for one in found)
        raise CatalogueError(f"'{wanted}' is more than one container, name one of:\n  {names}")
    return found[0]
