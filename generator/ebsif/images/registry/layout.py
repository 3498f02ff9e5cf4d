"""
A directory with an OCI layout: images and artifacts as in a registry, without one.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import contextlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Optional, Union

from easybuild.easyblocks.generic.container.image import layout
from easybuild.easyblocks.generic.container.image.source import ImageSource

from ebsif import files
from ebsif.errors import EbsifError
from ebsif.images.registry.connection import TransferError
from ebsif.images.registry.manifest import INDEX, Descriptor, RegistryContentError, for_this_machine
from ebsif.images.registry.repository import Progress, Repository, checked, is_content, nothing, write


class Layout(Repository):
    """The images and artifacts in a directory."""

    def __init__(self, reference: ImageSource):
        """Keep the directory, which doesn't need to exist."""
        super().__init__(reference)
        self.folder = Path(reference.path)

    def index(self) -> dict[str, Any]:
        """Return the JSON of the index of the directory, in which 'manifests' is a list."""
        try:
            return layout.read_index(str(self.folder))
        except layout.LayoutError as error:
            raise RegistryContentError(str(error)) from None

    def descriptors(self, entries: Iterable[layout.IndexEntry]) -> list[Descriptor]:
        """Return the manifests that entries of the index name."""
        return [Descriptor.from_json(one, self.folder / layout.INDEX) for one in entries]

    def entries(self) -> list[Descriptor]:
        """Return the manifests in the index of the directory."""
        return self.descriptors(self.index()["manifests"])

    def fetch_manifest(self, wanted: Optional[str]) -> bytes:
        """Return the text of a manifest; without a tag the only one, or that for this machine."""
        entries = self.index()["manifests"]
        named = self.descriptors(layout.entries_named(entries, wanted))
        if not named and wanted and ":" in wanted:
            # a manifest that another index names
            named = [Descriptor("", wanted, 0)]
        chosen = (
            named[0]
            if len({one.digest for one in named}) == 1
            else for_this_machine(one for one in named if one.platform)
        )
        if not chosen:
            problem = f"no manifest with the tag {wanted}" if wanted else "several manifests: choose a tag"
            raise RegistryContentError(
                f"{self.folder} has {problem if entries else 'no manifest'} (tags: {', '.join(self.tags()) or 'none'})"
            )
        try:
            text = self.path_of(chosen.digest).read_bytes()
        except FileNotFoundError:
            raise RegistryContentError(f"{self.folder}: the manifest {chosen.digest} is missing") from None
        return chosen.check(text, self.reference)

    def referrers(self, digest: str) -> list[str]:
        """Return the digests of the manifests that refer to one."""
        found = []
        for one in self.entries():
            with contextlib.suppress(EbsifError):
                subject = self.manifest(one.digest).content.get("subject")
                if isinstance(subject, dict) and subject.get("digest") == digest:
                    found.append(one.digest)
        return found

    def path_of(self, digest: str) -> Path:
        """Return the file with the content of a digest."""
        return Path(layout.blob_path(str(self.folder), digest))

    def tags(self) -> list[str]:
        """Return all tags, sorted."""
        return sorted({tag for tag in map(layout.tag_of, self.index()["manifests"]) if tag})

    def open(self, blob: Descriptor) -> IO[bytes]:
        """Return the content of a blob as an open file."""
        try:
            return self.path_of(blob.digest).open("rb")
        except OSError as error:
            what = "is missing" if isinstance(error, FileNotFoundError) else f"can't be read: {error.strerror}"
            raise TransferError(f"{self.reference}: the blob {blob.digest} {what}") from None

    def upload(self, blob: Descriptor, content: Union[bytes, Path], progress: Progress = nothing) -> None:
        """Put a blob there, unless it is there."""
        path = self.path_of(blob.digest)
        if is_content(path, blob):
            return
        with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
            write(checked(file, blob, self.folder), path, progress)

    def put_manifest(self, descriptor: Descriptor, text: bytes, tag: Optional[str]) -> None:
        """Put a manifest there, and let a tag name it, which then names no other."""
        self.upload(descriptor, text)
        with files.locked(self.folder):
            index: dict[str, Any] = {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}
            if files.is_there(self.folder / layout.INDEX):
                self.entries()  # raises if one is damaged
                index = self.index()
            if not files.is_there(self.folder / layout.MARK):
                files.replace(self.folder / layout.MARK, json.dumps(layout.VERSION))
            add_entry(index["manifests"], descriptor, tag)
            files.replace(self.folder / layout.INDEX, json.dumps(index, indent=2) + "\n")


def add_entry(entries: list[dict[str, Any]], descriptor: Descriptor, tag: Optional[str]) -> None:
    """Add a manifest to the entries of an index, of which only the annotation with that tag changes."""
    same = [one for one in entries if one["digest"] == descriptor.digest]
    same = [one for one in same if not tag or layout.tag_of(one) in (None, tag)]
    for one in entries:
        if tag and layout.tag_of(one) == tag:
            del one["annotations"][layout.TAG]
    if not same:
        same = [descriptor.as_json()]
        entries += same
    if tag:
        same[0]["annotations"] = {**(same[0].get("annotations") or {}), layout.TAG: tag}
