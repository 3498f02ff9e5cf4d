"""
A repository of a registry, over HTTP: https://github.com/opencontainers/distribution-spec.

The Python library of ORAS doesn't compare digests of what it has downloaded, and needs libraries of its own.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from email.message import Message
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, Optional, Union
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import Request

from easybuild.easyblocks.generic.container.image.source import DOCKER_HUB, ImageSource, is_loopback
from easybuild.easyblocks.generic.container.image.source import TAG as TAG_PATTERN
from easybuild.easyblocks.generic.container.sitevalues import runtime_name

from ebsif.errors import EbsifError
from ebsif.images.registry.connection import (
    MissingError,
    TransferError,
    check_next,
    content_of,
    open_url,
    place_of,
)
from ebsif.images.registry.login import Login, login_for
from ebsif.images.registry.manifest import INDEX, MANIFESTS, MOST, Descriptor, Manifest, RegistryContentError
from ebsif.images.registry.repository import CHUNK, Progress, Repository, nothing
from ebsif.report import output

PAGES = 1000  # of lists of tags
NEXT = re.compile(r'<([^>]*)>;\s*rel="?next"?')
WRITE = "pull,push"
TAG = re.compile(TAG_PATTERN, re.ASCII)


class Watched:
    """The content of a file, of which it is said how much was read; a request that is repeated begins again."""

    def __init__(self, path: Path, progress: Progress):
        """Keep both."""
        self.path, self.progress = path, progress

    def __iter__(self) -> Iterator[bytes]:
        """Yield the content."""
        with self.path.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
                self.progress(file.tell())


class RegistryRepository(Repository):
    """A repository of a registry."""

    def __init__(self, reference: ImageSource):
        """Keep the name; nothing is asked yet."""
        super().__init__(reference)
        self.host, self.name = str(reference.host), str(reference.repository)
        self.url = f"{'http' if is_loopback(self.host) else 'https'}://" + (
            "registry-1.docker.io" if self.host == DOCKER_HUB else self.host
        )
        self.login = login_for(self.host)
        # headers by what they allow
        self.authorizations: dict[str, str] = {}

    def ask(
        self,
        method: str,
        path: str,
        actions: str = "pull",
        headers: Optional[Mapping[str, str]] = None,
        data: Union[bytes, Watched, None] = None,
    ) -> HTTPResponse:
        """
        Send a request about the repository (a path in it, or a URL), for some actions, and return the answer.

        Raise TransferError if the registry can't be reached or refuses, MissingError if it hasn't got that.
        """
        try:
            url = urljoin(f"{self.url}/v2/{self.name}/", path)
            check_next(url, self.url)
            return self.send(method, url, actions, dict(headers or {}), data)
        except TransferError as error:
            raise type(error)(f"{self.reference}: {error}", error.code) from None
        except ValueError as error:
            # a place that the registry has named
            raise TransferError(f"{self.reference}: {path} is not an address: {error}") from None

    def send(self, method: str, url: str, actions: str, headers: dict[str, str], data: Any) -> HTTPResponse:
        """Send a request, again with the runtime's login if the registry wants one, and return the answer."""
        is_own = place_of(url) == place_of(self.url)
        for is_last in (False, True):
            request = Request(url, data, headers, method=method)
            if is_own and actions in self.authorizations:
                request.add_unredirected_header("Authorization", self.authorizations[actions])
            try:
                return open_url(request, self.host)
            except TransferError as error:
                if is_last or not (is_own and error.challenge):
                    raise self.explained(error) from None
                self.authorizations[actions] = self.authorization(error.challenge, actions)
        raise AssertionError("the second attempt returns or raises")

    def explained(self, error: TransferError) -> TransferError:
        """Return an error with what to do."""
        remedy = ""
        if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            what = "the login in use has no access there; log in again" if self.login else "log in"
            remedy = f": {what} with `{runtime_name()} registry login --username NAME docker://{self.host}`"
        elif isinstance(error, MissingError):
            remedy = ": it has no image of this name, tag or digest"
        return type(error)(f"{error}{remedy}", error.code)

    def authorization(self, challenge: str, actions: str) -> str:
        """Return the header for a challenge, the value of WWW-Authenticate (RFC 7235)."""
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic" and self.login and self.login.password:
            return basic(self.login)
        values = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        if kind.lower() != "bearer" or "realm" not in values:
            raise self.explained(TransferError(f"{self.host} answers 401 (login required)", HTTPStatus.UNAUTHORIZED))
        return f"Bearer {self.token(values, f'repository:{self.name}:{actions}')}"

    def token(self, challenge: Mapping[str, str], scope: str) -> str:
        """Return a token from the server that a registry names (https://distribution.github.io/distribution/spec/)."""
        realm = urljoin(self.url, challenge["realm"])
        check_next(realm, self.url)
        if self.login and not realm.startswith("https:") and not is_loopback(urlsplit(realm).netloc):
            raise TransferError(f"{self.host} wants the password to be sent to {realm} without encryption")
        query = {"scope": challenge.get("scope") or scope}
        if challenge.get("service"):
            query["service"] = challenge["service"]
        if self.login and self.login.token:
            form = {**query, "grant_type": "refresh_token", "client_id": "ebsif", "refresh_token": self.login.token}
            request = Request(realm, data=urlencode(form).encode())
        else:
            request = Request(f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}")
            if self.login:
                request.add_unredirected_header("Authorization", basic(self.login))
        try:
            with open_url(request) as answer:
                content = json.loads(content_of(answer, MOST))
            token = content.get("token") or content.get("access_token")
        except TransferError as error:
            if error.code not in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise
            refused = TransferError(f"{self.host} answers 401 (login refused)", HTTPStatus.UNAUTHORIZED)
            raise self.explained(refused) from None
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str):
            raise TransferError(f"{realm} gives no token for {self.host}")
        return token

    def fetch_manifest(self, wanted: Optional[str]) -> bytes:
        """Return the text of a manifest."""
        wanted = wanted or self.reference.reference
        try:
            return self.text(f"manifests/{wanted}", ", ".join(MANIFESTS))
        except MissingError:
            raise MissingError(f"{self.reference}: {self.unknown(wanted)}") from None

    def text(self, path: str, kinds: str) -> bytes:
        """Return a description of one of the kinds (media types) in the repository."""
        with self.ask("GET", path, headers={"Accept": kinds}) as answer:
            try:
                return content_of(answer, MOST)
            except TransferError as error:
                raise TransferError(f"{self.reference}: {error}") from None

    def unknown(self, wanted: str) -> str:
        """Return that there is no such tag or digest, and the tags that there are."""
        if ":" in wanted:
            return f"{self.host} has no manifest {wanted} in {self.name}"
        try:
            known = self.tags()
        except EbsifError:
            known = []
        if not known:
            return f"{self.host} has no repository {self.name}, or it is not yours to see"
        return f"{self.name} has no tag {wanted} (it has {', '.join(known[:5])}{', ...' if known[5:] else ''})"

    def tags(self) -> list[str]:
        """Return all tags, sorted."""
        found, path = [], "tags/list"
        for _ in range(PAGES):
            with self.ask("GET", path) as answer:
                try:
                    found += tags_in(content_of(answer, MOST))
                    following = next_page(answer.headers)
                    path = urljoin(answer.geturl(), following) if following else ""
                except (ValueError, RecursionError, TransferError):
                    raise TransferError(f"{self.host}: its list of tags can't be read") from None
            if not path:
                return sorted(found)
        raise TransferError(f"{self.host}: the list of tags of {self.name} has no end")

    def referrers(self, digest: str) -> list[str]:
        """Return the digests of the manifests that refer to one; of registries without this, by its tag."""
        # the second is that of registries older than version 1.1 of the specification
        for path in (f"referrers/{digest}", f"manifests/{digest.replace(':', '-')}"):
            try:
                return [one.digest for one in Manifest.read(self.text(path, INDEX), self.reference).manifests]
            except MissingError:
                continue
        return []

    def open(self, blob: Descriptor) -> HTTPResponse:
        """Return the content of a blob as an open answer."""
        return self.ask("GET", f"blobs/{blob.digest}")

    def upload(self, blob: Descriptor, content: Union[bytes, Path], progress: Progress = nothing) -> None:
        """Put a blob there, which the registry compares with its digest, unless it is there."""
        try:
            self.ask("HEAD", f"blobs/{blob.digest}").close()
        except MissingError:
            with self.ask("POST", "blobs/uploads/", WRITE, data=b"") as answer:
                place = urljoin(answer.geturl(), answer.headers.get("Location") or "")
            url = f"{place}{'&' if urlsplit(place).query else '?'}digest={blob.digest}"
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
            self.ask(
                "PUT", url, WRITE, headers, content if isinstance(content, bytes) else Watched(content, progress)
            ).close()

    def put_manifest(self, descriptor: Descriptor, text: bytes, tag: Optional[str]) -> None:
        """Put a manifest there, and let a tag name it."""
        with self.ask(
            "PUT", f"manifests/{tag or descriptor.digest}", WRITE, {"Content-Type": descriptor.media_type}, text
        ) as answer:
            stored = answer.headers.get("Docker-Content-Digest") or descriptor.digest
        if stored != descriptor.digest:
            raise RegistryContentError(
                f"{self.reference}: the registry has stored another manifest ({output.escape(stored)})"
            )


def basic(login: Login) -> str:
    """Return the header for user and password (RFC 7617)."""
    return "Basic " + base64.b64encode(f"{login.user}:{login.password}".encode()).decode()


def next_page(headers: Message) -> Optional[str]:
    """Return the address of the next page of a list, which one of the headers Link may name; None if none does."""
    following = NEXT.search(", ".join(headers.get_all("Link") or []))
    return following and following.group(1)


def tags_in(text: bytes) -> list[str]:
    """Return the valid ones of the tags in a registry's answer. Raise ValueError if it isn't one."""
    content = json.loads(text)
    listed = (content.get("tags") or []) if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise ValueError("not a list of tags")
    return [one for one in listed if isinstance(one, str) and TAG.fullmatch(one)]
