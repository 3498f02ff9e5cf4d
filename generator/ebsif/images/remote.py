"""Images that are not a SIF file here: in a registry, an archive or an OCI layout, or on a server.

What registries and layouts tell without sending the image is read: manifest, configuration, and a bill of materials
that is attached to it.
"""

import contextlib
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.imagesource import IN_REGISTRY, KINDS, OCI, ImageSource

from ebsif.errors import EbsifError
from ebsif.images.inspection import UNIMPORTANT_LABELS, Inspection
from ebsif.images.packages import read_packages
from ebsif.images.registry.manifest import Descriptor, Manifest
from ebsif.images.registry.opening import open_repository
from ebsif.images.registry.protocol import sif_layer
from ebsif.images.registry.repository import Repository

# Bills of materials, alone or in a statement about an image (https://github.com/in-toto/attestation).
BILLS = ("application/spdx+json", "text/spdx+json", "application/vnd.cyclonedx+json", "application/vnd.in-toto+json")
LARGEST_BILL = 64_000_000  # bytes
MOST_ATTACHED = 20

# In an index of BuildKit: what its manifest is about (https://docs.docker.com/build/metadata/attestations).
ABOUT = "vnd.docker.reference.digest"

FILE_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*\.sif", re.ASCII)


@dataclass
class Remote:
    """
    An image in a registry or an OCI layout.

    Attributes
    ----------
    source : ImageSource
        Where it is, with the digest that it has.
    found : Inspection
        What is known of it; without content, because the image is not here.
    names : list of str
        Names for the SIF file that say which image it is, the best first: of the tag or version, of the file that was
        put there.
    default : str
        The name for the SIF file if no family has one of these.
    layers : int
        Size of what has to be fetched, in bytes.
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
        return {name for name in names if not (name.startswith("/") and is_known) or name == entry
                or name.startswith("/.singularity.d/")}

    def named(self, name: str) -> Inspection:
        """Return what is known, with a name for the SIF file."""
        self.found.resolved = name
        return self.found


def is_source(text: str) -> bool:
    """Return whether a text is meant as a source of an image, also of a kind that isn't known, and not as a file."""
    return "://" in text or text.startswith(tuple(f"{kind}:" for kind in KINDS))


def is_readable(source: ImageSource) -> bool:
    """Return whether a source tells about an image without sending it."""
    return source.kind in (*IN_REGISTRY, OCI)


def look(source: ImageSource) -> Remote:
    """
    Return what a registry or an OCI layout tells about an image.

    Raises
    ------
    EbsifError
        If it has no such image, or can't be reached.
    """
    repository = open_repository(source)
    digest = repository.resolve()
    image = repository.image(digest)
    resolved = source.with_digest(digest)
    found = Inspection(path=str(resolved), resolved="", size=0, source=str(resolved), init="")
    sif = sif_layer(image.content.get("layers"))
    layer = Descriptor.from_json(sif, resolved) if sif else None
    if layer:
        found.sha256, found.size = layer.digest.partition(":")[2], layer.size
    read_configuration(found, configuration(repository, image))
    labels = {**image.annotations, **found.labels}
    found.labels = {name: text for name, text in labels.items() if not UNIMPORTANT_LABELS.match(name)}
    found.created = found.created or day(image.annotations.get("org.opencontainers.image.created"))
    read_bill(found, repository, digest, image)
    stem = (source.repository or Path(source.path).name).rpartition("/")[2]
    versioned = list(names(stem, source.tag or "", found.labels))
    title = layer.title if layer else ""
    return Remote(resolved, found, [*versioned, *([title] if FILE_NAME.fullmatch(title) else [])],
                  # the digest comes first, so that no family takes it for a version
                  (versioned or [f"sha256-{digest.partition(':')[2][:12]}-{stem}.sif"])[0],
                  sum(one.size for one in image.layers))


def configuration(repository, image) -> dict[str, Any]:
    """Return the configuration of an OCI image (dict), empty if it has none that can be read."""
    content = None
    if image.config:
        with contextlib.suppress(ValueError, RecursionError):
            content = json.loads(repository.read(image.config) or "{}")
    return content if isinstance(content, dict) else {}


def read_configuration(found, content):
    """Add the configuration of an image to what is known: labels, environment, entry point, date."""
    config = content.get("config") if isinstance(content.get("config"), dict) else {}
    labels = config.get("Labels")
    found.labels = {str(name): str(text) for name, text in labels.items()} if isinstance(labels, dict) else {}
    found.environment = dict(line.split("=", 1) for line in texts(config.get("Env")) if "=" in line)
    for key, field_name in (("Entrypoint", "entrypoint"), ("Cmd", "cmd")):
        words = texts(config.get(key))
        if words:
            found.entry_point[field_name] = " ".join(words)
    found.created = day(content.get("created"))


def texts(value: Any) -> list[str]:
    """Return the texts in a list; none if it is no list."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def day(text) -> Optional[str]:
    """Return the day in a date and time (20261231), None without a plausible one."""
    match = re.match(r"(\d{4})-(\d\d)-(\d\d)", str(text or ""))
    # builds that can be repeated have the beginning of time
    return "".join(match.groups()) if match and match.group(1) > "1980" else None


def names(stem, tag, labels) -> Iterator[str]:
    """Yield names for the SIF file (str) from tag and label; a tag such as `latest` doesn't say which image it is."""
    for part in (tag if any(map(str.isdigit, tag)) else "", labels.get("org.opencontainers.image.version", "")):
        if part and FILE_NAME.fullmatch(f"{stem}-{part}.sif"):
            yield f"{stem}-{part}.sif"


def read_bill(found, repository: Repository, digest: str, image: Manifest):
    """Add the packages in the first bill of materials of an image that can be read."""
    for blob, manifest in bills(repository, digest, image):
        text = large(repository, blob)
        if "in-toto" in blob.media_type:
            text = predicate(text)
        found.listed = read_packages(text)
        if found.listed:
            found.listed_in = f"the bill of materials {manifest}"
            return


def bills(repository, digest, image) -> Iterator[tuple[Descriptor, str]]:
    """Yield the bills of materials of an image: in its layers, referring to it, or in the index with it."""
    for layer in image.layers:
        if layer.media_type in BILLS:
            yield layer, image.digest
    attached = []
    for one in dict.fromkeys((image.digest, digest)):
        with contextlib.suppress(EbsifError):
            attached += repository.referrers(one)
    with contextlib.suppress(EbsifError):
        index = repository.manifest(digest)
        attached += [one.digest for one in index.manifests if one.annotations.get(ABOUT) == image.digest]
    for one in list(dict.fromkeys(attached))[:MOST_ATTACHED]:
        with contextlib.suppress(EbsifError):
            for layer in repository.manifest(one).layers:
                if layer.media_type in BILLS:
                    yield layer, one


def large(repository, blob) -> str:
    """Return the text of a blob that is larger than a manifest; '' if it is too large, or another one."""
    with contextlib.suppress(EbsifError):
        return repository.read(blob, LARGEST_BILL).decode(errors="replace")
    return ""


def predicate(text) -> str:
    """Return what a statement about an image says (JSON)."""
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        return json.dumps(json.loads(text).get("predicate"))
    return ""
