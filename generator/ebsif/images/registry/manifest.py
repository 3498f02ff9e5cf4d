"""Manifests and descriptors of OCI: https://github.com/opencontainers/image-spec."""

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from easybuild.easyblocks.generic.container.image.layout import is_digest

from ebsif.errors import EbsifError
from ebsif.report import output

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
INDEXES = (INDEX, "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = (MANIFEST, "application/vnd.docker.distribution.manifest.v2+json", *INDEXES)
# Media types of an image that Apptainer or SingularityCE has pushed (oras://); the second one is that of old versions.
SIF_LAYERS = ("application/vnd.sylabs.sif.layer.v1.sif", "appliciation/vnd.sylabs.sif.layer.tar")
TITLE = "org.opencontainers.image.title"
MOST = 4 * 1024 * 1024  # bytes of a manifest: the limit of registries

# The architecture of this machine as images name it, which is as Go does.
THIS_MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


class RegistryContentError(EbsifError):
    """What a registry or a directory contains is not what it should be; the message says what."""


@dataclass(frozen=True)
class Descriptor:
    """What identifies a manifest or a blob; the platform (system and architecture) is in indexes only."""

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
        """Return the descriptor in the manifest that messages call `where`. Raise ContentError if it isn't one."""
        value = value if isinstance(value, dict) else {}
        digest, size = value.get("digest"), value.get("size")
        annotations, machine = (value.get(key) or {} for key in ("annotations", "platform"))
        if not (
            is_digest(digest)
            and isinstance(size, int)
            and size >= 0
            and isinstance(annotations, dict)
            and isinstance(machine, dict)
        ):
            raise RegistryContentError(f"{where}: a part of the manifest has no valid digest or size")
        return cls(str(value.get("mediaType", "")), digest, size, texts(annotations), machine)

    @property
    def title(self) -> str:
        """The name of the file; empty if it has none."""
        return self.annotations.get(TITLE, "")

    @property
    def fits_this_machine(self) -> bool:
        """Whether an index names it for Linux and the architecture of this machine, or for no platform."""
        return (
            self.platform.get("os", "linux") == "linux"
            and self.platform.get("architecture", THIS_MACHINE) == THIS_MACHINE
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as part of a manifest."""
        return {
            "mediaType": self.media_type,
            "digest": self.digest,
            "size": self.size,
            **({"annotations": dict(self.annotations)} if self.annotations else {}),
            **({"platform": dict(self.platform)} if self.platform else {}),
        }

    def hash(self) -> Any:
        """Return what computes such a digest."""
        return hashlib.new(self.digest.partition(":")[0])

    def check(self, content: bytes, where: object) -> bytes:
        """Return the content if it has this digest. Raise ContentError if not; `where` says where it is from."""
        found = self.hash()
        found.update(content)
        if found.hexdigest() != self.digest.partition(":")[2]:
            raise RegistryContentError(f"{where}: {self.digest} has the wrong content: it was altered, or cut")
        return content


@dataclass(frozen=True)
class Manifest:
    """
    A manifest of an image or artifact, or an index of several.

    `descriptor` is its own; `content` is the JSON in it; `layers` of an artifact are its files; `manifests` are those
    in an index.
    """

    descriptor: Descriptor
    content: dict[str, Any]
    annotations: dict[str, str]
    config: Optional[Descriptor]
    layers: list[Descriptor]
    manifests: list[Descriptor]

    @classmethod
    def read(cls, text: bytes, where: object) -> "Manifest":
        """Return the manifest in a text. Raise ContentError if it isn't one; `where` says where it is from."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or not isinstance(content.get("annotations") or {}, dict):
            raise RegistryContentError(f"{where}: not the manifest of an image or artifact")
        # OCI doesn't require the media type
        implied = INDEX if "manifests" in content else MANIFEST if "layers" in content else ""
        kind = content.get("mediaType") or implied
        if kind not in MANIFESTS:
            raise RegistryContentError(
                f"{where}: manifests of this kind are not supported ({output.escape(str(kind))})"
            )
        own = Descriptor.of(kind, text)
        parts = {}
        for key in ("layers", "manifests"):
            listed = content.get(key) or []
            if not isinstance(listed, list):
                raise RegistryContentError(f"{where}: '{key}' in the manifest is not a list")
            parts[key] = [Descriptor.from_json(one, own.digest) for one in listed]
        config = Descriptor.from_json(content["config"], own.digest) if "config" in content else None
        return cls(own, content, texts(content.get("annotations") or {}), config, parts["layers"], parts["manifests"])

    @property
    def digest(self) -> str:
        """The digest of the manifest."""
        return self.descriptor.digest

    @property
    def is_index(self) -> bool:
        """Whether it is an index of manifests."""
        return self.descriptor.media_type in INDEXES

    @property
    def artifact_type(self) -> str:
        """The kind of artifact; the media type of the configuration if it is not named, as OCI wants it."""
        return self.content.get("artifactType") or (self.config.media_type if self.config else "")

    @property
    def sif(self) -> Optional[Descriptor]:
        """The SIF file among the layers, with which there may be a bill of materials; None unless there is just one."""
        files = [one for one in self.layers if one.media_type in SIF_LAYERS and one.digest.startswith("sha256:")]
        return files[0] if len(files) == 1 else None


def texts(annotations: Mapping[Any, Any]) -> dict[str, str]:
    """Return those annotations that are valid: texts."""
    return {name: value for name, value in annotations.items() if isinstance(value, str)}


def for_this_machine(manifests: Iterable[Descriptor]) -> Optional[Descriptor]:
    """Return the manifest in an index for Linux and the architecture of this machine, None if there is none."""
    return next((one for one in manifests if one.fits_this_machine), None)
