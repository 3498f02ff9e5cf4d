"""Names of images and artefacts in registries and OCI layout directories: `ImageSource`, with errors for commands."""

from pathlib import Path

from easybuild.easyblocks.generic.container.imagesource import IN_REGISTRY, OCI, ImageSource

from ebsif.errors import EbsifError

FORMS = "oras://HOST/PATH:TAG, docker://HOST/PATH:TAG or oci:DIRECTORY:TAG"


class InvalidReference(EbsifError):
    """A name can't be understood; the message says what it should look like."""


def is_reference(text: str) -> bool:
    """Return whether a text is meant as a name in a registry or an OCI layout directory."""
    return text.startswith((*(f"{kind}://" for kind in IN_REGISTRY), f"{OCI}:"))


def parse(text: str) -> ImageSource:
    """
    Return what a text names; a directory may be relative to the current one.

    Raises
    ------
    InvalidReference
        If it doesn't name anything in a registry or an OCI layout directory; the message says what is wrong.
    """
    if not is_reference(text):
        raise InvalidReference(f"{text}: should be {FORMS}")
    kind, _, rest = text.partition(":")
    try:
        return ImageSource.parse(f"{OCI}:{Path(rest).expanduser().absolute()}" if kind == OCI and rest else text)
    except ValueError as error:
        raise InvalidReference(f"{text} {error}") from None
