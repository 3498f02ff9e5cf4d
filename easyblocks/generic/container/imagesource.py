##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Where an image comes from (easyconfig parameter 'image_source'): registry, URL, archive or OCI layout, with its digest.

Doesn't import EasyBuild, so that commands can use it too.
"""
import os
import re
from urllib.parse import urlsplit

from easybuild.easyblocks.generic.container.credentials import Credentials

ORAS, DOCKER, HTTPS = 'oras', 'docker', 'https'
DOCKER_ARCHIVE, OCI_ARCHIVE, OCI = 'docker-archive', 'oci-archive', 'oci'
KINDS = (ORAS, DOCKER, HTTPS, DOCKER_ARCHIVE, OCI_ARCHIVE, OCI)
IN_REGISTRY = (ORAS, DOCKER)
ON_DISK = (DOCKER_ARCHIVE, OCI_ARCHIVE, OCI)
# those whose content is not a SIF file: the runtime converts it
CONVERTED = (DOCKER,) + ON_DISK

FORMS = "oras://HOST/PATH:TAG@sha256:DIGEST, docker://HOST/PATH:TAG@sha256:DIGEST, https://HOST/PATH#sha256=DIGEST, " \
    "oci:DIRECTORY, oci-archive:FILE or docker-archive:FILE"

# https://github.com/opencontainers/distribution-spec/blob/main/spec.md: names and tags
DIGEST = r'(?P<digest>sha256:[0-9a-f]{64})'
TAG = r'(?P<tag>\w[\w.-]{0,127})'
HOST = r'(?P<host>(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?)'
COMPONENT = r'[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*'
REGISTRY = re.compile(r'(?:%s/)?(?P<repository>%s(?:/%s)*)(?::%s)?(?:@%s)?\Z' % (
    HOST, COMPONENT, COMPONENT, TAG, DIGEST), re.ASCII)
LAYOUT = re.compile(r'(?P<path>/[^@]*?)(?::%s)?(?:@%s)?\Z' % (TAG, DIGEST), re.ASCII)
FILE = re.compile(r'(?P<path>[^#]+?)(?:#sha256=(?P<hex>[0-9a-f]{64}))?\Z')

# Names without a host stand for Docker Hub, as in all programs for containers.
DOCKER_HUB = 'docker.io'


class ImageSource:
    """
    A source of an image.

    Attributes
    ----------
    kind : str
        One of KINDS.
    host, repository : str
        Of registries: the registry, with its port if it has one, and the name in it; None for others.
    tag : str
        The tag of registries and OCI layouts, None without one.
    digest : str
        'sha256:...', None if the source doesn't name it: of the manifest (oras, docker, oci, oci-archive) or the file
        (https, docker-archive).
    path : str
        The URL without digest, or the full path of the file or directory; None for registries.
    """

    def __init__(self, kind, host=None, repository=None, tag=None, digest=None, path=None):
        """Set the parts; see ``parse``."""
        self.kind = kind
        self.host = host
        self.repository = repository
        self.tag = tag
        self.digest = digest
        self.path = path

    @classmethod
    def parse(cls, text):
        """
        Read a source.

        Parameters
        ----------
        text : str

        Returns
        -------
        ImageSource

        Raises
        ------
        ValueError
            With the problem, as a sentence that follows the text.
        """
        kind, separator, rest = text.partition(':')
        if kind in IN_REGISTRY and rest.startswith('//'):
            return cls.in_registry(kind, rest[2:])
        if kind in ('http', HTTPS) and rest.startswith('//'):
            return cls.at_url(text)
        if kind in ('library', 'shub') and rest.startswith('//'):
            raise ValueError("is no source that can be fetched by digest, as eb does: fetch it yourself (`apptainer "
                             "pull FILE.sif %s`), and name the file" % text)
        if not separator or kind not in ON_DISK:
            raise ValueError("is not the source of an image: %s" % FORMS)
        match = (FILE if kind == DOCKER_ARCHIVE else LAYOUT).match(rest)
        if not match or not os.path.isabs(rest):
            raise ValueError("should be %s:, the full path, and the digest if it is known (%s)" % (
                kind, '#sha256=DIGEST' if kind == DOCKER_ARCHIVE else ':TAG@sha256:DIGEST'))
        parts = match.groupdict()
        return cls(kind, path=parts['path'], tag=parts.get('tag'),
                   digest=parts.get('digest') or in_algorithm(parts.get('hex')))

    @classmethod
    def in_registry(cls, kind, text):
        """Return the source for a name in a registry; see ``parse``."""
        if '@' in text and '@sha256:' not in text:
            raise ValueError("has an @ without sha256: after it. Log in to registries with "
                             "`apptainer registry login`, and write the digest as @sha256:...")
        match = REGISTRY.match(text)
        if not match:
            raise ValueError("should be %s://HOST/PATH:TAG@sha256:DIGEST (paths in lower case, 64 hexadecimal digits)"
                             % kind)
        parts = match.groupdict()
        host, repository = parts['host'], parts['repository']
        if host and not re.search(r'[.:]|^localhost\Z', host):
            host, repository = None, '%s/%s' % (host, repository)
        if not host:
            host, repository = DOCKER_HUB, repository if '/' in repository else 'library/' + repository
        return cls(kind, host, repository, parts['tag'], parts['digest'])

    @classmethod
    def at_url(cls, text):
        """Return the source for a URL; see ``parse``."""
        match = FILE.match(text)
        url = urlsplit(match.group('path')) if match else None
        if not match or not url.hostname or url.path.endswith('/'):
            raise ValueError("should be the URL of a SIF file, with its digest as https://HOST/PATH#sha256=DIGEST (64 "
                             "hexadecimal digits)")
        if '@' in url.netloc:
            raise ValueError("must not have a user or a password, which others could read")
        secrets = Credentials.find(match.group('path'))
        if secrets:
            raise ValueError("must not have a credential (%s), which others could read: fetch the file yourself, and "
                             "name it in 'sources' alone" % ', '.join(secrets))
        if url.scheme == 'http' and not match.group('hex'):
            raise ValueError("can be altered on the way: use https://, or add the digest as #sha256=DIGEST")
        return cls(HTTPS, path=match.group('path'), digest=in_algorithm(match.group('hex')))

    @property
    def reference(self):
        """What a registry is asked for: the digest, else the tag (str)."""
        return self.digest or self.tag or 'latest'

    @property
    def is_converted(self):
        """Whether the runtime has to convert the content to a SIF file."""
        return self.kind in CONVERTED

    def with_digest(self, digest):
        """Return the same source with a digest ('sha256:...'), which decides what it is (ImageSource)."""
        return ImageSource(self.kind, self.host, self.repository, self.tag, digest, self.path)

    def __str__(self):
        """Return the text that ``parse`` reads."""
        if self.kind in (HTTPS, DOCKER_ARCHIVE):
            start = '' if self.kind == HTTPS else self.kind + ':'
            return start + self.path + ('#' + self.digest.replace(':', '=') if self.digest else '')
        name = '%s://%s/%s' % (self.kind, self.host, self.repository) if self.kind in IN_REGISTRY else \
            '%s:%s' % (self.kind, self.path)
        return name + (':' + self.tag if self.tag else '') + ('@' + self.digest if self.digest else '')


def in_algorithm(digits):
    """Return the digest 'sha256:...' for hexadecimal digits; None for None."""
    return 'sha256:' + digits if digits else None


def source_name(source):
    """Return the file name of an item of 'sources', which may be a string, a tuple or a dictionary."""
    if isinstance(source, dict):
        return source.get('filename') or source.get('download_filename')
    return source[0] if isinstance(source, (list, tuple)) and source else source
