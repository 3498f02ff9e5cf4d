"""
The environment of a module as an OCI artefact, in a registry or an OCI layout directory.

Its files are those of `Portable`. It belongs to an image, whose digest is in the lock and in the annotations.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.imagesource import DOCKER, ImageSource
from easybuild.easyblocks.generic.container.usersoftware import SQUASHFS

from ebsif.environments import repeating
from ebsif.environments.portable import LOCK, Portable
from ebsif.errors import EbsifError
from ebsif.images.registry.manifest import MANIFEST, TITLE, Descriptor, Manifest
from ebsif.images.registry.reference import parse
from ebsif.images.registry.repository import Progress, Repository, is_content
from ebsif.installed import lock
from ebsif.installed.sbom import BILL_OF_MATERIALS

# Kind of the artefact, which is also the media type of its configuration, as for registries that know no kinds.
KIND = "application/vnd.ebsif.environment.v1+json"
MEDIA_TYPES = {SQUASHFS: "application/vnd.ebsif.user-software.v1.squashfs", LOCK: "application/vnd.ebsif.lock.v1+json",
               BILL_OF_MATERIALS: "application/vnd.cyclonedx+json"}
EASYCONFIG = "application/vnd.easybuild.easyconfig.v1"
# https://github.com/opencontainers/image-spec/blob/main/annotations.md
ANNOTATION = "org.opencontainers.image."


class ArtefactError(EbsifError):
    """An artefact can't be written or used; the message says why and what to do."""


@dataclass(frozen=True)
class Artefact:
    """
    An environment in a registry or directory.

    Attributes
    ----------
    repository
        Where it is.
    manifest
        Its manifest.
    record
        The lock in it.
    """

    repository: Repository
    manifest: Manifest
    record: dict[str, Any]

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
    """
    Return the place for an artefact.

    Raises
    ------
    EbsifError
        If it is none.
    """
    found = parse(text)
    if found.kind == DOCKER:
        raise ArtefactError(f"{text}: an environment is not an image for Docker: write oras:// instead of docker://")
    if found.digest or not found.tag:
        raise ArtefactError(f"{text}: name a tag, and no digest: {found.with_digest(None)}{'' if found.tag else ':1'}")
    return found


def annotations_of(portable: Portable) -> dict[str, str]:
    """Return the annotations of an artefact: what it is, and to which image it belongs."""
    module, image = portable.record.get(lockfile.MODULE, {}), portable.image
    base, digest = base_of(image)
    values = {"title": portable.module, "version": f"{module.get('version', '')}{module.get('versionsuffix', '')}",
              "description": f"Python packages on top of {image['file']}: {', '.join(portable.packages)}"[:1000],
              "created": portable.installed.isoformat(), "licenses": portable.license, "base.name": base,
              "base.digest": digest}
    return {f"{ANNOTATION}{name}": value for name, value in values.items() if value}


def base_of(image: dict[str, Any]) -> tuple[str, str]:
    """Return name and digest of an image: those in the registry that it is from, else those of its file."""
    source, digest = image.get("source") or "", image.get("source_digest")
    if digest and "://" in source:
        return source.partition("://")[2].partition("@")[0], digest
    return image["file"], f"sha256:{image['sha256']}"


def push(portable: Portable, repository: Repository, progress: Progress) -> Manifest:
    """
    Write an environment, the manifest last, and return that.

    Parameters
    ----------
    portable
        The environment.
    repository
        Where to write it; its reference has the tag.
    progress
        For the SquashFS file.
    """
    config = json.dumps({"module": portable.module, "image": {
        key: portable.image.get(key) for key in ("file", "sha256")}}, sort_keys=True).encode()
    described = Descriptor.of(KIND, config)
    repository.upload(described, config)
    layers = []
    if portable.squashfs:
        digest = f"sha256:{portable.record[lockfile.USER_FILES][SQUASHFS]}"
        layers.append(Descriptor(MEDIA_TYPES[SQUASHFS], digest, portable.squashfs.stat().st_size, {TITLE: SQUASHFS}))
        repository.upload(layers[0], portable.squashfs, progress)
    for name, text in portable.texts.items():
        content = text.encode()
        layers.append(Descriptor.of(MEDIA_TYPES.get(name, EASYCONFIG), content, **{TITLE: name}))
        repository.upload(layers[-1], content)
    text = json.dumps({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": KIND, "config": described.as_json(),
        "layers": [one.as_json() for one in layers], "annotations": annotations_of(portable)}, indent=2).encode()
    manifest = Manifest.read(text, repository.reference)
    repository.put_manifest(manifest.descriptor, text, repository.reference.tag)
    return manifest


def read(repository: Repository) -> Artefact:
    """
    Return the environment in a repository.

    Raises
    ------
    EbsifError
        If it can't be read, is not an environment, or its lock can't be repeated.
    """
    manifest = repository.manifest()
    if manifest.artifact_type != KIND:
        is_image = manifest.sif or manifest.is_index
        raise ArtefactError(f"{repository.reference} is not an environment that `ebsif push` has written" + (
            f": an image? `ebsif add {repository.reference}` adds it to the catalogue" if is_image else ""))
    content, place = repository.read(part(manifest, LOCK, repository)), f"the lock in {repository.reference}"
    return Artefact(repository, manifest, repeating.repeatable(lock.parse(content, place), place))


def part(manifest: Manifest, name: str, repository: Repository) -> Descriptor:
    """Return the file of an artefact with a name and the media type for it."""
    kind = MEDIA_TYPES.get(name, EASYCONFIG)
    found = next((one for one in manifest.layers if one.title == name and one.media_type == kind), None)
    if not found:
        raise ArtefactError(f"{repository.reference} has no {name}: it is damaged, or of a module without packages")
    return found


def is_user_software(squashfs: Descriptor, record: dict[str, Any]) -> bool:
    """Return whether a SquashFS file is the one that a lock names."""
    digest = record.get(lockfile.USER_FILES, {}).get(SQUASHFS)
    return digest is not None and squashfs.digest == f"sha256:{digest}"


def problem(artefact: Artefact) -> str:
    """Return why an artefact can't be used; empty if it can."""
    return "" if is_user_software(artefact.squashfs, artefact.record) else \
        f"{artefact.name}: {SQUASHFS} doesn't match the lock"


def is_downloaded(artefact: Artefact, path: Path) -> bool:
    """Return whether a file is the user software of an artefact."""
    return is_content(path, artefact.squashfs)


def download(artefact: Artefact, path: Path, progress: Progress) -> None:
    """Fetch the user software of an artefact to a file. Raise ArtefactError if it isn't the one that its lock names."""
    if wrong := problem(artefact):
        raise ArtefactError(wrong)
    artefact.repository.download(artefact.squashfs, path, progress)
