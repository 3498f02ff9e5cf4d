"""
A directory with an OCI layout: images and artefacts as in a registry, without one.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import contextlib
import json
import uuid
from pathlib import Path
from typing import Any, Optional, Union

from easybuild.easyblocks.generic.container.imagesource import ImageSource

from ebsif import files
from ebsif.errors import EbsifError
from ebsif.images.registry.connection import TransferError
from ebsif.images.registry.download import FilePart
from ebsif.images.registry.manifest import INDEX, ContentError, Descriptor, for_this_machine
from ebsif.images.registry.protocol import MOST
from ebsif.images.registry.repository import CHUNK, Progress, Repository, is_content, nothing

VERSION = {"imageLayoutVersion": "1.0.0"}
MARK, CONTENTS = "oci-layout", "index.json"
TAGGED = "org.opencontainers.image.ref.name"


class Layout(Repository):
    """The images and artefacts in a directory."""

    def __init__(self, reference: ImageSource):
        """Keep the directory, which doesn't need to exist."""
        super().__init__(reference)
        self.folder = Path(reference.path)

    def entries(self) -> list[Descriptor]:
        """Return the manifests in the index of the directory."""
        return [Descriptor.from_json(one, self.folder / CONTENTS) for one in self.index()["manifests"]]

    def index(self) -> dict[str, Any]:
        """Return the JSON of the index of the directory, in which 'manifests' is a list."""
        path = self.folder / CONTENTS
        try:
            content = json.loads(self.read_file(path))
        except FileNotFoundError:
            raise ContentError(f"{self.folder} is not a directory with an OCI layout ({path} does not exist)") from None
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or not isinstance(content.setdefault("manifests", []), list):
            raise ContentError(f"{path} is damaged: not the index of an OCI layout")
        return content

    def read_file(self, path):
        """Return the bytes of a file that should be small."""
        with path.open("rb") as file:
            content = file.read(MOST + 1)
        if len(content) > MOST:
            raise ContentError(f"{path} is too large to be a description")
        return content

    def fetch_manifest(self, wanted: Optional[str]) -> tuple[bytes, str]:
        """Return a manifest and its media type; without a tag the only one, or that for this machine."""
        entries = self.entries()
        # what has lost its tag to another one, or belongs to an image, is meant only by its digest
        named = [one for one in entries if wanted in (one.digest, one.annotations.get(TAGGED))] if wanted else \
            [one for one in entries if TAGGED in one.annotations] or entries
        if not named and ":" in (wanted or ""):
            # a manifest that another index names
            named = [Descriptor("", wanted, 0)]
        found = named[0] if len({one.digest for one in named}) == 1 else for_this_machine(
            one for one in named if one.platform)
        if not found:
            problem = f"no manifest with the tag {wanted}" if wanted else "several manifests: name a tag"
            raise ContentError(f"{self.folder} has {problem if entries else 'no manifest'} "
                               f"(tags: {', '.join(self.tags()) or 'none'})")
        try:
            text = self.read_file(self.path_of(found.digest))
        except FileNotFoundError:
            raise ContentError(f"{self.folder}: the manifest {found.digest} is missing") from None
        return found.check(text, self.reference), found.media_type

    def referrers(self, digest: str) -> list[str]:
        """Return the digests of the manifests that refer to one."""
        found = []
        for one in self.entries():
            with contextlib.suppress(EbsifError):
                subject = self.manifest(one.digest).content.get("subject")
                if isinstance(subject, dict) and subject.get("digest") == digest:
                    found.append(one.digest)
        return found

    def path_of(self, digest):
        """Return the file with the content of a digest (Path)."""
        algorithm, _, name = digest.partition(":")
        return self.folder / "blobs" / algorithm / name

    def tags(self) -> list[str]:
        """Return all tags, sorted."""
        return sorted({one.annotations[TAGGED] for one in self.entries() if TAGGED in one.annotations})

    def open(self, blob: Descriptor, start: int) -> FilePart:
        """Return the content of a blob from a position on."""
        try:
            return FilePart(self.path_of(blob.digest).open("rb"), start, blob.size)
        except OSError as error:
            what = "is missing" if isinstance(error, FileNotFoundError) else f"can't be read: {error.strerror}"
            raise TransferError(f"the blob {blob.digest} {what}") from None

    def has(self, blob: Descriptor) -> bool:
        """Return whether a blob is there."""
        return files.is_there(self.path_of(blob.digest))

    def upload(self, blob: Descriptor, content: Union[bytes, Path], progress: Progress = nothing) -> None:
        """Put a blob there, unless it is there: others see it when it is complete, and has its digest."""
        path = self.path_of(blob.digest)
        if files.is_there(path) and is_content(path, blob):
            return
        new = path.with_name(f".{path.name[:12]}.{uuid.uuid4().hex}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                new.write_bytes(content)
            else:
                with content.open("rb") as file, new.open("xb") as copy:
                    for chunk in iter(lambda: file.read(CHUNK), b""):
                        copy.write(chunk)
                        progress(copy.tell())
            if not is_content(new, blob):
                raise ContentError(f"{self.folder}: what should become {blob.digest} has the wrong content: altered")
            new.replace(path)
        except OSError as error:
            raise ContentError(f"{self.folder}: {blob.size} bytes can't be written ({error.strerror}). Make room, or "
                               "choose another directory") from None
        finally:
            with contextlib.suppress(OSError):
                new.unlink()

    def put_manifest(self, descriptor: Descriptor, text: bytes, tag: Optional[str]) -> None:
        """Put a manifest there, and let a tag name it, which then names no other."""
        self.upload(descriptor, text)
        with files.locked(self.folder):
            index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}
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
    found = (entry.get("annotations") or {}).get(TAGGED)
    return found if isinstance(found, str) else None
