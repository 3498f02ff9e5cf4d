"""
HTTP for images: requests with a limit, redirects that stay safe, proxies, and parts of files.

Credentials go to the server that they are for, and nowhere else: not to the servers that it redirects to, and into no
message.
"""
import re
import socket
import ssl
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

from easybuild.easyblocks.generic.container.imagesource import is_loopback
from easybuild.easyblocks.generic.container.texts import ERRORS

TIMEOUT = 60  # seconds without any data

# What a connection may raise: it is worth trying again. HTTPError is an answer, and handled before.
BROKEN = (URLError, HTTPException, socket.timeout, ConnectionError, ssl.SSLError)
# What stays as it is in a URL (RFC 3986, 2.2); other characters, such as blanks in names of files, are percent-encoded.
LEGAL = "%:/?#[]@!$&'()*+,;=~"
# Answers that are worth trying again (RFC 9110, RFC 6585).
TEMPORARY = (408, 429, 500, 502, 503, 504)


class TransferError(Exception):
    """
    A server can't be reached, refuses, or sends something else than it should.

    Attributes
    ----------
    is_temporary : bool
        Whether it makes sense to try again.
    status : int
        The HTTP status, None without an answer.
    """

    def __init__(self, text, is_temporary=False, status=None):
        """Set the text (without secrets) and what is known."""
        super().__init__(text)
        self.is_temporary = is_temporary
        self.status = status


class SameHost(HTTPRedirectHandler):
    """Follows redirects, unless they give up encryption; credentials go to the same host only."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        """Return the next request; raises TransferError."""
        try:
            check_next(newurl, req.full_url)
        except TransferError:
            fp.close()
            raise
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is None:
            return new
        credentials = req.unredirected_hdrs.get('Authorization')
        if credentials and place_of(req.full_url) == place_of(new.full_url):
            new.add_unredirected_header('Authorization', credentials)
        return new


class Proxies(ProxyHandler):
    """Uses the proxies of the environment, but for connections to this machine."""

    def proxy_open(self, req, proxy, type):
        """Let a proxy have a request; None if it gets no proxy."""
        return None if is_loopback(req.host) else super().proxy_open(req, proxy, type)


def check_next(url, earlier):
    """Raise TransferError if a URL to which the server of an earlier one refers isn't HTTP, or gives up encryption."""
    allowed = ('https',) if earlier.startswith('https:') else ('http', 'https')
    if urlsplit(url).scheme not in allowed:
        # what comes after the question mark may be a credential
        raise TransferError("{} refers to {}, and only {} is followed from there".format(
            urlsplit(earlier).netloc, url.partition('?')[0], ' or '.join(name + '://' for name in allowed)))


def send(request, host=None):
    """
    Send a request and follow redirects.

    Parameters
    ----------
    request : urllib.request.Request
    host : str, optional
        What messages call the server.

    Returns
    -------
    http.client.HTTPResponse

    Raises
    ------
    HTTPError
        For the statuses of errors.
    TransferError
        If there is no connection.
    """
    request.full_url = quote(request.full_url, LEGAL)
    # as people write it; with a proxy, this becomes that
    server = request.host
    try:
        return build_opener(SameHost, Proxies).open(request, timeout=TIMEOUT)
    except HTTPError:
        raise
    except BROKEN as err:
        reason = getattr(err, 'reason', None) or err
        proxy = f' through the proxy {request.host}' if request.host != server else ''
        words = ERRORS.get(getattr(reason, 'errno', None)) or "%s. Check its name, and the network and proxy of this " \
            "node" % (getattr(reason, 'strerror', None) or reason)
        raise TransferError(f"no connection to {host or server}{proxy}: {words}", True) from None


def place_of(url):
    """Return scheme, host and port of a URL, which credentials are for."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def open_url(request):
    """Send a request, and return the answer; see ``send``. Statuses of errors raise TransferError as well."""
    try:
        return send(request)
    except HTTPError as err:
        err.close()
        remedy = ": files at URLs are fetched without a login. Fetch the file yourself, or have it put into a " \
            "registry, where the runtime's login is used" if err.code == 401 else ""
        place = urlsplit(request.full_url).netloc
        raise TransferError(f"{place} answers {err.code} ({err.reason}){remedy}", err.code in TEMPORARY,
                            err.code) from None


def range_header(start):
    """Return the headers for the rest of a file from a position on (dict)."""
    return {'Range': f'bytes={start}-'} if start else {}


def start_of(answer):
    """Return the position at which an answer begins (int): 0 if the server doesn't send parts (RFC 9110, 14.4)."""
    match = re.match(r'bytes (\d+)-', answer.headers.get('Content-Range') or '')
    return int(match.group(1)) if answer.status == 206 and match else 0


def size_of(answer):
    """Return the size of the whole file of which an answer is a part, in bytes (int), None if unknown."""
    length = answer.headers.get('Content-Length')
    return start_of(answer) + int(length) if length and length.isdigit() else None
