"""Choosing containers by what is in them."""

import re

from ebsif.errors import EbsifError

# packaging is loaded where it is needed: most lists are not chosen by versions


class SelectionError(EbsifError):
    """A wish can't be read; the message says how it is written."""


def normal_name(name):
    """Return the normal form of the name of a package (str), as the rules of Python packages have it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def inside(container):
    """Return what is in a container (dict): versions by the normal name of each component, itself included."""
    found = {normal_name(name): version for name, version in container.components.items()}
    found[normal_name(container.name)] = container.version
    if container.package:
        found[normal_name(container.package)] = container.version
    if container.python:
        found["python"] = container.python
    return found


def wish(text):
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
    except InvalidRequirement as error:
        raise SelectionError(f"'{text}' should be a name, or one with versions like vllm>=0.8: {error}") from None


def has(container, requirement):
    """Tell whether a container has what is wished for, compared as versions are; pre-releases count."""
    from packaging.version import InvalidVersion, Version

    version = inside(container).get(normal_name(requirement.name))
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
