"""Names of images and artifacts in registries and OCI layout directories, and the repositories that they name."""

from typing import Union

from easybuild.easyblocks.generic.container.credentials import Credentials
from easybuild.easyblocks.generic.container.image.source import IN_REGISTRY, OCI, ImageSource

from ebsif import files
from ebsif.errors import EbsifError
from ebsif.images.registry.client import RegistryRepository
from ebsif.images.registry.layout import Layout
from ebsif.images.registry.repository import Repository

FORMS = "oras://HOST/PATH:TAG or oci:DIRECTORY:TAG"


def open_repository(name: Union[str, ImageSource]) -> Repository:
    """Return the repository that a name stands for: in a registry or in a directory. Nothing is read yet."""
    reference = parse(name) if isinstance(name, str) else name
    return Layout(reference) if reference.kind == OCI else RegistryRepository(reference)


def parse(text: str) -> ImageSource:
    """Return what a text names in a registry or an OCI layout; raise EbsifError with what is wrong."""
    if not text.startswith((*(f"{kind}://" for kind in IN_REGISTRY), f"{OCI}:")):
        raise EbsifError(f"{Credentials.mask(text)}: should be {FORMS}")
    return parse_source(text)


def parse_source(text: str) -> ImageSource:
    """
    Return what a text names, in any place; files and directories may be relative to the current one.

    Raise EbsifError, with what is wrong, if it is not the source of an image.
    """
    kind, _, rest = text.partition(":")
    try:
        return ImageSource.parse(f"{kind}:{files.expanded(rest).absolute()}" if kind == OCI and rest else text)
    except ValueError as error:
        raise EbsifError(f"{Credentials.mask(text)} {error}") from None
