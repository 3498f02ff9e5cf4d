"""Manifests and descriptors of OCI: https://github.com/opencontainers/image-spec."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from ebsif.errors import EbsifError
from ebsif.images.registry.protocol import MANIFESTS, fits_this_machine
from ebsif.report import output

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
# those that every registry has to support
DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
INDEXES = (INDEX, "application/vnd.docker.distribution.manifest.list.v2+json")
TITLE = "org.opencontainers.image.title"


class ContentError(EbsifError):
    """What a registry or a directory contains is not what it should be; the message says what."""


@dataclass(frozen=True)
class Descriptor:
    """
    What identifies a manifest or a blob.

    Attributes
    ----------
    media_type
        Its media type.
    digest
        ``sha256:`` and so on.
    size
        Number of bytes.
    annotations
        Values by name.
    platform
        In an index: system and architecture.
    """

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    platform: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, media_type: str, content: bytes, **annotations: str) -> "Descriptor":
        """Return the descriptor of some content."""
        return cls(media_type, f"sha256:{hashlib.sha256(content).hexdigest()}", len(content), annotations)

    @classmethod
    def from_json(cls, value: Any, where: object) -> "Descriptor":
        """
        Return the descriptor in a manifest, of which `where` says which one it is.

        Raises
        ------
        ContentError
            If it isn't one.
        """
        value = value if isinstance(value, dict) else {}
        digest, size = value.get("digest"), value.get("size")
        kinds = [value.get("annotations") or {}, value.get("platform") or {}]
        if not (isinstance(digest, str) and DIGEST.fullmatch(digest) and isinstance(size, int) and size >= 0
                and all(isinstance(one, dict) for one in kinds)):
            raise ContentError(f"{where}: a part of the manifest has no valid digest or size")
        return cls(str(value.get("mediaType", "")), digest, size, texts(kinds[0]), kinds[1])

    @property
    def title(self) -> str:
        """The name of the file; empty if it has none."""
        return self.annotations.get(TITLE, "")

    def as_json(self) -> dict[str, Any]:
        """Return it as part of a manifest."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size,
                **({"annotations": dict(self.annotations)} if self.annotations else {}),
                **({"platform": dict(self.platform)} if self.platform else {})}

    def check(self, content: bytes, where: object) -> bytes:
        """Return the content if it has this digest; `where` says where it is from. Raise ContentError if not."""
        algorithm, _, digest = self.digest.partition(":")
        found = hashlib.new(algorithm, content).hexdigest()
        if found != digest:
            raise ContentError(f"{where}: {self.digest} has the wrong content: altered or incomplete "
                               f"({algorithm}:{found})")
        return content


@dataclass(frozen=True)
class Manifest:
    """
    A manifest of an image or artefact, or an index of several.

    Attributes
    ----------
    descriptor
        Its own media type, digest and size.
    content
        The JSON in it.
    """

    descriptor: Descriptor
    content: dict[str, Any]

    @classmethod
    def read(cls, text: bytes, media_type: str, where: object) -> "Manifest":
        """
        Return the manifest in a text.

        Raises
        ------
        ContentError
            If it isn't one; `where` says where it is from.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or not isinstance(content.get("annotations") or {}, dict):
            raise ContentError(f"{where}: not the manifest of an image or artefact")
        media_type = content.get("mediaType") or media_type.partition(";")[0] or implied_type(content)
        if media_type not in MANIFESTS.split(", "):
            raise ContentError(f"{where}: manifests of this kind are not supported ({output.escape(media_type)})")
        found = cls(Descriptor.of(media_type, text), content)
        # each is checked when it is made
        found.layers, found.manifests, found.config  # noqa: B018
        return found

    @property
    def digest(self) -> str:
        """The digest of the manifest."""
        return self.descriptor.digest

    @property
    def is_index(self) -> bool:
        """Whether it is an index of manifests."""
        return self.descriptor.media_type in INDEXES

    @property
    def annotations(self) -> dict[str, str]:
        """Values by name."""
        return texts(self.content.get("annotations") or {})

    @property
    def artifact_type(self) -> str:
        """The kind of artefact; the media type of the configuration if it is not named, as OCI wants it."""
        return self.content.get("artifactType") or (self.config.media_type if self.config else "")

    @property
    def config(self) -> Optional[Descriptor]:
        """The configuration, None if there is none."""
        return Descriptor.from_json(self.content["config"], self.digest) if "config" in self.content else None

    @property
    def layers(self) -> list[Descriptor]:
        """The layers, or the files of an artefact."""
        return self.descriptors("layers")

    @property
    def manifests(self) -> list[Descriptor]:
        """The manifests in an index."""
        return self.descriptors("manifests")

    def descriptors(self, key: str) -> list[Descriptor]:
        """Return the descriptors in a list of the manifest."""
        found = self.content.get(key) or []
        if not isinstance(found, list):
            raise ContentError(f"{self.digest}: '{key}' in the manifest is not a list")
        return [Descriptor.from_json(one, self.digest) for one in found]


def texts(annotations: Mapping[Any, Any]) -> dict[str, str]:
    """Return those annotations that are valid: texts."""
    return {name: value for name, value in annotations.items() if isinstance(value, str)}


def implied_type(content: dict[str, Any]) -> str:
    """Return the media type of a manifest that doesn't name it, as it needn't in OCI; '' if it isn't one."""
    return INDEX if "manifests" in content else MANIFEST if "layers" in content else ""


def for_this_machine(manifests: Iterable[Descriptor]) -> Optional[Descriptor]:
    """Return the manifest in an index for Linux and the architecture of this machine, None if there is none."""
    return next((one for one in manifests if fits_this_machine(one.platform)), None)
