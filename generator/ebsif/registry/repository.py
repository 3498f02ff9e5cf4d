"""What can be done with images and artefacts in a repository: of a registry, or a directory with an OCI layout."""

import hashlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container.imagesource import ImageSource
from easybuild.easyblocks.generic.container.registry import MOST
from easybuild.easyblocks.generic.container.texts import format_size

from ebsif import files, output
from ebsif.errors import EbsifError
from ebsif.registry.manifest import ContentError, Descriptor, Manifest, for_this_machine

CHUNK = 1 << 20  # bytes
# attempts to go on with a transfer after it was cut
ATTEMPTS = 5

# Is called with the number of bytes that are there.
Progress = Callable[[int], object]


def nothing(_: int) -> None:
    """Show no progress."""


class CutError(ContentError):
    """A transfer was cut: another attempt may go on."""


class SpaceError(EbsifError):
    """A directory has not enough space; the message says how much is missing."""


class Repository(ABC):
    """
    Images and artefacts.

    Attributes
    ----------
    reference
        The name by which it was opened.
    """

    def __init__(self, reference: ImageSource):
        """Keep the name."""
        self.reference = reference

    @abstractmethod
    def fetch_manifest(self, wanted: Optional[str]) -> tuple[bytes, str]:
        """Return a manifest and its media type, by tag or digest; the reference names it if `wanted` is None."""

    @abstractmethod
    def tags(self) -> list[str]:
        """Return all tags, sorted."""

    @abstractmethod
    def referrers(self, digest: str) -> list[str]:
        """Return the digests of the manifests that refer to one, such as a bill of materials or a signature."""

    @abstractmethod
    def chunks(self, blob: Descriptor, start: int) -> Iterator[bytes]:
        """Yield the content of a blob from a position on."""

    @abstractmethod
    def has(self, blob: Descriptor) -> bool:
        """Return whether a blob is there."""

    @abstractmethod
    def upload(self, blob: Descriptor, content: Union[bytes, Path], progress: Progress = nothing) -> None:
        """Put a blob there; `content` are its bytes or its file, `progress` is as for `download`."""

    @abstractmethod
    def put_manifest(self, descriptor: Descriptor, text: bytes, tag: Optional[str]) -> None:
        """Put a manifest there, whose blobs are there already, and let a tag name it."""

    def manifest(self, wanted: Optional[str] = None) -> Manifest:
        """
        Return a manifest, whose content is that of its digest.

        Parameters
        ----------
        wanted
            Tag or digest; by default what the reference names.

        Raises
        ------
        EbsifError
            If it is not there, can't be read, or is not what its digest says.
        """
        wanted = wanted or self.reference.digest or self.reference.tag
        text, media_type = self.fetch_manifest(wanted)
        found = Manifest.read(text, media_type, self.reference)
        if wanted and ":" in wanted:
            Descriptor(media_type, wanted, len(text)).check(text, self.reference)
        return found

    def resolve(self, wanted: Optional[str] = None) -> str:
        """Return the digest of a manifest (`sha256:...`), which a tag may name; see `manifest`."""
        return self.manifest(wanted).digest

    def image(self, wanted: Optional[str] = None) -> Manifest:
        """
        Return the manifest of an image for this machine, which an index may name; see `manifest`.

        Raises
        ------
        ContentError
            Also if there is none for its architecture.
        """
        found = self.manifest(wanted)
        if not found.is_index:
            return found
        chosen = for_this_machine(found.manifests)
        if not chosen:
            raise ContentError(f"{self.reference}: no image for the architecture of this machine")
        return self.manifest(chosen.digest)

    def read(self, blob: Descriptor) -> bytes:
        """
        Return the content of a small blob.

        Raises
        ------
        EbsifError
            If it can't be read, has another digest or more than 4 MiB.
        """
        if blob.size > MOST:
            raise ContentError(f"{self.reference}: {blob.digest} is too large to be a description ({blob.size} bytes)")
        content = b""
        for chunk in self.chunks(blob, 0):
            content += chunk
            if len(content) > blob.size:
                break
        return blob.check(content, self.reference)

    def download(self, blob: Descriptor, path: Path, progress: Progress = nothing) -> None:
        """
        Write a blob to a file that doesn't exist until it is complete.

        What arrived before a transfer was cut is kept beside it, and used the next time.

        Parameters
        ----------
        blob
            The blob.
        path
            The file.
        progress
            Is called with the number of bytes that are there.

        Raises
        ------
        EbsifError, OSError
            If it can't be read or written, or its content has another digest; then nothing is kept.
        """
        partial = path.with_name(f".{path.name}.{blob.digest[7:19]}.partial")
        with files.locked(path.parent):
            if files.is_there(path) and is_content(path, blob):
                return
            try:
                self.complete(blob, partial, progress)
                if not is_content(partial, blob):
                    raise ContentError(f"{self.reference}: {blob.digest} has the wrong content: altered")
            except CutError:
                raise
            except ContentError:
                partial.unlink(missing_ok=True)
                raise
            partial.replace(path)

    def complete(self, blob, partial, progress):
        """Fetch the rest of a blob into its unfinished file."""
        for attempt in range(ATTEMPTS):
            try:
                with partial.open("ab") as file:
                    start = file.tell()
                    if start >= blob.size:
                        return
                    check_space(partial.parent, blob.size - start)
                    for chunk in self.chunks(blob, start):
                        if file.tell() + len(chunk) > blob.size:
                            raise ContentError(f"{self.reference}: {blob.digest} is larger than the manifest says: "
                                               "altered")
                        file.write(chunk)
                        progress(file.tell())
                    file.flush()
                    os.fsync(file.fileno())
            except CutError:
                if attempt == ATTEMPTS - 1:
                    raise
                output.note(f"{self.reference}: the connection was cut: going on at byte {partial.stat().st_size}")


def check_space(folder: Path, needed: int) -> None:
    """Raise SpaceError if a directory has not enough space for so many bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SpaceError(f"not enough space in {folder}: {format_size(needed)} are needed, {format_size(free)} are "
                         "free. Make room, or use another directory")


def is_content(path: Path, blob: Descriptor) -> bool:
    """Return whether a file has the content of a blob."""
    algorithm, _, digest = blob.digest.partition(":")
    found = hashlib.new(algorithm)
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            found.update(chunk)
    return found.hexdigest() == digest
