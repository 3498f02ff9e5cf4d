##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
HTTP for images: files by URL, manifests and blobs of registries (OCI distribution), with the runtime's login.

Doesn't import EasyBuild, so that commands can use it too. Credentials go to the registry and the server for tokens that
it names, and nowhere else: not to the servers that blobs are redirected to, and into no message.
"""
import base64
import hashlib
import json
import re
import socket
import ssl
from collections import namedtuple
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from easybuild.easyblocks.generic.container.imagesource import DOCKER_HUB
from easybuild.easyblocks.generic.container.login import login_for

MANIFESTS = ', '.join('application/vnd.' + kind for kind in (
    'oci.image.manifest.v1+json', 'oci.image.index.v1+json', 'docker.distribution.manifest.v2+json',
    'docker.distribution.manifest.list.v2+json'))
MOST = 4 * 1024 * 1024  # bytes of a manifest: the limit of registries

TIMEOUT = 60  # seconds without any data

# What a connection may raise: it is worth trying again. HTTPError is an answer, and handled before.
BROKEN = (URLError, HTTPException, socket.timeout, ConnectionError, ssl.SSLError)
# Answers that are worth trying again (RFC 9110, RFC 6585).
TEMPORARY = (408, 429, 500, 502, 503, 504)

Manifest = namedtuple('Manifest', 'content digest data')
Manifest.__doc__ = "A manifest: the parsed content (dict), its digest ('sha256:...'), the bytes."


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
    """Follows redirects; credentials go to the same host only, and never without encryption if they had it before."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        """Return the next request."""
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is None:
            return new
        credentials = req.unredirected_hdrs.get('Authorization')
        if credentials and place_of(req.full_url) == place_of(new.full_url):
            new.add_unredirected_header('Authorization', credentials)
        return new


def place_of(url):
    """Return scheme, host and port of a URL, which credentials are for."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def is_loopback(host):
    """Return whether a registry is on this machine, where connections without encryption are safe."""
    name = urlsplit('//' + host).hostname or ''
    return name == 'localhost' or name == '::1' or name.startswith('127.')


def open_url(request):
    """
    Send a request.

    Parameters
    ----------
    request : urllib.request.Request

    Returns
    -------
    http.client.HTTPResponse

    Raises
    ------
    TransferError
        Also for the statuses of errors.
    """
    place = urlsplit(request.full_url).netloc
    try:
        return build_opener(SameHost).open(request, timeout=TIMEOUT)
    except HTTPError as err:
        err.close()
        raise TransferError('%s answers %d (%s)' % (place, err.code, err.reason), err.code in TEMPORARY, err.code)
    except BROKEN as err:
        raise TransferError("no connection to %s: %s" % (place, getattr(err, 'reason', None) or err), True)


class Registry:
    """
    A registry of images.

    Attributes
    ----------
    host : str
        As in the names of its images, with the port if it has one.
    """

    def __init__(self, host):
        """Nothing is sent yet."""
        self.host = host
        self.url = '%s://%s' % ('http' if is_loopback(host) else 'https',
                                'registry-1.docker.io' if host == DOCKER_HUB else host)
        self.login = login_for(host)
        self.authorizations = {}

    def request(self, method, path, headers=None, data=None, repository=None, actions='pull'):
        """
        Send a request, with credentials as the registry asks for them.

        Parameters
        ----------
        method : str
            GET, HEAD, POST, PUT or PATCH.
        path : str
            From the root, or a URL that the registry has answered with.
        headers : dict, optional
        data : bytes or file, optional
        repository, actions : str
            What the request is about, for tokens: 'pull', 'pull,push'.

        Returns
        -------
        http.client.HTTPResponse

        Raises
        ------
        TransferError
        """
        url = urljoin(self.url + '/', path)
        is_own = place_of(url) == place_of(self.url)
        scope = 'repository:%s:%s' % (repository, actions) if repository else None
        for attempt in range(2):
            request = Request(url, data=data, headers=dict(headers or {}), method=method)
            if is_own and self.authorizations.get(scope):
                request.add_unredirected_header('Authorization', self.authorizations[scope])
            try:
                return self.open(request, scope, attempt)
            except Unauthorized:
                if hasattr(data, 'seek'):
                    data.seek(0)
        raise AssertionError("the second attempt returns or raises")

    def open(self, request, scope, attempt):
        """Send a request; get credentials and raise Unauthorized if the first attempt needs them."""
        try:
            return build_opener(SameHost).open(request, timeout=TIMEOUT)
        except HTTPError as err:
            challenge, code, reason = err.headers.get('WWW-Authenticate'), err.code, err.reason
            err.close()
            if code == 401 and attempt == 0 and place_of(err.geturl() or '') == place_of(self.url):
                self.authorizations[scope] = self.authorization(challenge or '', scope)
                raise Unauthorized
            raise TransferError(self.explain(code, reason), code in TEMPORARY, code)
        except BROKEN as err:
            raise TransferError("no connection to %s: %s" % (self.host, getattr(err, 'reason', None) or err), True)

    def explain(self, code, reason):
        """Return what a status means (str)."""
        if code in (401, 403):
            return "%s answers %d (%s): %s with `apptainer registry login --username NAME docker://%s`" % (
                self.host, code, reason, "the login in use has no access there; log in again" if self.login else
                "log in", self.host)
        if code == 404:
            return "%s answers 404: it has no image of this name, tag or digest" % self.host
        return "%s answers %d (%s)" % (self.host, code, reason)

    def authorization(self, challenge, scope):
        """
        Return the header for a challenge (str).

        Parameters
        ----------
        challenge : str
            The value of WWW-Authenticate (RFC 7235).
        scope : str
            What the request is about, unless the challenge says it.
        """
        kind, _, rest = challenge.partition(' ')
        if kind.lower() == 'basic' and self.login and self.login.password:
            return basic(self.login)
        values = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        if kind.lower() != 'bearer' or 'realm' not in values:
            raise TransferError(self.explain(401, "login required"), status=401)
        return 'Bearer ' + self.token(values, scope)

    def token(self, challenge, scope):
        """Return a token from the server that a registry names (https://distribution.github.io/distribution/spec/)."""
        realm = urljoin(self.url, challenge['realm'])
        if self.login and not realm.startswith('https:') and not is_loopback(urlsplit(realm).netloc):
            raise TransferError("%s wants the password to be sent to %s without encryption" % (self.host, realm))
        query = [(key, value) for key, value in (('service', challenge.get('service')),
                                                 ('scope', challenge.get('scope') or scope)) if value]
        if self.login and self.login.token:
            form = query + [('grant_type', 'refresh_token'), ('client_id', 'ebsif'),
                            ('refresh_token', self.login.token)]
            request = Request(realm, data=urlencode(form).encode())
        else:
            request = Request(realm + ('&' if '?' in realm else '?') + urlencode(query))
            if self.login:
                request.add_unredirected_header('Authorization', basic(self.login))
        try:
            with open_url(request) as answer:
                content = json.loads(answer.read(MOST).decode())
            token = content.get('token') or content.get('access_token')
        except TransferError as err:
            if err.status in (400, 401, 403):
                raise TransferError(self.explain(err.status, "login refused"), status=err.status)
            raise
        except BROKEN as err:
            raise TransferError("no connection to %s: %s" % (realm, err), True)
        except (ValueError, AttributeError):
            token = None
        if not isinstance(token, str):
            raise TransferError("%s gives no token for %s" % (realm, self.host))
        return token

    def manifest(self, repository, reference):
        """
        Read a manifest.

        Parameters
        ----------
        repository : str
        reference : str
            Tag or digest.

        Returns
        -------
        Manifest

        Raises
        ------
        TransferError
            Also if the content doesn't have the digest.
        """
        with self.request('GET', '/v2/%s/manifests/%s' % (repository, reference), {'Accept': MANIFESTS},
                          repository=repository) as answer:
            try:
                data = answer.read(MOST + 1)
            except BROKEN as err:
                raise TransferError("the connection to %s was cut: %s" % (self.host, err), True)
        return parse_manifest(data, reference if reference.startswith('sha256:') else None, self.host)

    def blob(self, repository, digest, start=0):
        """
        Open a blob.

        Parameters
        ----------
        repository, digest : str
        start : int
            Where to begin; see ``start_of``.

        Returns
        -------
        http.client.HTTPResponse
        """
        return self.request('GET', '/v2/%s/blobs/%s' % (repository, digest), range_header(start),
                            repository=repository)


def parse_manifest(data, digest, place):
    """
    Return a Manifest.

    Parameters
    ----------
    data : bytes
    digest : str
        What it should have, None if that isn't known.
    place : str
        Where it comes from, for errors.

    Raises
    ------
    TransferError
        If it has another digest, or is no manifest.
    """
    found = 'sha256:' + hashlib.sha256(data).hexdigest()
    if digest not in (None, found):
        raise TransferError("%s has a manifest with the digest %s instead of %s: it was altered, or cut" % (
            place, found, digest))
    try:
        content = json.loads(data.decode())
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise TransferError("%s has something else in the place of a manifest" % place)
    return Manifest(content, found, data)


def digest_of(blob):
    """Return the digest of a part of a manifest (str), None if it isn't one."""
    digest = blob.get('digest') if isinstance(blob, dict) else None
    return digest if isinstance(digest, str) and re.match(r'sha256:[0-9a-f]{64}\Z', digest) else None


class Unauthorized(Exception):
    """Credentials were missing, and are there for the second attempt."""


def basic(login):
    """Return the header for user and password (RFC 7617)."""
    return 'Basic ' + base64.b64encode(('%s:%s' % (login.user, login.password)).encode()).decode()


def range_header(start):
    """Return the headers for the rest of a file from a position on (dict)."""
    return {'Range': 'bytes=%d-' % start} if start else {}


def start_of(answer):
    """Return the position at which an answer begins (int): 0 if the server doesn't send parts (RFC 9110, 14.4)."""
    match = re.match(r'bytes (\d+)-', answer.headers.get('Content-Range') or '')
    return int(match.group(1)) if answer.status == 206 and match else 0


def size_of(answer):
    """Return the size of the whole file of which an answer is a part, in bytes (int), None if unknown."""
    length = answer.headers.get('Content-Length')
    return start_of(answer) + int(length) if length and length.isdigit() else None
