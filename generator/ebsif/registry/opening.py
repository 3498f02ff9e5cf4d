"""Open the repository with an image or artefact."""

from typing import Union

from ebsif.registry.reference import LAYOUT, Reference, parse
from ebsif.registry.repository import Repository


def open_repository(name: Union[str, Reference]) -> Repository:
    """
    Return the repository that a name stands for: in a registry or in a directory. Nothing is read yet.

    Raises
    ------
    InvalidReference
        If the name can't be understood.
    """
    reference = parse(name) if isinstance(name, str) else name
    if reference.scheme == LAYOUT:
        from ebsif.registry.layout import Layout

        return Layout(reference)
    # requests takes long to import
    from ebsif.registry.client import RegistryRepository

    return RegistryRepository(reference)
