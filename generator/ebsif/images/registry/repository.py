"""What can be done with images and artifacts in a repository: of a registry, or a directory with an OCI layout."""

import contextlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Optional, Union

from easybuild.easyblocks.generic.container.image.source import ImageSource

from ebsif import files
from ebsif.errors import EbsifError
from ebsif.images.registry.connection import BROKEN, TransferError
from ebsif.images.registry.manifest import MOST, Descriptor, Manifest, RegistryContentError, for_this_machine

CHUNK = 1 << 20  # bytes

# Is called with the number of bytes that are there.
Progress = Callable[[int], object]


def nothing(_: int) -> None:
    """Show no progress."""


class Repository(ABC):
    """Images and artifacts; `reference` is the name by which it was opened. Methods raise EbsifError if they fail."""

    def __init__(self, reference: ImageSource):
        """Keep the name."""
        self.reference = reference

    @abstractmethod
    def fetch_manifest(self, wanted: Optional[str]) -> bytes:
        """Return the text of a manifest, by tag or digest; without either, of the only one there is."""

    @abstractmethod
    def tags(self) -> list[str]:
        """Return all tags, sorted."""

    @abstractmethod
    def referrers(self, digest: str) -> list[str]:
        """Return the digests of the manifests that refer to one, such as a bill of materials or a signature."""

    @abstractmethod
    def open(self, blob: Descriptor) -> Any:
        """Return the content of a blob as an open file."""

    @abstractmethod
    def upload(self, blob: Descriptor, content: Union[bytes, Path], progress: Progress = nothing) -> None:
        """Put a blob there, whose bytes or file are given."""

    @abstractmethod
    def put_manifest(self, descriptor: Descriptor, text: bytes, tag: Optional[str]) -> None:
        """Put a manifest there, whose blobs are there already, and let a tag name it."""

    def manifest(self, wanted: Optional[str] = None) -> Manifest:
        """Return a manifest by tag or digest, by default what the reference names; its content is that of its digest.

        Raise EbsifError if it is not there, can't be read, or is not what its digest says.
        """
        wanted = wanted or self.reference.digest or self.reference.tag
        text = self.fetch_manifest(wanted)
        if wanted and ":" in wanted:
            Descriptor("", wanted, len(text)).check(text, self.reference)
        return Manifest.read(text, self.reference)

    def resolve(self, wanted: Optional[str] = None) -> str:
        """Return the digest of a manifest (`sha256:...`), which a tag may name; see `manifest`."""
        return self.manifest(wanted).digest

    def image(self, wanted: Optional[str] = None) -> Manifest:
        """Return the manifest of an image for this machine, which an index may name; see `manifest`."""
        manifest = self.manifest(wanted)
        if not manifest.is_index:
            return manifest
        chosen = for_this_machine(manifest.manifests)
        if not chosen:
            raise RegistryContentError(f"{self.reference}: no image for the architecture of this machine")
        return self.manifest(chosen.digest)

    def chunks(self, blob: Descriptor) -> Iterator[bytes]:
        """Yield the content of a blob; see `checked`."""
        with self.open(blob) as file:
            yield from checked(file, blob, self.reference)

    def read(self, blob: Descriptor, most: int = MOST) -> bytes:
        """Return the content of a small blob. Raise EbsifError if it has more bytes, can't be read, or was altered."""
        if blob.size > most:
            raise RegistryContentError(
                f"{self.reference}: {blob.digest} is too large to be a description ({blob.size} bytes)"
            )
        return b"".join(self.chunks(blob))

    def download(self, blob: Descriptor, path: Path, progress: Progress = nothing) -> None:
        """
        Write a blob to a file, which is there when it is complete.

        Raise EbsifError if it can't be read or written, or was altered; then nothing of it stays.
        """
        write(self.chunks(blob), path, progress)


def checked(file: IO[bytes], blob: Descriptor, where: object) -> Iterator[bytes]:
    """Yield the content of a file. Raise EbsifError at its end unless it is that of a blob (`where` is its place)."""
    digest, done = blob.hash(), 0
    try:
        # not more than there should be
        while done <= blob.size and (chunk := file.read(CHUNK)):
            digest.update(chunk)
            done += len(chunk)
            yield chunk
    except BROKEN as error:
        raise TransferError(f"{where}: the connection was cut: {error}. Run the command again") from None
    if done < blob.size:
        raise TransferError(f"{where}: {blob.digest} was cut after {done} of {blob.size} bytes: run the command again")
    if done > blob.size or digest.hexdigest() != blob.digest.partition(":")[2]:
        raise RegistryContentError(f"{where}: {blob.digest} has the wrong content: it was altered")


def write(chunks: Iterable[bytes], path: Path, progress: Progress = nothing) -> None:
    """Write a file, which others see when it is complete; if anything fails, nothing of it stays."""
    new = path.with_name(f".{path.name[:12]}.{uuid.uuid4().hex}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
                progress(file.tell())
        new.replace(path)
    except OSError as error:
        raise RegistryContentError(
            f"{path} can't be written ({error.strerror}): make room, or choose another directory"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def is_content(path: Path, blob: Descriptor) -> bool:
    """Return whether a file is there and has the content of a blob."""
    if not files.is_there(path) or path.stat().st_size != blob.size:
        return False
    with contextlib.suppress(EbsifError), path.open("rb") as file:
        for _ in checked(file, blob, path):
            pass
        return True
    return False
