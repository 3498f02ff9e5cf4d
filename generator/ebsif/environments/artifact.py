"""
The environment of a module as an OCI artifact, in a registry or an OCI layout directory.

Its files are those of `Portable`. It belongs to an image, whose digest is in the lock and in the annotations.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from easybuild.easyblocks.generic.container.image.source import DOCKER, ImageSource
from easybuild.easyblocks.generic.container.record.lockfile import Record, RecordError
from easybuild.easyblocks.generic.container.values import SQUASHFS, format_size

from ebsif.environments import repeating
from ebsif.environments.portable import LOCK, Portable
from ebsif.errors import EbsifError
from ebsif.images.registry.manifest import MANIFEST, TITLE, Descriptor, Manifest
from ebsif.images.registry.reference import parse
from ebsif.images.registry.repository import Progress, Repository
from ebsif.installed.sbom import BILL_OF_MATERIALS
from ebsif.report.steps import Now, Steps

# Kind of the artifact, which is also the media type of its configuration, as for registries that know no kinds.
KIND = "application/vnd.ebsif.environment.v1+json"
MEDIA_TYPES = {
    SQUASHFS: "application/vnd.ebsif.user-software.v1.squashfs",
    LOCK: "application/vnd.ebsif.lock.v1+json",
    BILL_OF_MATERIALS: "application/vnd.cyclonedx+json",
}
EASYCONFIG = "application/vnd.easybuild.easyconfig.v1"
# https://github.com/opencontainers/image-spec/blob/main/annotations.md
ANNOTATION = "org.opencontainers.image."


@dataclass(frozen=True)
class Artifact:
    """An environment in a registry or directory, with its manifest and the record in it."""

    repository: Repository
    manifest: Manifest
    record: Record

    @property
    def name(self) -> str:
        """What identifies it: its reference with the digest."""
        return str(self.repository.reference.with_digest(self.manifest.digest))

    @property
    def squashfs(self) -> Descriptor:
        """The SquashFS file with user software."""
        return part(self.manifest, SQUASHFS, self.repository)

    def text(self, name: str) -> str:
        """Return the text of a file in it; see `Repository.read`."""
        return self.repository.read(part(self.manifest, name, self.repository)).decode()


def reference_to_push(text: str) -> ImageSource:
    """Return the place for an artifact. Raise EbsifError if it is none."""
    reference = parse(text)
    if reference.kind == DOCKER:
        raise EbsifError(f"{text}: an environment is not an image for Docker: write oras:// instead of docker://")
    if reference.digest or not reference.tag:
        raise EbsifError(
            f"{text}: give a tag, and no digest: {reference.with_digest(None)}{'' if reference.tag else ':1'}"
        )
    return reference


def annotations_of(portable: Portable) -> dict[str, str]:
    """Return the annotations of an artifact: what it is, and to which image it belongs."""
    record = portable.record
    values = {
        "title": portable.module,
        "version": record.full_version,
        "created": portable.installed.isoformat(),
        "licenses": portable.license,
        "base.name": record.image.file,
        "base.digest": f"sha256:{record.image.sha256}",
    }
    return {f"{ANNOTATION}{name}": value for name, value in values.items() if value}


@contextlib.contextmanager
def transferring(text: str, size: int) -> Iterator[Progress]:
    """Show a step while a number of bytes is transferred; yield the function to call with the number that is done."""
    done = 0

    def progress(number: int) -> None:
        nonlocal done
        done = number

    with Steps() as steps:
        steps.begin(text, watch=lambda: Now(f"{format_size(done)} of {format_size(size)}", done, size))
        yield progress
        steps.detail(format_size(size))


def push(portable: Portable, repository: Repository, progress: Progress) -> Manifest:
    """Write an environment under the tag of the reference, and return its manifest, which is written last."""
    image = portable.record.image
    config = json.dumps(
        {"module": portable.module, "image": {"file": image.file, "sha256": image.sha256}}, sort_keys=True
    ).encode()
    described = Descriptor.of(KIND, config)
    repository.upload(described, config)
    layers = []
    if portable.squashfs:
        digest = f"sha256:{portable.record.user_software[SQUASHFS]}"
        layers.append(Descriptor(MEDIA_TYPES[SQUASHFS], digest, portable.squashfs.stat().st_size, {TITLE: SQUASHFS}))
        repository.upload(layers[0], portable.squashfs, progress)
    for name, text in portable.texts.items():
        content = text.encode()
        layers.append(Descriptor.of(MEDIA_TYPES.get(name, EASYCONFIG), content, **{TITLE: name}))
        repository.upload(layers[-1], content)
    content = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": KIND,
            "config": described.as_json(),
            "layers": [one.as_json() for one in layers],
            "annotations": annotations_of(portable),
        },
        indent=2,
    ).encode()
    manifest = Manifest.read(content, repository.reference)
    repository.put_manifest(manifest.descriptor, content, repository.reference.tag)
    return manifest


def read(repository: Repository) -> Artifact:
    """Return the environment in a repository. Raise EbsifError if there is none, or its lock can't be repeated."""
    manifest = repository.manifest()
    if manifest.artifact_type != KIND:
        is_image = manifest.sif or manifest.is_index
        raise EbsifError(
            f"{repository.reference} is not an environment that `ebsif push` has written"
            + (f": an image? `ebsif add {repository.reference}` adds it to the catalog" if is_image else "")
        )
    place = f"the lock in {repository.reference}"
    try:
        record = Record.parse(repository.read(part(manifest, LOCK, repository)))
    except RecordError as error:
        raise EbsifError(f"{place}: {error}") from None
    return Artifact(repository, manifest, repeating.repeatable(record, place))


def part(manifest: Manifest, name: str, repository: Repository) -> Descriptor:
    """Return the file of an artifact with a name and the media type for it."""
    kind = MEDIA_TYPES.get(name, EASYCONFIG)
    layer = next((one for one in manifest.layers if one.title == name and one.media_type == kind), None)
    if not layer:
        raise EbsifError(f"{repository.reference} has no {name}: it is damaged, or of a module without packages")
    return layer


def problem(artifact: Artifact) -> str:
    """Return why an artifact can't be used; empty if it can."""
    digest = artifact.record.user_software.get(SQUASHFS)
    is_right = artifact.squashfs.digest == f"sha256:{digest}"
    return "" if is_right else f"{artifact.name}: {SQUASHFS} doesn't match the lock"


def download(artifact: Artifact, path: Path, progress: Progress) -> None:
    """Fetch the user software of an artifact to a file. Raise EbsifError if it isn't the one that its lock names."""
    if wrong := problem(artifact):
        raise EbsifError(wrong)
    artifact.repository.download(artifact.squashfs, path, progress)
