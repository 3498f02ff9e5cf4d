##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
OCI images: collect the blobs of one image in a layout of our own, which the container runtime can convert to SIF.

The blobs come from a registry, a layout or an archive. Runtimes differ in how they choose an image in a layout, and
start large blobs again after a cut; a layout with one image, made by us, works with all of them.
"""
import json
import os
import tarfile

from easybuild.easyblocks.generic.container.download import FilePart
from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.container.imagecopy import transfer
from easybuild.easyblocks.generic.container.imagesource import DOCKER, OCI
from easybuild.easyblocks.generic.container.progress import download
from easybuild.easyblocks.generic.container.registry import MOST, THIS_MACHINE, Registry, blob_size, digest_of
from easybuild.easyblocks.generic.container.registry import fits_this_machine, parse_manifest
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import mkdir, remove_file, write_file

# https://github.com/opencontainers/image-spec/blob/main/annotations.md: the tag in the index of a layout
TAG = 'org.opencontainers.image.ref.name'


def open_store(source):
    """Return where the blobs of a source (ImageSource) are: an object like DirectoryStore."""
    return {DOCKER: RegistryStore, OCI: DirectoryStore}.get(source.kind, ArchiveStore)(source)


class RegistryStore:
    """Blobs in a registry."""

    def __init__(self, source):
        """Nothing is sent yet."""
        self.registry = Registry(source.host)
        self.repository = source.repository

    def manifest(self, source):
        """Return the Manifest of a source; raises TransferError."""
        return self.manifest_of(source.reference)

    def manifest_of(self, reference):
        """Return the Manifest of a tag or digest."""
        return self.registry.manifest(self.repository, reference)

    def get(self, digest, size, path):
        """Download a blob; a part of it may be there."""
        download('blob ' + digest[7:19], lambda start: self.registry.blob(self.repository, digest, start), path, size)


class DirectoryStore:
    """Blobs of an OCI layout in a directory."""

    def __init__(self, source):
        """Nothing is read yet."""
        self.path = source.path

    def read(self, name):
        """Return a small file of the layout (bytes); raises OSError."""
        with open(os.path.join(self.path, name), 'rb') as file:
            return file.read(MOST)

    def manifest(self, source):
        """Return the Manifest of a source, which the index of the layout must have."""
        try:
            entries = [entry for entry in json.loads(self.read('index.json').decode())['manifests'] if is_entry(entry)]
        except (OSError, ValueError, KeyError, TypeError, RecursionError, tarfile.TarError) as err:
            raise EasyBuildError("%s is no OCI layout that can be read: %s", self.path, err,
                                 exit_code=EasyBuildExit.FAIL_DOWNLOAD)
        wanted = {entry['digest'] for entry in entries if source.digest in (None, entry['digest'])
                  and source.tag in (None, tag_of(entry))}
        if len(wanted) != 1:
            known = ', '.join('%s@%s' % (tag_of(entry) or '(no tag)', entry['digest']) for entry in entries)
            raise EasyBuildError("%s is %s of the images in %s. It has: %s", source,
                                 "more than one" if wanted else "none", self.path, known or "none",
                                 exit_code=EasyBuildExit.FAIL_DOWNLOAD)
        return self.manifest_of(wanted.pop())

    def manifest_of(self, digest):
        """Return the Manifest of a digest."""
        try:
            return parse_manifest(self.read(blob_name(digest)), digest, self.path)
        except (OSError, tarfile.TarError) as err:
            raise EasyBuildError("The manifest %s is missing in %s: %s", digest, self.path, err,
                                 exit_code=EasyBuildExit.FAIL_DOWNLOAD)

    def get(self, digest, size, path):
        """Make a blob available under a path."""
        if os.path.lexists(path):
            remove_file(path)
        os.symlink(os.path.join(self.path, blob_name(digest)), path)


class ArchiveStore(DirectoryStore):
    """Blobs of an OCI layout in an archive."""

    def member(self, archive, name):
        """Return a file of the archive; raises OSError."""
        for member in archive:
            # some programs write './index.json'
            if os.path.normpath(member.name) == name and member.isfile():
                return archive.extractfile(member)
        raise OSError("there is no %s" % name)

    def read(self, name):
        """Return a small file of the layout (bytes); raises OSError, TarError."""
        with tarfile.open(self.path) as archive:
            return self.member(archive, name).read(MOST)

    def get(self, digest, size, path):
        """Extract a blob."""
        with tarfile.open(self.path) as archive:
            download('blob ' + digest[7:19],
                     lambda start: FilePart(self.member(archive, blob_name(digest)), start, size), path, size)


class OciImage:
    """
    One image in a layout of its own.

    Attributes
    ----------
    store : RegistryStore, DirectoryStore or ArchiveStore
        Where its blobs are.
    folder : str
        The layout, in which some blobs may be from an attempt that failed.
    """

    def __init__(self, store, folder):
        """Nothing is read yet."""
        self.store = store
        self.folder = folder

    def collect(self, source, manifest):
        """
        Get all blobs of the image that the manifest describes, for this machine if it is for several.

        Parameters
        ----------
        source : ImageSource
        manifest : Manifest

        Returns
        -------
        list of dict
            The layers: 'mediaType', 'digest', 'size'.

        Raises
        ------
        EasyBuildError, TransferError
            Nothing that was altered is kept.
        """
        mkdir(os.path.join(self.folder, 'blobs', 'sha256'), parents=True)
        if 'manifests' in manifest.content:
            manifest = self.store.manifest_of(self.for_this_machine(source, manifest))
        layers, config = manifest.content.get('layers'), manifest.content.get('config')
        blobs = layers + [config] if isinstance(layers, list) else []
        if not blobs or not all(is_descriptor(blob) for blob in blobs):
            raise EasyBuildError("%s is no image: its manifest has no layers", source,
                                 exit_code=EasyBuildExit.FAIL_DOWNLOAD)
        for blob in blobs:
            self.get(blob['digest'], blob['size'])
        write_file(os.path.join(self.folder, blob_name(manifest.digest)), manifest.data, forced=True)
        entry = {'mediaType': manifest.content.get('mediaType', 'application/vnd.oci.image.manifest.v1+json'),
                 'digest': manifest.digest, 'size': len(manifest.data)}
        write_file(os.path.join(self.folder, 'oci-layout'), '{"imageLayoutVersion": "1.0.0"}', forced=True)
        write_file(os.path.join(self.folder, 'index.json'),
                   json.dumps({'schemaVersion': 2, 'manifests': [entry]}), forced=True)
        return layers

    @staticmethod
    def for_this_machine(source, index):
        """Return the digest of the manifest for this machine in an index of several (str)."""
        manifests = index.content['manifests']
        entries = [entry for entry in manifests if digest_of(entry)] if isinstance(manifests, list) else []
        wanted = [entry['digest'] for entry in entries if fits_this_machine(entry.get('platform'))]
        if not wanted:
            raise EasyBuildError("%s has no image for this machine (linux/%s), only for: %s", source, THIS_MACHINE,
                                 ', '.join(sorted(map(platform_of, entries))) or "none",
                                 exit_code=EasyBuildExit.FAIL_DOWNLOAD)
        return wanted[0]

    def path(self, digest):
        """Return the path of a blob in the layout (str)."""
        return os.path.join(self.folder, blob_name(digest))

    def get(self, digest, size):
        """Get and verify a blob, unless it is there."""
        path = self.path(digest)
        if os.path.exists(path):
            return
        partial = path + '.partial'
        try:
            self.store.get(digest, size, partial)
            with open(partial, 'rb', buffering=0) as blob:
                found = transfer(blob, None)[0]
        except (OSError, tarfile.TarError) as err:
            raise EasyBuildError("The blob %s can't be read: %s", digest, err, exit_code=EasyBuildExit.FAIL_DOWNLOAD)
        if 'sha256:' + found != digest:
            remove_file(partial)
            raise EasyBuildError("The blob %s was altered, on the way or where it comes from: its SHA256 is %s. "
                                 "Nothing of it is kept.", digest, found, exit_code=EasyBuildExit.FAIL_CHECKSUM)
        os.rename(partial, path)


def tag_of(entry):
    """Return the tag of an entry of an index (str), None without one."""
    return (entry.get('annotations') or {}).get(TAG)


def platform_of(entry):
    """Return the platform of an entry of an index (str)."""
    kind = entry['platform'] if isinstance(entry['platform'], dict) else {}
    return '%s/%s' % (kind.get('os'), kind.get('architecture'))


def is_entry(entry):
    """Return whether an entry of the index of a layout names a manifest, and perhaps its tag."""
    return bool(digest_of(entry)) and isinstance(entry.get('annotations') or {}, dict)


def blob_name(digest):
    """Return the path of a blob in a layout (str), for a digest that digest_of accepts: others may lead out of it."""
    return os.path.join('blobs', *digest.split(':'))


def is_descriptor(blob):
    """Return whether a part of a manifest says which blob it is."""
    return bool(digest_of(blob)) and blob_size(blob) is not None
