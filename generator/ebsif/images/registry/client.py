"""
A repository of a registry, over HTTP: https://github.com/opencontainers/distribution-spec.

The Python library of ORAS neither compares digests nor resumes a transfer that was cut, and its caller has to know what
kind of login a registry wants; so this uses the client of the easyblocks.
"""

import difflib
import json
import re
from email.message import Message
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path
from typing import IO, Any, Optional, Union
from urllib.parse import urljoin, urlsplit

from easybuild.easyblocks.generic.container.imagesource import TAG as TAG_PATTERN
from easybuild.easyblocks.generic.container.imagesource import ImageSource

from ebsif.errors import EbsifError
from ebsif.images.registry.connection import BROKEN, TransferError
from ebsif.images.registry.manifest import INDEX, ContentError, Descriptor, Manifest
from ebsif.images.registry.protocol import MOST, Registry
from ebsif.images.registry.repository import Progress, Repository, nothing
from ebsif.report import output

PAGES = 1000  # of lists of tags
NEXT = re.compile(r'<([^>]*)>;\s*rel="?next"?')
WRITE = "pull,push"
TAG = re.compile(TAG_PATTERN, re.ASCII)


def next_page(headers: Message) -> Optional[str]:
    """Return the address of the next page of a list, which one of the headers Link may name; None if none does."""
    found = NEXT.search(", ".join(headers.get_all("Link") or []))
    return found and found.group(1)


class RegistryError(EbsifError):
    """A registry refuses, or can't be reached; the message says why and what to do."""


class MissingError(RegistryError):
    """Something is not in the registry."""


class Watched:
    """A file that says how much of it was read."""

    def __init__(self, file: IO[bytes], progress: Progress):
        """Keep both."""
        self.file, self.progress = file, progress

    def read(self, size: int = -1) -> bytes:
        """Read from the file."""
        content = self.file.read(size)
        self.progress(self.file.tell())
        return content

    def seek(self, *place: int) -> int:
        """Go to a place in the file."""
        return self.file.seek(*place)


class RegistryRepository(Repository):
    """A repository of a registry."""

    def __init__(self, reference: ImageSource):
        """Keep the name; nothing is asked yet."""
        super().__init__(reference)
        self.registry = Registry(reference.host)

    def ask(self, method: str, path: str, missing: Optional[str] = None, actions: str = "pull",
            **options: Any) -> HTTPResponse:
        """
        Send a request about the repository, with the runtime's login if the registry wants one, and return the answer.

        Parameters
        ----------
        method
            GET, HEAD, POST or PUT.
        path
            In the repository, or a URL.
        missing
            What the error says if the answer is 404.
        actions
            What the registry has to allow.
        options
            Headers and data; see `Registry.request`.

        Raises
        ------
        RegistryError
            If the registry can't be reached or refuses; MissingError if it answers 404.
        """
        name = self.reference.repository
        url = path if "://" in path else f"/v2/{name}/{path}"
        try:
            return self.registry.request(method, url, repository=name, actions=actions, **options)
        except TransferError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise MissingError(f"{self.reference}: {missing or error}") from None
            raise RegistryError(f"{self.reference}: {error}") from None
        except ValueError as error:
            # a place that the registry has named
            raise RegistryError(f"{self.reference}: {url} is not an address: {error}") from None

    def fetch_manifest(self, wanted: Optional[str]) -> tuple[bytes, str]:
        """Return a manifest and its media type."""
        wanted = wanted or self.reference.reference
        try:
            found = self.registry.manifest(self.reference.repository, wanted)
        except TransferError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise MissingError(self.unknown(wanted)) from None
            raise RegistryError(f"{self.reference}: {error}") from None
        # it is in the manifest, if anywhere
        return found.data, ""

    def unknown(self, wanted):
        """Return that there is no such tag, and those that there are (str)."""
        host, name = self.reference.host, self.reference.repository
        if ":" in wanted:
            return f"{self.reference}: {host} has no manifest {wanted} in {name}"
        try:
            known = self.tags()
        except EbsifError:
            known = []
        if not known:
            return f"{self.reference}: {host} has no repository {name}, or it is not yours to see"
        near = difflib.get_close_matches(wanted, known, n=5, cutoff=0.3) or known[-5:]
        return f"{self.reference}: {name} has no tag {wanted} (it has {', '.join(near)}" + (
            ", ...)" if len(near) < len(known) else ")")

    def tags(self) -> list[str]:
        """Return all tags, sorted."""
        found, path = [], "tags/list"
        for _ in range(PAGES):
            answer = self.ask("GET", path, f"{self.reference.host} has no repository {self.reference.repository}")
            with answer:
                try:
                    found += tags_in(answer.read(MOST))
                    following = next_page(answer.headers)
                    path = urljoin(answer.geturl(), following) if following else ""
                except (ValueError, RecursionError, *BROKEN):
                    raise RegistryError(f"{self.reference.host}: its list of tags can't be read") from None
            if not path:
                return sorted(found)
        raise RegistryError(f"{self.reference.host}: the list of tags of {self.reference.repository} has no end")

    def referrers(self, digest: str) -> list[str]:
        """Return the digests of the manifests that refer to one; of registries without this, by its tag."""
        name = self.reference.repository
        try:
            try:
                path = f"/v2/{name}/referrers/{digest}"
                with self.registry.request("GET", path, {"Accept": INDEX}, repository=name) as answer:
                    found = Manifest.read(answer.read(MOST), INDEX, self.reference)
            except TransferError as error:
                # those that are older than version 1.1 of the specification
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                text = self.registry.manifest(name, digest.replace(":", "-")).data
                found = Manifest.read(text, INDEX, self.reference)
        except TransferError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return []
            raise RegistryError(f"{self.reference}: {error}") from None
        except BROKEN as error:
            raise RegistryError(f"{self.reference}: the connection was cut: {error}") from None
        return [one.digest for one in found.manifests]

    def open(self, blob: Descriptor, start: int) -> HTTPResponse:
        """Return an answer with the content of a blob from a position on, or all of it."""
        try:
            return self.registry.blob(self.reference.repository, blob.digest, start)
        except TransferError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise TransferError(f"the registry has lost {blob.digest}", status=error.status) from None
            raise

    def has(self, blob: Descriptor) -> bool:
        """Return whether a blob is there."""
        try:
            self.ask("HEAD", f"blobs/{blob.digest}").close()
        except MissingError:
            return False
        return True

    def upload(self, blob: Descriptor, content: Union[bytes, Path], progress: Progress = nothing) -> None:
        """Put a blob there, which the registry compares with its digest."""
        if self.has(blob):
            return
        with self.ask("POST", "blobs/uploads/", actions=WRITE, data=b"") as answer:
            place = urljoin(answer.geturl(), answer.headers.get("Location") or "")
        if isinstance(content, bytes):
            self.put_blob(place, blob, content)
            return
        with content.open("rb") as file:
            self.put_blob(place, blob, Watched(file, progress))

    def put_blob(self, place: str, blob: Descriptor, data: Union[bytes, "Watched"]) -> None:
        """Send the content of a blob to the place that the registry has named."""
        url = f"{place}{'&' if urlsplit(place).query else '?'}digest={blob.digest}"
        self.ask("PUT", url, actions=WRITE, data=data, headers={
            "Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}).close()

    def put_manifest(self, descriptor: Descriptor, text: bytes, tag: Optional[str]) -> None:
        """Put a manifest there, and let a tag name it."""
        with self.ask("PUT", f"manifests/{tag or descriptor.digest}", actions=WRITE, data=text,
                      headers={"Content-Type": descriptor.media_type}) as answer:
            said = answer.headers.get("Docker-Content-Digest") or descriptor.digest
        if said != descriptor.digest:
            raise ContentError(f"{self.reference}: the registry has stored another manifest ({output.escape(said)})")


def tags_in(text: bytes) -> list[str]:
    """Return the valid ones of the tags in a registry's answer; raise ValueError if it isn't one."""
    content = json.loads(text)
    listed = (content.get("tags") or []) if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise ValueError("not a list of tags")
    return [one for one in listed if isinstance(one, str) and TAG.fullmatch(one)]
