"""
Manifests and blobs of registries (OCI distribution), with the runtime's login.

Credentials go to the registry and the server for tokens that
it names, and nowhere else.
"""
import base64
import hashlib
import json
import platform
import re
from collections import namedtuple
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import Request

from easybuild.easyblocks.generic.container.imagesource import DOCKER_HUB

from ebsif.images.registry.connection import (
    BROKEN,
    TEMPORARY,
    TransferError,
    check_next,
    is_loopback,
    open_url,
    place_of,
    range_header,
    send,
)
from ebsif.images.registry.login import login_for

MANIFESTS = ', '.join('application/vnd.' + kind for kind in (
    'oci.image.manifest.v1+json', 'oci.image.index.v1+json', 'docker.distribution.manifest.v2+json',
    'docker.distribution.manifest.list.v2+json'))
MOST = 4 * 1024 * 1024  # bytes of a manifest: the limit of registries

# The architecture of this machine as images name it, which is as Go does.
THIS_MACHINE = {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine())

# Media types of an image that Apptainer or SingularityCE has pushed (oras://); the second one is that of old versions.
SIF_LAYERS = ('application/vnd.sylabs.sif.layer.v1.sif', 'appliciation/vnd.sylabs.sif.layer.tar')

Manifest = namedtuple('Manifest', 'content digest data')
Manifest.__doc__ = "A manifest: the parsed content (dict), its digest ('sha256:...'), the bytes."


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
        self.url = '{}://{}'.format('http' if is_loopback(host) else 'https',
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
        check_next(url, self.url)
        is_own = place_of(url) == place_of(self.url)
        scope = f'repository:{repository}:{actions}' if repository else None
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
            return send(request, self.host)
        except HTTPError as err:
            challenge, code, reason = err.headers.get('WWW-Authenticate'), err.code, err.reason
            err.close()
            if code == 401 and attempt == 0 and place_of(err.geturl() or '') == place_of(self.url):
                self.authorizations[scope] = self.authorization(challenge or '', scope)
                raise Unauthorized from None
            raise TransferError(self.explain(code, reason), code in TEMPORARY, code) from None

    def explain(self, code, reason):
        """Return what a status means (str)."""
        if code in (401, 403):
            what = "the login in use has no access there; log in again" if self.login else "log in"
            return (f"{self.host} answers {code} ({reason}): {what} with `apptainer registry login --username NAME "
                    f"docker://{self.host}`")
        if code == 404:
            return f"{self.host} answers 404: it has no image of this name, tag or digest"
        return f"{self.host} answers {code} ({reason})"

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
        check_next(realm, self.url)
        if self.login and not realm.startswith('https:') and not is_loopback(urlsplit(realm).netloc):
            raise TransferError(f"{self.host} wants the password to be sent to {realm} without encryption")
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
                raise TransferError(self.explain(err.status, "login refused"), status=err.status) from None
            raise
        except BROKEN as err:
            raise TransferError(f"no connection to {realm}: {err}", True) from None
        except (ValueError, AttributeError):
            token = None
        if not isinstance(token, str):
            raise TransferError(f"{realm} gives no token for {self.host}")
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
        with self.request('GET', f'/v2/{repository}/manifests/{reference}', {'Accept': MANIFESTS},
                          repository=repository) as answer:
            try:
                data = answer.read(MOST + 1)
            except BROKEN as err:
                raise TransferError(f"the connection to {self.host} was cut: {err}", True) from None
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
        return self.request('GET', f'/v2/{repository}/blobs/{digest}', range_header(start),
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
        raise TransferError(f"{place} has a manifest with the digest {found} instead of {digest}: it was altered, or "
                            "cut")
    try:
        content = json.loads(data.decode())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise TransferError(f"what {place} has there is no manifest")
    return Manifest(content, found, data)


def digest_of(blob):
    """Return the digest of a part of a manifest (str), None if it isn't one."""
    digest = blob.get('digest') if isinstance(blob, dict) else None
    return digest if isinstance(digest, str) and re.match(r'sha256:[0-9a-f]{64}\Z', digest) else None


def fits_this_machine(kind):
    """Return whether the platform that an index names for an image (dict, None if it names none) is this machine's."""
    kind = {} if kind is None else kind
    return isinstance(kind, dict) and kind.get('os', 'linux') == 'linux' and \
        kind.get('architecture', THIS_MACHINE) == THIS_MACHINE


def sif_layer(layers):
    """
    Return the SIF file among the layers of a manifest, with which there may be others, such as a bill of materials.

    Parameters
    ----------
    layers : object
        What the manifest has as 'layers': a list of dictionaries, unless it is malformed.

    Returns
    -------
    dict
        None if there isn't exactly one SIF file, with a digest.
    """
    found = [layer for layer in layers if digest_of(layer) and layer.get('mediaType') in SIF_LAYERS] \
        if isinstance(layers, list) else []
    return found[0] if len(found) == 1 else None


class Unauthorized(Exception):
    """Credentials were missing, and are there for the second attempt."""


def basic(login):
    """Return the header for user and password (RFC 7617)."""
    return 'Basic ' + base64.b64encode((f'{login.user}:{login.password}').encode()).decode()
