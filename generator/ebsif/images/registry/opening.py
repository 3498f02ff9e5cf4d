"""Open the repository with an image or artefact."""

from typing import Union

from easybuild.easyblocks.generic.container.imagesource import OCI, ImageSource

from ebsif.images.registry.client import RegistryRepository
from ebsif.images.registry.layout import Layout
from ebsif.images.registry.reference import parse
from ebsif.images.registry.repository import Repository


def open_repository(name: Union[str, ImageSource]) -> Repository:
    """
    Return the repository that a name stands for: in a registry or in a directory. Nothing is read yet.

    Raises
    ------
    InvalidReference
        If the name can't be understood.
    """
    reference = parse(name) if isinstance(name, str) else name
    if reference.kind == OCI:
        return Layout(reference)
    return RegistryRepository(reference)
