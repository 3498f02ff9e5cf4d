"""
A repository of a registry, over HTTP: https://github.com/opencontainers/distribution-spec.

The Python library of ORAS neither compares digests nor resumes a transfer that was cut, and its caller has to know what
kind of login a registry wants. So this is a small client, on top of requests.
"""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional, Union
from urllib.parse import urljoin, urlsplit

import requests

from ebsif import output, version
from ebsif.errors import EbsifError
from ebsif.registry import login
from ebsif.registry.manifest import MANIFESTS, ContentError, Descriptor
from ebsif.registry.reference import DOCKER_HUB, Reference, is_loopback
from ebsif.registry.repository import CHUNK, LARGEST, CutError, Repository

# the host with the interface of Docker Hub
HUB_HOST = "registry-1.docker.io"
TIMEOUT = (15, 120)  # seconds: to connect, and between two parts of an answer
PAGES = 1000  # of lists of tags
CHALLENGE = re.compile(r'([a-zA-Z_]+)="([^"]*)"')
NETWORK = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)


class RegistryError(EbsifError):
    """A registry refuses, or can't be reached; the message says why and what to do."""


class Authorization(requests.auth.AuthBase):
    """The header with which a registry knows who asks; requests leaves it out where a registry forwards to another."""

    def __init__(self):
        """Start without one, as most registries let everybody read."""
        self.header = None

    def __call__(self, request):
        """Add the header."""
        if self.header:
            request.headers["Authorization"] = self.header
        return request


class RegistryRepository(Repository):
    """
    A repository of a registry.

    Attributes
    ----------
    host
        Name of the registry, with the port if it has one.
    """

    def __init__(self, reference: Reference):
        """Keep the name; nothing is asked yet."""
        super().__init__(reference)
        self.host = reference.host
        self.base: Optional[str] = None
        self.auth = Authorization()
        self.session = requests.Session()
        self.session.auth = self.auth
        self.session.headers["User-Agent"] = f"ebsif/{version()}"

    def url(self, path: str) -> str:
        """Return the address of something in the repository, after finding out whether the registry speaks HTTPS."""
        if not self.base:
            address = HUB_HOST if self.host == DOCKER_HUB else self.host
            schemes = ["https"]
            # as the runtime decides it
            if is_loopback(self.host) or login.variable("NOHTTPS") or login.variable("NO_HTTPS"):
                schemes.append("http")
            self.base = next((f"{scheme}://{address}" for scheme in schemes[:-1] if self.answers(f"{scheme}://{address}/v2/")),
                             f"{schemes[-1]}://{address}")
        return f"{self.base}/v2/{self.reference.path}/{path}"

    def answers(self, address):
        """Return whether there is an answer at an address."""
        try:
            self.session.get(address, timeout=TIMEOUT).close()
        except NETWORK:
            return False
        return True

    def ask(self, method: str, url: str, missing: Optional[str] = None, **options: Any) -> requests.Response:
        """
        Send a request, again with a login if the registry wants one, and return the answer.

        Parameters
        ----------
        method, url, options
            As for requests.
        missing
            What does not exist if the answer is 404; else that answer is returned.

        Raises
        ------
        RegistryError
            If the registry can't be reached or refuses.
        """
        options = {"timeout": TIMEOUT, **options}
        try:
            answer = self.session.request(method, url, **options)
            if answer.status_code == requests.codes.unauthorized and self.authenticate(answer):
                answer = self.session.request(method, url, **options)
        except NETWORK as error:
            raise RegistryError(f"{self.host} can't be reached: {reason_of(error)}") from None
        except requests.RequestException as error:
            raise RegistryError(f"{self.host}: {reason_of(error)}") from None
        if answer.status_code == requests.codes.not_found and not missing:
            return answer
        if answer.status_code >= requests.codes.bad_request:
            raise RegistryError(self.refusal(answer, missing))
        return answer

    def refusal(self, answer, missing):
        """Return why the registry refused, and what to do (str)."""
        codes = requests.codes
        if answer.status_code == codes.not_found:
            return f"{self.reference}: {missing}"
        if answer.status_code in (codes.unauthorized, codes.forbidden):
            known = login.find(self.host)
            how = f"apptainer registry login --username NAME {self.reference.scheme}://{self.host}"
            return (f"{self.reference}: {self.host} doesn't allow this for the account of the runtime's login "
                    f"(another one: {how})" if known else f"{self.reference}: {self.host} wants a login: {how}")
        said = said_by(answer)
        said = f": {said}" if said else ""
        return f"{self.reference}: {self.host} answered {answer.status_code} {answer.reason}{said}"

    def authenticate(self, answer):
        """Do what the registry wants to know who asks; return whether another attempt makes sense."""
        kind, _, rest = answer.headers.get("WWW-Authenticate", "").partition(" ")
        known = login.find(self.host)
        before = self.auth.header
        if kind.lower() == "basic" and known and known.password:
            self.require_safe(self.base)
            self.auth.header = requests.auth._basic_auth_str(known.user.encode(), known.password.encode())
        elif kind.lower() == "bearer":
            token = self.token(dict(CHALLENGE.findall(rest)), known)
            self.auth.header = f"Bearer {token}" if token else None
        return bool(self.auth.header) and self.auth.header != before

    def token(self, challenge, known):
        """Return the token with which a service lets a registry know who asks (str), None if it gives none."""
        realm = challenge.get("realm", "")
        if not realm.startswith(("https://", "http://")):
            return None
        more = {name: challenge[name] for name in ("service", "scope") if name in challenge}
        options = {"timeout": TIMEOUT, "auth": Authorization()}
        if known:
            self.require_safe(realm)
        if known and known.identity_token:
            answer = self.session.post(realm, data={**more, "grant_type": "refresh_token", "client_id": "ebsif",
                                                    "refresh_token": known.identity_token}, **options)
        else:
            if known:
                options["auth"] = (known.user.encode(), known.password.encode())
            answer = self.session.get(realm, params=more, **options)
        try:
            found = answer.json() if answer.ok else {}
        except ValueError:
            found = {}
        return found.get("token") or found.get("access_token") if isinstance(found, dict) else None

    def require_safe(self, url):
        """Raise RegistryError if a password would go over the network without encryption."""
        if urlsplit(url).scheme != "https" and not is_loopback(urlsplit(url).netloc):
            raise RegistryError(f"{self.host} wants a password without HTTPS: it is not sent")

    def fetch_manifest(self, wanted: Optional[str]) -> tuple[bytes, str]:
        """Return a manifest and its media type."""
        answer = self.ask("GET", self.url(f"manifests/{wanted}"), headers={"Accept": ", ".join(MANIFESTS)}, stream=True)
        with answer:
            if answer.status_code == requests.codes.not_found:
                raise RegistryError(self.unknown(wanted))
            try:
                text = answer.raw.read(LARGEST + 1, decode_content=True)
            except Exception as error:  # noqa: BLE001 of urllib3, of several kinds
                raise CutError(f"{self.host}: the connection was cut: {reason_of(error)}") from None
        if len(text) > LARGEST:
            raise ContentError(f"{self.reference}: its manifest is larger than registries allow")
        return text, answer.headers.get("Content-Type", "")

    def unknown(self, wanted):
        """Return that there is no such tag, and those that there are (str)."""
        if ":" in wanted:
            return f"{self.reference}: {self.host} has no manifest {wanted} in {self.reference.path}"
        try:
            known = self.tags()
        except EbsifError:
            known = []
        if not known:
            return f"{self.reference}: {self.host} has no repository {self.reference.path}, or it is not yours to see"
        near = difflib.get_close_matches(wanted, known, n=5, cutoff=0.3) or known[-5:]
        return f"{self.reference}: {self.reference.path} has no tag {wanted} (it has {', '.join(near)}" + (
            ", ...)" if len(near) < len(known) else ")")

    def tags(self) -> list[str]:
        """Return all tags, sorted."""
        found, url = [], self.url("tags/list")
        for _ in range(PAGES):
            answer = self.ask("GET", url, missing=f"{self.host} has no repository {self.reference.path}")
            try:
                found += answer.json().get("tags") or []
            except (ValueError, AttributeError):
                raise RegistryError(f"{self.host}: not a registry (its list of tags can't be read)") from None
            if "next" not in answer.links:
                return sorted(map(str, found))
            url = urljoin(url, answer.links["next"]["url"])
        raise RegistryError(f"{self.host}: the list of tags of {self.reference.path} has no end")

    def chunks(self, blob: Descriptor, start: int) -> Iterator[bytes]:
        """Yield the content of a blob from a position on, also if the registry can only send all of it."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        answer = self.ask("GET", self.url(f"blobs/{blob.digest}"), missing=f"the registry has lost {blob.digest}",
                          headers={"Accept-Encoding": "identity", **headers}, stream=True)
        with answer:
            left = start if start and answer.status_code != requests.codes.partial_content else 0
            sent = start - left
            try:
                for chunk in answer.iter_content(CHUNK):
                    yield chunk[min(left, len(chunk)):]
                    left -= min(left, len(chunk))
                    sent += len(chunk)
            except requests.RequestException as error:
                raise CutError(f"{self.host}: the connection was cut: {reason_of(error)}") from None
        if sent < blob.size:
            raise CutError(f"{self.host}: the connection was cut after {sent} of {blob.size} bytes")

    def has(self, blob: Descriptor) -> bool:
        """Return whether a blob is there."""
        return self.ask("HEAD", self.url(f"blobs/{blob.digest}")).ok

    def upload(self, blob: Descriptor, content: Union[bytes, Path]) -> None:
        """Put a blob there, which the registry compares with its digest."""
        if self.has(blob):
            return
        missing = f"{self.host} has no place for {self.reference.path}"
        answer = self.ask("POST", self.url("blobs/uploads/"), missing=missing)
        place = urljoin(answer.url, answer.headers.get("Location", ""))
        if isinstance(content, bytes):
            self.put_blob(place, blob, content)
            return
        with content.open("rb") as file:
            self.put_blob(place, blob, file)

    def put_blob(self, place, blob, data):
        """Send the content of a blob to the place that the registry has named."""
        url = f"{place}{'&' if urlsplit(place).query else '?'}digest={blob.digest}"
        self.ask("PUT", url, data=data, missing=f"{self.host} has lost the upload",
                 headers={"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)})

    def put_manifest(self, descriptor: Descriptor, text: bytes, tag: Optional[str]) -> None:
        """Put a manifest there, and let a tag name it."""
        answer = self.ask("PUT", self.url(f"manifests/{tag or descriptor.digest}"), data=text,
                          headers={"Content-Type": descriptor.media_type},
                          missing=f"{self.host} has no repository {self.reference.path}")
        said = answer.headers.get("Docker-Content-Digest", descriptor.digest)
        if said != descriptor.digest:
            raise RegistryError(f"{self.reference}: {self.host} has stored another manifest ({output.escape(said)})")


def reason_of(error):
    """Return what went wrong (str), without the names of the library's parts."""
    cause = error
    while isinstance(cause, Exception):
        inner = getattr(cause, "reason", None) or next(
            (one for one in cause.args if isinstance(one, Exception)), None) or cause.__cause__
        if not isinstance(inner, Exception):
            break
        cause = inner
    text = getattr(cause, "strerror", None) or re.sub(r"<[^>]*>:? ?", "", str(cause))
    return output.escape(text or type(cause).__name__)


def said_by(answer):
    """Return the message in the answer of a registry (str); empty if there is none."""
    try:
        errors = answer.json().get("errors") or []
        return "; ".join(output.escape(one.get("message") or one.get("code")) for one in errors)[:500]
    except (ValueError, AttributeError, TypeError):
        return ""
