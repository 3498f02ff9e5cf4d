"""Choosing containers by what is in them."""

from ebsif.errors import EbsifError
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


class SelectionError(EbsifError):
    """A wish can't be read; the message says how it is written."""


def inside(container):
    """Return what is in a container (dict): versions by the normal name of each component, itself included."""
    found = {canonicalize_name(name): version for name, version in container.components.items()}
    found[canonicalize_name(container.name)] = container.version
    if container.package:
        found[canonicalize_name(container.package)] = container.version
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
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise SelectionError(f"'{text}' should be a name, or one with versions like vllm>=0.8: {error}") from None


def has(container, requirement):
    """Tell whether a container has what is wished for, compared as versions are; pre-releases count."""
    version = inside(container).get(canonicalize_name(requirement.name))
    if version is None:
        return False
    if not requirement.specifier:
        return True
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        # a commit, for example: it is that one or it is not
        return str(requirement.specifier) == f"=={version}"
