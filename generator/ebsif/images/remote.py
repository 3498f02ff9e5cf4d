"""Images that are not a SIF file here: in a registry or an OCI layout, or on a server.

What registries and layouts tell without sending the image is read: manifest, configuration, and a bill of materials
that is attached to it.
"""

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.image.source import IN_REGISTRY, KINDS, OCI, OTHER_KINDS, ImageSource

from ebsif.errors import EbsifError
from ebsif.files import IMAGES
from ebsif.images.inspection import Inspection, important, read_packages
from ebsif.images.registry.manifest import Descriptor, Manifest
from ebsif.images.registry.reference import open_repository
from ebsif.images.registry.repository import Repository

# Bills of materials, alone or in a statement about an image (https://github.com/in-toto/attestation).
STATEMENT = "application/vnd.in-toto+json"
BILLS = ("application/spdx+json", "text/spdx+json", "application/vnd.cyclonedx+json", STATEMENT)
LARGEST_BILL = 64_000_000  # bytes
MOST_ATTACHED = 20

# In an index of BuildKit: what its manifest is about (https://docs.docker.com/build/metadata/attestations).
ABOUT = "vnd.docker.reference.digest"
LABEL = "org.opencontainers.image."

FILE_NAME = re.compile(rf"[A-Za-z0-9][\w.+-]*(?:{'|'.join(map(re.escape, IMAGES))})", re.ASCII)


@dataclass
class Remote:
    """
    An image in a registry or an OCI layout, with its source (and digest there) and what is known without its content.

    `names` for the SIF file say which image it is, the best first: of the tag or version, of the file that was put
    there; `default` is for images of which no family has one of these. `layers` is the size in bytes to be fetched.
    """

    source: ImageSource
    found: Inspection
    names: list[str] = field(default_factory=list)
    default: str = ""
    layers: int = 0

    def programs(self, names: Collection[str]) -> set[str]:
        """Return those of the names that may be programs in the image: of paths only the entry point."""
        entry = self.found.entry_point.get("entrypoint", "")
        # SIF files have no configuration in the registry
        is_known = bool(self.found.environment or self.found.entry_point)
        return {
            name
            for name in names
            if not (name.startswith("/") and is_known) or name == entry or name.startswith("/.singularity.d/")
        }

    def named(self, name: str) -> Inspection:
        """Return what is known, with a name for the SIF file."""
        return replace(self.found, resolved=name)


def is_source(text: str) -> bool:
    """Return whether a text is meant as a source of an image, also of a kind that isn't known, and not as a file."""
    return "://" in text or text.startswith(tuple(f"{kind}:" for kind in (*KINDS, *OTHER_KINDS)))


def is_readable(source: ImageSource) -> bool:
    """Return whether a source tells about an image without sending it."""
    return source.kind in (*IN_REGISTRY, OCI)


def look(source: ImageSource) -> Remote:
    """Return what a registry or an OCI layout tells about an image. Raise EbsifError if that is not possible."""
    repository = open_repository(source)
    digest = repository.resolve()
    image = repository.image(digest)
    resolved = source.with_digest(digest)
    found = Inspection(
        path=str(resolved),
        resolved="",
        size=image.sif.size if image.sif else 0,
        sha256=image.sif.digest.partition(":")[2] if image.sif else None,
        source=str(resolved),
        init="",
    )
    found = with_bill(with_configuration(found, configuration(repository, image), image), repository, digest, image)
    stem = (source.repository or Path(source.path).name).rpartition("/")[2]
    # a tag such as `latest` doesn't say which image it is
    tag = source.tag if source.tag and any(map(str.isdigit, source.tag)) else ""
    versioned = [f"{stem}-{version}.sif" for version in (tag, found.labels.get(f"{LABEL}version")) if version]
    names = list(filter(FILE_NAME.fullmatch, [*versioned, image.sif.title if image.sif else ""]))
    # the digest comes first, so that no family takes it for a version
    default = next((name for name in names if name in versioned), f"sha256-{digest.partition(':')[2][:12]}-{stem}.sif")
    return Remote(resolved, found, names, default, sum(one.size for one in image.layers))


def configuration(repository: Repository, image: Manifest) -> dict[str, Any]:
    """Return the configuration of an OCI image, empty if it has none that can be read."""
    content = None
    if image.config:
        with contextlib.suppress(ValueError, RecursionError):
            content = json.loads(repository.read(image.config) or "{}")
    return content if isinstance(content, dict) else {}


def with_configuration(found: Inspection, content: Mapping[str, Any], image: Manifest) -> Inspection:
    """Return an image with its configuration: labels (also those of the manifest), environment, entry point, date."""
    config = content.get("config")
    config = config if isinstance(config, dict) else {}
    labels = config.get("Labels")
    own = {str(name): str(text) for name, text in labels.items()} if isinstance(labels, dict) else {}
    words = {key.lower(): " ".join(texts(config.get(key))) for key in ("Entrypoint", "Cmd")}
    return replace(
        found,
        labels=important({**image.annotations, **own}),
        environment=dict(line.split("=", 1) for line in texts(config.get("Env")) if "=" in line),
        entry_point={key: text for key, text in words.items() if text},
        created=day(content.get("created")) or day(image.annotations.get(f"{LABEL}created")),
    )


def texts(value: Any) -> list[str]:
    """Return the texts in a list; none if it is no list."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def day(text: Any) -> Optional[str]:
    """Return the day in a date and time (20261231), None without a plausible one."""
    match = re.match(r"(\d{4})-(\d\d)-(\d\d)", str(text or ""))
    # builds that can be repeated have the beginning of time
    return "".join(match.groups()) if match and match.group(1) > "1980" else None


def with_bill(found: Inspection, repository: Repository, digest: str, image: Manifest) -> Inspection:
    """Return an image with the packages in the first bill of materials of it that can be read."""
    for blob, manifest in bills(repository, digest, image):
        with contextlib.suppress(EbsifError, ValueError, AttributeError, RecursionError):
            text = repository.read(blob, LARGEST_BILL).decode(errors="replace")
            if blob.media_type == STATEMENT:
                text = json.dumps(json.loads(text).get("predicate"))
            if listed := read_packages(text):
                return replace(found, listed=listed, listed_in=f"the bill of materials {manifest}")
    return found


def bills(repository: Repository, digest: str, image: Manifest) -> Iterator[tuple[Descriptor, str]]:
    """Yield the bills of materials of an image: in its layers, referring to it, or in the index with it."""
    yield from ((layer, image.digest) for layer in image.layers if layer.media_type in BILLS)
    attached = []
    for one in dict.fromkeys((image.digest, digest)):
        with contextlib.suppress(EbsifError):
            attached += repository.referrers(one)
    with contextlib.suppress(EbsifError):
        index = repository.manifest(digest)
        attached += [one.digest for one in index.manifests if one.annotations.get(ABOUT) == image.digest]
    for one in list(dict.fromkeys(attached))[:MOST_ATTACHED]:
        with contextlib.suppress(EbsifError):
            yield from ((layer, one) for layer in repository.manifest(one).layers if layer.media_type in BILLS)
