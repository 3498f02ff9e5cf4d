##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Give an installation its image: a copy, or the path of an image that is there; check it later.
"""
import os
import time

from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.container.imagecopy import copy_image, is_verified
from easybuild.easyblocks.generic.container.sharedimage import IMAGE_OWN, IMAGE_REFERENCE
from easybuild.easyblocks.generic.container.texts import format_size
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.config import build_option
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum
from easybuild.tools.utilities import trace_msg


class ImageInstall:
    """
    Copies or shares one image.

    Parameters
    ----------
    kind : str
        What the easyconfig asks for: 'own', 'central' or 'reference'.
    source : str
        Path of the image, without links.
    target : str
        Path of the copy in the installation.
    others : InstalledImages
        The images of other installations.
    striping : list of str
        How a copy is spread over the servers of Lustre (options of ``lfs setstripe``).
    """

    def __init__(self, kind, source, target, others, striping=()):
        """Take what ``install`` needs."""
        self.kind = kind
        self.source = source
        self.target = target
        self.others = others
        self.striping = striping

    def install(self, checksum, verified=None):
        """
        Copy or share the image, and verify the checksum of the file that the module uses.

        Parameters
        ----------
        checksum : str, tuple, list, dict or None
            The checksum in the easyconfig, see is_verified.
        verified : str
            The SHA256 of the image whose signature was verified, None if there is none.

        Returns
        -------
        dict
            The part of the record on the image.

        Raises
        ------
        EasyBuildError
            If the image can't be copied, or isn't the one that the easyconfig or another module's record describes.
        """
        size = os.path.getsize(self.source)
        used, sha256 = self.provide()
        trace_msg("SHA256 %s" % sha256)
        if verified not in (None, sha256):
            raise EasyBuildError("The image %s changed during the installation, after its signature had been verified: "
                                 "its SHA256 is %s, and was %s. Try again when nobody is writing to it.", self.source,
                                 sha256, verified, exit_code=EasyBuildExit.FAIL_CHECKSUM)
        self.check(used, sha256, checksum)
        image = {'file': os.path.basename(self.target), 'kind': self.kind, 'mtime_ns': os.stat(used).st_mtime_ns,
                 'resolved': self.source, 'size': size, 'sha256': sha256}
        origin = self.others.origin(self.source) if self.kind == IMAGE_REFERENCE else None
        return dict(image, origin=origin) if origin else image

    def provide(self):
        """Copy or share the image; return the path of the one that the module uses, and its SHA256 (str)."""
        if self.kind == IMAGE_OWN:
            size, start = os.path.getsize(self.source), time.time()
            trace_msg("copying %s to %s (%s)" % (self.source, self.target, format_size(size)))
            sha256 = copy_image(self.source, self.target, self.striping)
            trace_msg("copied at %.1f GB/s" % (size / 1e9 / max(time.time() - start, 1e-3)))
            return self.target, sha256
        trace_msg("the image is not copied: the module uses %s" % self.source)
        return self.source, self.shared_digest()

    def shared_digest(self):
        """
        Return the SHA256 of an image that isn't copied: the recorded one, if size and time are those in the record.

        Raises
        ------
        EasyBuildError
            If the image has changed since that module was installed.
        """
        recorded = self.others.unchanged(self.source)
        if recorded:
            trace_msg("size and time of the image are those that %s recorded" % recorded.module)
            return recorded.image['sha256']
        trace_msg("computing the SHA256 of %s (%s)" % (self.source, format_size(os.path.getsize(self.source))))
        sha256 = compute_checksum(self.source, CHECKSUM_TYPE_SHA256)
        wrong = [one for one in self.others.using(self.source) if one.image.get('sha256') != sha256]
        if wrong and not build_option('ignore_checksums'):
            raise EasyBuildError("The image %s was changed after %s had been installed with it: its SHA256 is %s now, "
                                 "and was %s. Reinstall that module (eb --rebuild), or use an unchanged image.",
                                 self.source, wrong[0].module, sha256, wrong[0].image.get('sha256'),
                                 exit_code=EasyBuildExit.FAIL_CHECKSUM)
        return sha256

    def check(self, path, sha256, checksum):
        """
        Verify the checksum of the image that the module uses: the source may have changed during the installation.

        Parameters
        ----------
        path : str
            The image.
        sha256 : str
            Its SHA256; checksums of other types are computed here.
        checksum : str, tuple, list, dict or None
            The checksum in the easyconfig.

        Raises
        ------
        EasyBuildError
            If the checksum differs from the one in the easyconfig.
        """
        def compute(kind):
            return sha256 if kind == CHECKSUM_TYPE_SHA256 else compute_checksum(path, kind)

        if not build_option('ignore_checksums') and not is_verified(checksum, os.path.basename(self.target), compute):
            raise EasyBuildError("The image %s changed during the installation: its checksum no longer matches the "
                                 "easyconfig (its SHA256 is %s). Try again when nobody is writing to it.",
                                 self.source, sha256, exit_code=EasyBuildExit.FAIL_CHECKSUM)


def check_installed_image(installed):
    """
    Check that the image of a module that was installed before is the recorded one (I-03).

    It is only read if its size is the recorded one, but its time isn't.

    Parameters
    ----------
    installed : InstalledImage

    Raises
    ------
    EasyBuildError
        If the image has been changed.
    """
    path, size = installed.path, installed.image.get('size')
    # without its own copy, the module uses one that nobody has recorded
    is_recorded = path and size is not None and (installed.is_shared or path == installed.own_path)
    if not is_recorded or installed.is_unchanged:
        return
    if installed.has_size:
        trace_msg("computing the SHA256 of %s, because its time has changed" % path)
        if compute_checksum(path, CHECKSUM_TYPE_SHA256) == installed.image.get('sha256'):
            return
    raise EasyBuildError("The image %s was changed after %s had been installed: it has %d bytes, and had %d. Put "
                         "the earlier image back, or install the module again with `eb --rebuild`.", path,
                         installed.module, os.path.getsize(path), size, exit_code=EasyBuildExit.FAIL_CHECKSUM)


def check_not_removed(image, installdir, problem):
    """Raise EasyBuildError if an earlier installation, which must be emptied for a problem, has the only image."""
    if os.path.dirname(image) == os.path.realpath(installdir):
        raise EasyBuildError("The earlier installation can't be swapped with a new one (%s), and emptying it would "
                             "remove the image %s, which the new one needs: copy it to another directory, and name "
                             "that with --sourcepath.", problem, image)
