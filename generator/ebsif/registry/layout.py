"""
A directory with an OCI layout: images and artefacts as in a registry, without one.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import contextlib
import itertools
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container.imagesource import ImageSource

from ebsif import files
from ebsif.errors import EbsifError
from ebsif.registry.manifest import INDEX, ContentError, Descriptor, for_this_machine
from ebsif.registry.repository import CHUNK, LARGEST, Progress, Repository, nothing

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
        path = self.folder / CONTENTS
        try:
            content = json.loads(self.read_file(path))
        except FileNotFoundError:
            raise ContentError(f"{self.folder} is not a directory with an OCI layout ({path} does not exist)") from None
        except ValueError:
            content = None
        if not isinstance(content, dict) or not isinstance(content.get("manifests", []), list):
            raise ContentError(f"{path} is damaged: not the index of an OCI layout")
        return [Descriptor.from_json(one, path) for one in content.get("manifests", [])]

    def read_file(self, path):
        """Return the bytes of a file that should be small."""
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ContentError(f"{path} is too large to be a description")
        return content

    def fetch_manifest(self, wanted: Optional[str]) -> tuple[bytes, str]:
        """Return a manifest and its media type; without a tag the only one, or that for this machine."""
        entries = self.entries()
        named = [one for one in entries if wanted in (one.digest, one.annotations.get(TAGGED))] if wanted else entries
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
        return sorted({str(one.annotations[TAGGED]) for one in self.entries() if TAGGED in one.annotations})

    def chunks(self, blob: Descriptor, start: int) -> Iterator[bytes]:
        """Yield the content of a blob from a position on."""
        try:
            file = self.path_of(blob.digest).open("rb")
        except FileNotFoundError:
            raise ContentError(f"{self.folder}: the blob {blob.digest} is missing") from None
        with file:
            file.seek(start)
            yield from iter(lambda: file.read(CHUNK), b"")

    def has(self, blob: Descriptor) -> bool:
        """Return whether a blob is there."""
        return files.is_there(self.path_of(blob.digest))

    def upload(self, blob: Descriptor, content: Union[bytes, Path], progress: Progress = nothing) -> None:
        """Put a blob there: others see it when it is complete."""
        path = self.path_of(blob.digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name[:12]}.{uuid.uuid4().hex}.new")
        try:
            if isinstance(content, bytes):
                new.write_bytes(content)
            else:
                with content.open("rb") as file, new.open("xb") as copy:
                    for chunk in iter(lambda: file.read(CHUNK), b""):
                        copy.write(chunk)
                        progress(copy.tell())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)

    def put_manifest(self, descriptor: Descriptor, text: bytes, tag: Optional[str]) -> None:
        """Put a manifest there, and let a tag name it, which then names no other."""
        self.upload(descriptor, text)
        entry = Descriptor(descriptor.media_type, descriptor.digest, descriptor.size, {TAGGED: tag} if tag else {})
        with files.locked(self.folder):
            mark = self.folder / MARK
            before = self.entries() if files.is_there(self.folder / CONTENTS) else []
            kept = [one for one in before if one.annotations.get(TAGGED) != tag or not tag and
                    one.digest != descriptor.digest]
            index = {"schemaVersion": 2, "mediaType": INDEX,
                     "manifests": [one.as_json() for one in itertools.chain(kept, [entry])]}
            files.replace(mark, json.dumps(VERSION))
            files.replace(self.folder / CONTENTS, json.dumps(index, indent=2) + "\n")
