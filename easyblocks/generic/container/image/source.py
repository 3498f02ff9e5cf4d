##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Where an image comes from (easyconfig parameter 'image_source'): registry, URL or OCI layout, with its digest.

Doesn't import EasyBuild, so that commands can use it too.
"""
import ipaddress
import re
from typing import Any, Dict, NamedTuple, Optional
from urllib.parse import urlsplit

from ..credentials import Credentials
from ..sitevalues import runtime_name

ORAS, DOCKER, HTTPS, OCI = 'oras', 'docker', 'https', 'oci'
IN_REGISTRY = (ORAS, DOCKER)
# kinds that need not contain a SIF file: the runtime converts the image
CONVERTED = (DOCKER, OCI)
# kinds that only the runtime knows, with its command that makes a SIF file of them
OTHER_KINDS = {'library': 'pull', 'shub': 'pull', 'oci-archive': 'build', 'docker-archive': 'build'}

FORM = {
    ORAS: "oras://HOST/PATH:TAG@sha256:DIGEST", DOCKER: "docker://HOST/PATH:TAG@sha256:DIGEST",
    HTTPS: "https://HOST/PATH#sha256=DIGEST", OCI: "oci:DIRECTORY:TAG@sha256:DIGEST"}
KINDS = tuple(FORM)
FORMS = ', '.join(FORM.values())

# https://github.com/opencontainers/distribution-spec/blob/main/spec.md: names and tags
TAG = r'(?P<tag>\w[\w.-]{0,127})'
TAG_AND_DIGEST = r'(?::%s)?(?:@sha256:(?P<hex>[0-9a-f]{64}))?\Z' % TAG
HOST = r'(?P<host>(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?)'
COMPONENT = r'[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*'

REGISTRY = re.compile(r'//(?:%s/)?(?P<repository>%s(?:/%s)*)%s' % (
    HOST, COMPONENT, COMPONENT, TAG_AND_DIGEST), re.ASCII)
LAYOUT = re.compile(r'(?P<path>/[^@]*?)' + TAG_AND_DIGEST, re.ASCII)
FILE = re.compile(r'(?P<path>/(?:(?!@sha256:)[^#])*[^#/])(?:#sha256=(?P<hex>[0-9a-f]{64}))?\Z')
PATTERNS = {ORAS: REGISTRY, DOCKER: REGISTRY, OCI: LAYOUT, HTTPS: FILE}

# Names without a host stand for Docker Hub, as in all programs for containers.
DOCKER_HUB = 'docker.io'


class ImageSource(NamedTuple):
    """
    A source of an image.

    Registries have a host (with its port if it has one), a repository and perhaps a tag; OCI layouts a path and perhaps
    a tag; `https` has the URL as its path. The digest ('sha256:...') of registries and layouts is the manifest's,
    otherwise the file's; None if it isn't known.
    """

    kind: str
    host: Optional[str] = None
    repository: Optional[str] = None
    tag: Optional[str] = None
    digest: Optional[str] = None
    path: str = ''

    @classmethod
    def parse(cls, text: str) -> 'ImageSource':
        """Read a source; raise ValueError with the problem, as a sentence that follows the text."""
        kind, _, rest = text.partition(':')
        if kind in OTHER_KINDS:
            raise ValueError("is no source that eb fetches by digest: fetch it yourself (`%s %s FILE.sif %s`), and use "
                             "the file" % (runtime_name(), OTHER_KINDS[kind], text))
        kind = HTTPS if kind == 'http' else kind
        if kind not in KINDS:
            raise ValueError("is not the source of an image: %s" % FORMS)
        if kind in IN_REGISTRY and '@' in rest and '@sha256:' not in rest:
            raise ValueError("has an @ without sha256: after it. Log in to registries with "
                             "`%s registry login`, and write the digest as @sha256:..." % runtime_name())
        match = PATTERNS[kind].match(rest)
        if not match:
            raise ValueError("should be %s (%s, 64 hexadecimal digits)" % (
                FORM[kind], "paths in lower case" if kind in IN_REGISTRY else "a full path"))
        parts: Dict[str, Any] = match.groupdict()
        digits = parts.pop('hex')
        source = cls(kind, digest=digits and 'sha256:' + digits, **parts)
        # a name alone is of Docker Hub's own images, none of which is an artifact
        if kind == ORAS and not source.host and '/' not in (source.repository or ''):
            raise ValueError("has no path after the host: oras:%s/PATH:TAG" % rest.partition('@')[0])
        return source.at_docker_hub() if kind in IN_REGISTRY else source.at_url(text) if kind == HTTPS else source

    def at_docker_hub(self) -> 'ImageSource':
        """Return the same source in a registry; names without a host belong to Docker Hub."""
        if self.host and re.search(r'[.:]|^localhost\Z', self.host):
            return self
        name = '%s/%s' % (self.host, self.repository) if self.host else self.repository or ''
        return self._replace(host=DOCKER_HUB, repository=name if '/' in name else 'library/' + name)

    def at_url(self, text: str) -> 'ImageSource':
        """Return the same source with the URL as its path; raise ValueError if nothing should be fetched from there."""
        url = urlsplit(text)
        if not url.hostname:
            raise ValueError("should be the URL of a SIF file: %s" % FORM[HTTPS])
        secrets = Credentials.find(text) or (['USER@'] if '@' in url.netloc else [])
        if secrets:
            raise ValueError("must not have a user or a credential (%s), which others could read: fetch the file "
                             "yourself, and list it in 'sources' alone" % ', '.join(secrets))
        if url.scheme == 'http' and not self.digest:
            raise ValueError("can be altered on the way: use https://, or add the digest as #sha256=DIGEST")
        return self._replace(path=text.partition('#')[0])

    @property
    def reference(self) -> str:
        """What a registry is asked for: the digest, else the tag."""
        return self.digest or self.tag or 'latest'

    @property
    def name(self) -> str:
        """The name of the image without tag and digest, as the runtime reads it."""
        if self.kind in IN_REGISTRY:
            return '%s://%s/%s' % (self.kind, self.host, self.repository)
        return self.path if self.kind == HTTPS else '%s:%s' % (self.kind, self.path)

    def with_digest(self, digest: Optional[str]) -> 'ImageSource':
        """Return the same source with a digest ('sha256:...'), which identifies the image, or without one."""
        return self._replace(digest=digest)

    def __str__(self) -> str:
        """Return the text that ``parse`` reads."""
        if self.kind == HTTPS:
            return self.name + ('#' + self.digest.replace(':', '=') if self.digest else '')
        return self.name + (':' + self.tag if self.tag else '') + ('@' + self.digest if self.digest else '')


def is_loopback(host: str) -> bool:
    """Return whether a registry is on this machine, where connections without encryption are safe."""
    try:
        name = urlsplit('//' + host).hostname or ''
        return name == 'localhost' or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def source_name(source: object) -> Optional[str]:
    """Return the file name of an item of 'sources': a string, a tuple or a dictionary; None if it is anything else."""
    if isinstance(source, dict):
        source = source.get('filename') or source.get('download_filename')
    elif isinstance(source, (list, tuple)) and source:
        source = source[0]
    return source if isinstance(source, str) else None
