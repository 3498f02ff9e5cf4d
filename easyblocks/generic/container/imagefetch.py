##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Fetch an image from where the easyconfig says it is (parameter 'image_source') into EasyBuild's source path.

What is being fetched has another name until it is complete and verified. A note beside the image says where it is from,
for installations later on.
"""
import glob
import os
from contextlib import ExitStack, contextmanager
from urllib.request import Request

from easybuild.easyblocks.generic.container.connection import TransferError, open_url, range_header
from easybuild.easyblocks.generic.container.conversion import Conversion
from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.container.imagecopy import copy_image, make_striped, transfer
from easybuild.easyblocks.generic.container.imagenote import note_path, write_note
from easybuild.easyblocks.generic.container.imagesource import DOCKER, DOCKER_ARCHIVE, OCI, ON_DISK, ORAS
from easybuild.easyblocks.generic.container.lease import Lease, LostLease
from easybuild.easyblocks.generic.container.ociimage import OciImage, open_store
from easybuild.easyblocks.generic.container.readable import make_open_directory
from easybuild.easyblocks.generic.container.progress import Progress, download
from easybuild.easyblocks.generic.container.registry import Registry, blob_size, sif_layer
from easybuild.easyblocks.generic.container.runtime import Runtime
from easybuild.easyblocks.generic.container.sif import is_sif, is_whole
from easybuild.easyblocks.generic.container.texts import ERRORS, format_size
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, mkdir, remove_dir, remove_file
from easybuild.tools.utilities import trace_msg


class ImageFetch:
    """
    Fetches one image.

    Attributes
    ----------
    source : ImageSource
        With digest as soon as that is known.
    target : str
        Path of the SIF file.
    is_expected : callable
        Returns whether a SHA256 is the checksum in the easyconfig; without one, any is.
    striping : sequence of str
        How the image is spread over the servers of Lustre (options of ``lfs setstripe``).
    """

    def __init__(self, source, target, is_expected, striping=()):
        """Nothing is sent yet."""
        self.source = source
        self.target = target
        self.is_expected = is_expected
        self.striping = striping
        self.waits = Progress(self.name)

    @property
    def name(self):
        """File name of the image (str)."""
        return os.path.basename(self.target)

    @property
    def partial(self):
        """Path of the file, or the directory, that is incomplete (str); another digest has another one."""
        return '%s.partial-%s' % (self.target, self.source.digest.partition(':')[2][:12] if self.source.digest else '0')

    def fetch(self, again=False):
        """Fetch the image, also if another process takes over what this one has begun; see ``fetch_once``."""
        while True:
            try:
                return self.fetch_once(again)
            except LostLease:
                self.complete = None
                trace_msg("this process was suspended, and another one may have gone on with %s" % self.name)

    def fetch_once(self, again):
        """
        Fetch the image, unless another process has done so meanwhile.

        Parameters
        ----------
        again : bool
            Replace an image that is there.

        Returns
        -------
        str
            The path.

        Raises
        ------
        EasyBuildError
            If the image can't be had, or is not what the easyconfig says. Nothing of that is left under its name.
        LostLease
            If another process may have taken over.
        """
        make_open_directory(os.path.dirname(self.target))
        with self.locked():
            if os.path.exists(self.target) and not again:
                trace_msg("%s has been fetched by another process meanwhile" % self.name)
                return self.target
            trace_msg("fetching %s from %s" % (self.name, self.source))
            try:
                sha256 = self.transfer()
            except TransferError as err:
                raise EasyBuildError("%s can't be fetched from %s: %s", self.name, self.source, err,
                                     exit_code=EasyBuildExit.FAIL_DOWNLOAD)
            finally:
                # what is on this machine can be read again
                if self.source.kind in ON_DISK and not self.complete and os.path.exists(self.partial) and \
                        self.lease.is_held:
                    remove_dir(self.partial)
            self.lease.check()
            # others can read it whatever the umask, as they can the note
            os.chmod(self.complete, 0o644)
            # in this order: if eb is killed here, no image is left with the note on another one
            for path in (self.target, note_path(self.target)):
                if os.path.lexists(path):
                    remove_file(path)
            write_note(self.target, self.source, sha256)
            os.rename(self.complete, self.target)
            for path in glob.glob(glob.escape(self.target) + '.partial-*'):
                (remove_dir if os.path.isdir(path) else remove_file)(path)
        return self.target

    @contextmanager
    def locked(self):
        """Context manager that keeps other processes from fetching the image as well."""
        self.lease = Lease(self.target + '.lock')
        with ExitStack() as held:
            try:
                held.enter_context(self.lease.held(self.wait))
            except OSError as err:
                why = ERRORS.get(err.errno) or "%s. Remove what a killed process has left there, or choose another " \
                    "directory" % err.strerror
                raise EasyBuildError("%s can't be fetched, because the lock %s.lock can't be taken: %s.", self.name,
                                     self.target, why, exit_code=EasyBuildExit.FAIL_DOWNLOAD)
            try:
                yield
            except EasyBuildError:
                # what another process does with the same files may be the reason
                self.lease.check()
                raise

    def wait(self, owner):
        """Say who is fetching the image."""
        who = "process %s on %s" % (owner['pid'], owner['host']) if owner else "another process"
        self.waits.say("waiting for %s, which is fetching it" % who)

    def transfer(self):
        """Fetch and verify the image; return its SHA256 (str). It is in ``complete`` then."""
        if self.source.is_converted:
            return self.convert()
        return self.from_registry() if self.source.kind == ORAS else self.from_url()

    complete = None

    def from_registry(self):
        """Fetch a SIF file from a registry; see ``transfer``."""
        registry, repository = Registry(self.source.host), self.source.repository
        manifest = registry.manifest(repository, self.source.reference)
        layer = sif_layer(manifest.content.get('layers'))
        if not layer:
            raise TransferError("that is no SIF file, but an image of layers or something else. For an image of layers "
                                "write docker:// instead of oras://")
        self.source = self.source.with_digest(manifest.digest)
        digest = layer['digest']
        self.check_expected(digest.partition(':')[2])
        return self.download(lambda start: registry.blob(repository, digest, start), digest, blob_size(layer))

    def from_url(self):
        """Fetch a SIF file by its URL; see ``transfer``."""
        digest = self.source.digest
        if digest:
            self.check_expected(digest.partition(':')[2])
        elif os.path.exists(self.partial):
            # nothing says that the file on the server is still the same
            remove_file(self.partial)
        sha256 = self.download(lambda start: open_url(Request(self.source.path, headers=range_header(start))), digest)
        if not digest:
            self.check_expected(sha256)
        self.source = self.source.with_digest('sha256:' + sha256)
        return sha256

    def check_expected(self, sha256):
        """Check that the SIF file behind the source is the one in the easyconfig, before it is fetched if possible."""
        if not self.is_expected(sha256):
            raise EasyBuildError("The image from %s has the SHA256 %s, and 'checksums' in the easyconfig names another "
                                 "one. Correct the one that is wrong.", self.source, sha256,
                                 exit_code=EasyBuildExit.FAIL_CHECKSUM)

    def download(self, open_at, digest, size=None):
        """
        Download a SIF file and verify it; return its SHA256 (str).

        Parameters
        ----------
        open_at : callable
            See Download.
        digest : str
            Its digest, None if it isn't known.
        size : int
            Its size, None if it isn't known.
        """
        self.complete = self.partial
        had = os.path.exists(self.complete)
        sha256 = self.download_once(open_at, digest, size)
        if sha256 is None and (had or not os.path.exists(self.complete)):
            trace_msg("what was there from before is damaged: fetching all of it again")
            remove_file(self.complete)
            sha256 = self.download_once(open_at, digest, size)
        if sha256 is None:
            remove_file(self.complete)
            raise EasyBuildError("What %s sends for %s doesn't have the digest %s: it was altered on the way or on the "
                                 "server. Nothing of it is kept.", self.source.host or self.source.path, self.name,
                                 digest, exit_code=EasyBuildExit.FAIL_CHECKSUM)
        # without a digest, nothing else shows a cut if the server doesn't name the size
        problem = "no SIF file" if not is_sif(self.complete) else "" if digest or is_whole(self.complete) else \
            "an incomplete SIF file"
        if problem:
            remove_file(self.complete)
            raise EasyBuildError("What %s sends is %s. Nothing of it is kept.", self.source, problem,
                                 exit_code=EasyBuildExit.FAIL_DOWNLOAD)
        return sha256

    def download_once(self, open_at, digest, size):
        """Download the rest of a SIF file; return its SHA256 (str), None for another digest, or without a file."""
        def open_alone(start):
            # two processes that write to the same file would damage it
            self.lease.check()
            return open_at(start)

        if not os.path.exists(self.complete):
            make_striped(self.complete, self.striping)
        download(self.name, open_alone, self.complete, size, can_go_on=bool(digest))
        self.lease.check()
        try:
            trace_msg("verifying %s (%s)" % (self.name, format_size(os.path.getsize(self.complete))))
            with open(self.complete, 'rb', buffering=0) as image:
                sha256 = transfer(image, None)[0]
        except FileNotFoundError:
            return None
        return sha256 if digest in (None, 'sha256:' + sha256) else None

    def convert(self):
        """Let the runtime convert an OCI image; see ``transfer``."""
        if self.source.kind != DOCKER and not os.path.exists(self.source.path):
            raise EasyBuildError("%s doesn't exist, from which %s is to be made", self.source.path, self.name,
                                 exit_code=EasyBuildExit.FAIL_DOWNLOAD)
        # before anything is fetched
        runtime = Runtime()
        reference = self.archive_reference() if self.source.kind == DOCKER_ARCHIVE else self.layout_reference()
        conversion = Conversion(runtime, self.partial)
        if not self.complete:
            conversion.run(self.name, reference, " What was fetched is kept there for the next attempt."
                           if self.source.kind == DOCKER else '')
            self.complete = conversion.result
        return compute_checksum(self.complete, CHECKSUM_TYPE_SHA256)

    def archive_reference(self):
        """Verify an archive of Docker; return what the runtime calls it (str)."""
        found = 'sha256:' + compute_checksum(self.source.path, CHECKSUM_TYPE_SHA256)
        if self.source.digest not in (None, found):
            raise EasyBuildError("%s has the SHA256 %s instead of that in 'image_source': it was altered, or is "
                                 "another file.", self.source.path, found[7:], exit_code=EasyBuildExit.FAIL_CHECKSUM)
        self.source = self.source.with_digest(found)
        self.make_folder()
        return '%s:%s' % (DOCKER_ARCHIVE, self.source.path)

    def layout_reference(self):
        """Collect an OCI image in a layout; return what the runtime calls that (str)."""
        store = open_store(self.source)
        manifest = store.manifest(self.source)
        self.source = self.source.with_digest(manifest.digest)
        self.make_folder()
        image = OciImage(store, os.path.join(self.partial, 'layout'))
        layer = sif_layer(image.collect(self.source, manifest))
        if layer:
            # a SIF file that was pushed into a layout
            self.check_expected(layer['digest'].partition(':')[2])
            self.complete = self.copied(image.path(layer['digest']), layer['digest'])
        return '%s:%s' % (OCI, image.folder)

    def make_folder(self):
        """Create the directory for a conversion; the SIF file in it gets its stripes."""
        mkdir(self.partial)
        make_striped(self.partial, self.striping)

    def copied(self, blob, digest):
        """Copy a SIF file out of a layout, where it may have changed since it was verified; return its path (str)."""
        copy = os.path.join(self.partial, 'image.sif')
        found = 'sha256:' + copy_image(blob, copy, self.striping)
        if found != digest or not is_sif(copy):
            raise EasyBuildError("What %s has for %s %s. Nothing of it is kept.", self.source, self.name,
                                 "is no SIF file" if found == digest else "was altered: its digest is %s" % found,
                                 exit_code=EasyBuildExit.FAIL_CHECKSUM)
        return copy
