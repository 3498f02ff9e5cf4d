"""
A directory with an OCI layout: images and artifacts as in a registry, without one.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import contextlib
import io
import json
from pathlib import Path
from typing import IO, Any, Optional, Union

from easybuild.easyblocks.generic.container.image.source import ImageSource

from ebsif import files
from ebsif.errors import EbsifError
from ebsif.images.registry.connection import TransferError
from ebsif.images.registry.manifest import INDEX, Descriptor, RegistryContentError, for_this_machine
from ebsif.images.registry.repository import Progress, Repository, checked, is_content, nothing, write

VERSION = {"imageLayoutVersion": "1.0.0"}
MARK, CONTENTS = "oci-layout", "index.json"
TAGGED = "org.opencontainers.image.ref.name"


class Layout(Repository):
    """The images and artifacts in a directory."""

    def __init__(self, reference: ImageSource):
        """Keep the directory, which doesn't need to exist."""
        super().__init__(reference)
        self.folder = Path(reference.path)

    def index(self) -> dict[str, Any]:
        """Return the JSON of the index of the directory, in which 'manifests' is a list."""
        path = self.folder / CONTENTS
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise RegistryContentError(
                f"{self.folder} is not a directory with an OCI layout ({path} does not exist)"
            ) from None
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or not isinstance(content.setdefault("manifests", []), list):
            raise RegistryContentError(f"{path} is damaged: not the index of an OCI layout")
        return content

    def entries(self) -> list[Descriptor]:
        """Return the manifests in the index of the directory."""
        return [Descriptor.from_json(one, self.folder / CONTENTS) for one in self.index()["manifests"]]

    def fetch_manifest(self, wanted: Optional[str]) -> bytes:
        """Return the text of a manifest; without a tag the only one, or that for this machine."""
        entries = self.entries()
        # what has lost its tag to another one, or belongs to an image, is meant only by its digest
        named = (
            [one for one in entries if wanted in (one.digest, one.annotations.get(TAGGED))]
            if wanted
            else [one for one in entries if TAGGED in one.annotations] or entries
        )
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
        algorithm, _, name = digest.partition(":")
        return self.folder / "blobs" / algorithm / name

    def tags(self) -> list[str]:
        """Return all tags, sorted."""
        return sorted({one.annotations[TAGGED] for one in self.entries() if TAGGED in one.annotations})

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
            if files.is_there(self.folder / CONTENTS):
                self.entries()  # raises if one is damaged
                index = self.index()
            if not files.is_there(self.folder / MARK):
                files.replace(self.folder / MARK, json.dumps(VERSION))
            add_entry(index["manifests"], descriptor, tag)
            files.replace(self.folder / CONTENTS, json.dumps(index, indent=2) + "\n")


def add_entry(entries: list[dict[str, Any]], descriptor: Descriptor, tag: Optional[str]) -> None:
    """Add a manifest to the entries of an index, of which only the annotation with that tag changes."""
    same = [one for one in entries if one["digest"] == descriptor.digest and (not tag or tag_of(one) in (None, tag))]
    for one in entries:
        if tag and tag_of(one) == tag:
            del one["annotations"][TAGGED]
    if not same:
        same = [descriptor.as_json()]
        entries += same
    if tag:
        same[0]["annotations"] = {**(same[0].get("annotations") or {}), TAGGED: tag}


def tag_of(entry: dict[str, Any]) -> Optional[str]:
    """Return the tag of an entry of an index, None if it has none."""
    return (entry.get("annotations") or {}).get(TAGGED)
