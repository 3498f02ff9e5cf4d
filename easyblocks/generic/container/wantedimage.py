##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The image that an easyconfig describes: whether a file or a record is that of it, fetching and installing it.
"""
import os

from easybuild.easyblocks.generic.container.imagecopy import is_verified
from easybuild.easyblocks.generic.container.imagefetch import ImageFetch
from easybuild.easyblocks.generic.container.imageinstall import ImageInstall
from easybuild.easyblocks.generic.container.imagenote import SOURCE_DIGEST, check_content, origin_of
from easybuild.easyblocks.generic.container.sharedimage import IMAGE_CENTRAL, IMAGE_OWN, IMAGE_REFERENCE
from easybuild.easyblocks.generic.container.sif import signers
from easybuild.framework.easyconfig.easyconfig import letter_dir_for
from easybuild.tools.config import build_option
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256


class WantedImage:
    """
    The image that an easyconfig describes.

    Attributes
    ----------
    spec : ContainerSpec
    checksum : str, tuple, list, dict or None
        The checksum in the easyconfig, see is_verified.
    others : InstalledImages
        Images of other installations that this one may share.
    """

    def __init__(self, spec, checksum, others):
        """Take what is known of the image."""
        self.spec = spec
        self.checksum = checksum
        self.others = others

    def has_digest(self, sha256):
        """Return whether a recorded SHA256 is the checksum in the easyconfig; without one, any is."""
        return is_verified(self.checksum, self.spec.image_name,
                           lambda kind: sha256 if kind == CHECKSUM_TYPE_SHA256 else None)

    def is_recorded(self, image):
        """Return whether the image in the record of another installation (dict) is this one."""
        digest = self.spec.source.digest if self.spec.source else None
        # two conversions of the same image differ, so there only the digest of the source tells
        is_same = digest is None or self.checksum is not None or image.get(SOURCE_DIGEST) == digest
        return is_same and self.has_digest(image.get('sha256'))

    @property
    def shared_path(self):
        """Path of the image of another module, for a module without a copy (str), None if there is none (E-01)."""
        is_reference = self.spec.image == IMAGE_REFERENCE
        return self.others.find(self.spec.image_name, self.is_recorded) if is_reference else None

    def is_known(self, path):
        """Return whether a shared image is this one by its recorded SHA256, so that it needn't be read (E-01)."""
        recorded = self.others.unchanged(path) if self.spec.image != IMAGE_OWN else None
        return bool(recorded) and self.has_digest(recorded.image.get('sha256'))

    def fetch(self, source_path, again=False):
        """
        Fetch the image (R-01); return its path (str).

        Parameters
        ----------
        source_path : str
            EasyBuild's source path; a module that looks for its image in a central directory gets it there.
        again : bool
            Replace an image that is there.
        """
        folder = os.path.join(source_path, letter_dir_for(self.spec.name), self.spec.name)
        if self.spec.image == IMAGE_CENTRAL:
            folder = self.spec.central_directories[0]
        target = os.path.join(folder, self.spec.image_name)
        return ImageFetch(self.spec.source, target, self.has_digest, self.spec.lustre_striping).fetch(again)

    def install(self, path, found, installdir, signature):
        """
        Give an installation the image.

        Parameters
        ----------
        path, found : str
            Path of the image without links, and the path where it was found, which may have a note.
        installdir : str
        signature : Signature or None
            What was found of it, if signatures matter.

        Returns
        -------
        dict
            The part of the record on the image.
        """
        image = ImageInstall(self.spec.image, path, os.path.join(installdir, self.spec.image_name), self.others,
                             self.spec.lustre_striping)
        record = image.install(self.checksum, signature.sha256 if signature else None)
        if self.spec.source and not build_option('ignore_checksums'):
            check_content(found, record['sha256'])
        record.update(origin_of(found, record['sha256']), signers=signers(path))
        return dict(record, signature=signature.record) if signature else record
