"""
Names of images and artefacts in registries and in OCI layout directories.

``oras://HOST/PATH:TAG`` and ``docker://HOST/PATH:TAG`` as for the runtime, ``oci:DIRECTORY:TAG``; each may end with a
digest, ``@sha256:...``, which then counts instead of the tag.
"""

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Optional

from ebsif.errors import EbsifError

# https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests
PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
# those that every registry has to support
DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")

REGISTRIES = ("oras", "docker")
LAYOUT = "oci"
DOCKER_HUB = "docker.io"
DEFAULT_TAG = "latest"


class InvalidReference(EbsifError):
    """A reference can't be understood; the message says what it should look like."""


@dataclass(frozen=True)
class Reference:
    """
    The name of an image or artefact.

    Attributes
    ----------
    scheme
        ``oras``, ``docker`` or ``oci``.
    place
        Host and path of the repository, or the directory.
    tag
        The tag; for a directory it may be missing.
    digest
        The digest of the manifest, if it is named.
    """

    scheme: str
    place: str
    tag: Optional[str] = None
    digest: Optional[str] = None

    @property
    def host(self) -> str:
        """Host of the registry, with the port if it is named."""
        return self.place.partition("/")[0]

    @property
    def path(self) -> str:
        """Path of the repository in the registry."""
        return self.place.partition("/")[2]

    @property
    def wanted(self) -> Optional[str]:
        """What identifies the manifest: the digest, else the tag."""
        return self.digest or self.tag

    @property
    def is_local(self) -> bool:
        """Whether it is a directory, or a registry on this machine."""
        return self.scheme == LAYOUT or is_loopback(self.host)

    def at(self, digest: str) -> "Reference":
        """Return the reference with a digest, and with the tag that it has."""
        return replace(self, digest=digest)

    def __str__(self) -> str:
        """Return it as people write it."""
        colon = ":" if self.scheme == LAYOUT else "://"
        tag, digest = f":{self.tag}" if self.tag else "", f"@{self.digest}" if self.digest else ""
        return f"{self.scheme}{colon}{self.place}{tag}{digest}"


def is_loopback(host: str) -> bool:
    """Return whether a host, perhaps with a port, is this machine."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def is_reference(text: str) -> bool:
    """Return whether a text is meant as the name of an image in a registry or an OCI layout directory."""
    return text.startswith((*(f"{scheme}://" for scheme in REGISTRIES), f"{LAYOUT}:"))


def parse(text: str) -> Reference:
    """
    Return the reference in a text.

    Raises
    ------
    InvalidReference
        If it isn't one; the message says which part is wrong.
    """
    scheme, _, rest = text.partition(":")
    if not is_reference(text):
        raise InvalidReference(f"{text}: should be oras://HOST/PATH:TAG, docker://HOST/PATH:TAG or oci:DIRECTORY:TAG")
    rest, sign, digest = rest.partition("@")
    if sign and not DIGEST.fullmatch(digest):
        raise InvalidReference(f"{text}: '{digest}' is not a digest (sha256: and 64 digits of 0-9 and a-f)")
    place, tag = split_tag(rest.removeprefix("//"))
    if tag is not None and not TAG.fullmatch(tag):
        raise InvalidReference(f"{text}: '{tag}' is not a tag (letters, digits, _ . and -, at most 128)")
    if scheme == LAYOUT:
        if not place:
            raise InvalidReference(f"{text}: should name a directory: oci:DIRECTORY:TAG")
        return Reference(scheme, place, tag, digest or None)
    place = with_host(place) if scheme == "docker" else place
    host, _, path = place.partition("/")
    if "@" in rest or not host or not PATH.fullmatch(path):
        raise InvalidReference(f"{text}: should be {scheme}://HOST/PATH:TAG, with a path of lower-case letters, "
                               "digits and separators")
    return Reference(scheme, place, tag if tag or digest else DEFAULT_TAG, digest or None)


def split_tag(text):
    """Return the part of a reference before the tag, and the tag (None if there is none)."""
    before, colon, tag = text.rpartition(":")
    return (before, tag) if colon and "/" not in tag else (text, None)


def with_host(place):
    """Return host and path of a repository, which is in Docker Hub if no host is named."""
    first, slash, _ = place.partition("/")
    if slash and (re.search(r"[.:]", first) or first == "localhost"):
        return place
    return f"{DOCKER_HUB}/{place if slash else f'library/{place}'}"
