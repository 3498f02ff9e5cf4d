"""HTTP for images: redirects that stay safe, proxies, and errors that say what to do.

Credentials go to the server that they are for, and nowhere else: not to a server that it redirects to, and into no
message.
"""

import socket
import ssl
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any, Optional
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from easybuild.easyblocks.generic.container.image.source import is_loopback
from easybuild.easyblocks.generic.container.values import ERRORS, format_size

from ebsif.errors import EbsifError

TIMEOUT = 60  # seconds without any data

# What a connection may raise.
BROKEN = (URLError, HTTPException, socket.timeout, ConnectionError, ssl.SSLError)
# What stays as it is in a URL (RFC 3986, 2.2); other characters, such as blanks in names of files, are percent-encoded.
LEGAL = "%:/?#[]@!$&'()*+,;=~"


class TransferError(EbsifError):
    """
    A server can't be reached, refuses, or sends something else than it should; the message has no secrets.

    `code` is the HTTP status, None without an answer. `challenge` says how the server that was asked wants a login.
    """

    def __init__(self, text: str, code: Optional[int] = None, challenge: str = ""):
        """Keep what is known."""
        super().__init__(text)
        self.code, self.challenge = code, challenge


class MissingError(TransferError):
    """Something is not on a server, or no longer."""


class SameHost(HTTPRedirectHandler):
    """Follows redirects, unless they give up encryption; credentials go to the same host only."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Optional[Request]:
        """Return the next request. Raise TransferError if it isn't to be sent."""
        try:
            check_next(newurl, req.full_url)
        except TransferError:
            fp.close()
            raise
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        credentials = req.unredirected_hdrs.get("Authorization")
        if new and credentials and place_of(req.full_url) == place_of(new.full_url):
            new.add_unredirected_header("Authorization", credentials)
        return new


class Proxies(ProxyHandler):
    """Uses the proxies of the environment, but for connections to this machine."""

    def proxy_open(self, req: Request, proxy: str, type: str) -> Any:
        """Let a proxy have a request; None if it gets no proxy."""
        return None if is_loopback(req.host) else super().proxy_open(req, proxy, type)


def place_of(url: str) -> tuple[str, Optional[str], Optional[int]]:
    """Return scheme, host and port of a URL, which credentials are for."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def check_next(url: str, earlier: str) -> None:
    """Raise TransferError if a URL to which the server of an earlier one refers isn't HTTP, or gives up encryption."""
    allowed = ("https",) if earlier.startswith("https:") else ("http", "https")
    if urlsplit(url).scheme not in allowed:
        # what comes after the question mark may be a credential
        raise TransferError(
            f"{urlsplit(earlier).netloc} refers to {url.partition('?')[0]}, and only "
            f"{' or '.join(f'{name}://' for name in allowed)} is followed from there"
        )


def open_url(request: Request, host: Optional[str] = None, timeout: float = TIMEOUT) -> HTTPResponse:
    """Send a request, follow redirects, and return the answer. Raise TransferError, which calls the server `host`."""
    url = request.full_url = quote(request.full_url, LEGAL)
    # as people write it; with a proxy, this becomes that
    server = request.host
    try:
        return build_opener(SameHost, Proxies).open(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        kind = MissingError if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE) else TransferError
        is_own = error.code == HTTPStatus.UNAUTHORIZED and place_of(error.geturl() or "") == place_of(url)
        raise kind(
            f"{host or server} answers {error.code} ({error.reason})",
            error.code,
            error.headers.get("WWW-Authenticate") or "" if is_own else "",
        ) from None
    except BROKEN as error:
        reason = getattr(error, "reason", None) or error
        proxy = f" through the proxy {request.host}" if request.host != server else ""
        words = ERRORS.get(getattr(reason, "errno", None) or 0) or (
            f"{getattr(reason, 'strerror', None) or reason}. Check its name, and the network and proxy of this node"
        )
        raise TransferError(f"no connection to {host or server}{proxy}: {words}") from None


def size_of(answer: HTTPResponse) -> Optional[int]:
    """Return the size of an answer in bytes, None if the server doesn't say it."""
    length = answer.headers.get("Content-Length")
    return int(length) if length and length.isdigit() else None


def content_of(answer: HTTPResponse, most: int) -> bytes:
    """Return all of an answer. Raise TransferError if it has more than so many bytes, or is cut."""
    try:
        content = answer.read(most + 1)
    except BROKEN as error:
        raise TransferError(f"the connection was cut: {error}") from None
    size = size_of(answer)
    if len(content) > most:
        raise TransferError(f"it has more than {format_size(most)}")
    if len(content) < (size or 0):
        raise TransferError(f"the connection was cut after {len(content)} of {size} bytes")
    return content
