"""What can be done with images and artefacts in a repository: of a registry, or a directory with an OCI layout."""

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, Union

from easybuild.easyblocks.generic.container.imagesource import ImageSource

from ebsif import files
from ebsif.errors import EbsifError
from ebsif.images.registry.connection import BROKEN, TransferError
from ebsif.images.registry.download import Download, DownloadError
from ebsif.images.registry.manifest import ContentError, Descriptor, Manifest, for_this_machine
from ebsif.images.registry.protocol import MOST
from ebsif.report import output

CHUNK = 1 << 20  # bytes
ATTEMPTS = 3  # to read something small

# Is called with the number of bytes that are there.
Progress = Callable[[int], object]


def nothing(_: int) -> None:
    """Show no progress."""


class FetchError(EbsifError):
    """A blob can't be fetched, because of its server, the connection or the disk; the message says what to do."""


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
    def open(self, blob: Descriptor, start: int) -> Any:
        """Return an answer with the content of a blob from a position on, as `Download` needs it."""

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

    def read(self, blob: Descriptor, most: int = MOST) -> bytes:
        """
        Return the content of a small blob.

        Raises
        ------
        EbsifError
            If it can't be read, has another digest or more than so many bytes.
        """
        if blob.size > most:
            raise ContentError(f"{self.reference}: {blob.digest} is too large to be a description ({blob.size} bytes)")
        content = b""
        for _ in range(ATTEMPTS):
            with contextlib.suppress(*BROKEN):
                try:
                    with self.open(blob, 0) as answer:
                        content = answer.read(blob.size + 1)
                except TransferError as error:
                    raise FetchError(f"{self.reference}: {error}") from None
            if len(content) >= blob.size:
                return blob.check(content, self.reference)
        raise FetchError(f"{self.reference}: the connection was cut after {len(content)} of {blob.size} bytes, "
                         f"{ATTEMPTS} times: run the command again")

    def download(self, blob: Descriptor, path: Path, progress: Progress = nothing) -> None:
        """
        Write a blob to a file that doesn't exist until it is complete; no other process may do so at the same time.

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
        partial = path.absolute().with_name(f".{path.name}.{blob.digest[7:19]}.partial")
        if files.is_there(path) and is_content(path, blob):
            return
        try:
            Download(lambda start: self.open(blob, start), partial, blob.size).run(
                path.name, lambda done, _: progress(done), output.note)
        except DownloadError as error:
            raise FetchError(f"{self.reference}: {error}") from None
        if not is_content(partial, blob):
            partial.unlink()
            raise ContentError(f"{self.reference}: {blob.digest} has the wrong content: altered")
        partial.replace(path)


def is_content(path: Path, blob: Descriptor) -> bool:
    """Return whether a file has the content of a blob."""
    algorithm, _, digest = blob.digest.partition(":")
    found = hashlib.new(algorithm)
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            found.update(chunk)
    return found.hexdigest() == digest
