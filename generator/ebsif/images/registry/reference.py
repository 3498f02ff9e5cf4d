"""Names of images and artefacts in registries and OCI layout directories: `ImageSource`, with errors for commands."""

from pathlib import Path

from easybuild.easyblocks.generic.container.credentials import Credentials
from easybuild.easyblocks.generic.container.imagesource import IN_REGISTRY, OCI, ON_DISK, ImageSource

from ebsif.errors import EbsifError

FORMS = "oras://HOST/PATH:TAG or oci:DIRECTORY:TAG"


class InvalidReference(EbsifError):
    """A name can't be understood; the message says what it should look like."""


def is_reference(text: str) -> bool:
    """Return whether a text is meant as a name in a registry or an OCI layout directory."""
    return text.startswith((*(f"{kind}://" for kind in IN_REGISTRY), f"{OCI}:"))


def parse(text: str) -> ImageSource:
    """
    Return what a text names in a registry or an OCI layout directory; see `parse_source`.

    Raises
    ------
    InvalidReference
        If it doesn't name anything there; the message says what is wrong.
    """
    if not is_reference(text):
        raise InvalidReference(f"{Credentials.mask(text)}: should be {FORMS}")
    return parse_source(text)


def parse_source(text: str) -> ImageSource:
    """
    Return what a text names, in any place; files and directories may be relative to the current one.

    Raises
    ------
    InvalidReference
        If it is not the source of an image; the message says what is wrong.
    """
    kind, _, rest = text.partition(":")
    try:
        return ImageSource.parse(f"{kind}:{Path(rest).expanduser().absolute()}" if kind in ON_DISK and rest else text)
    except ValueError as error:
        raise InvalidReference(f"{Credentials.mask(text)} {error}") from None
