##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The image of a module: its own copy, or an image that is used where it is; its checksum, its note, later checks.
"""
import json
import os
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional, Sequence

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.config import build_option
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, verify_checksum
from easybuild.tools.utilities import trace_msg

from ..copying import copy_hashed, file_identity
from ..framework import EasyBuildExit
from ..messages import COPYING, NOT_COPIED
from ..record.lockfile import IMAGE_OWN, IMAGE_REFERENCE, ImageRecord
from ..values import format_size
from .installed import InstalledImage, InstalledImages
from .sif import signers
from .signature import verify
from .source import ImageSource

SOURCE, SOURCE_DIGEST, SHA256 = 'source', 'source_digest', 'sha256'


class ContentError(EasyBuildError):
    """An image has other contents than it should have."""

    def __init__(self, text: str) -> None:
        """Set the exit status of eb for wrong checksums."""
        super().__init__("%s", text, exit_code=EasyBuildExit.FAIL_CHECKSUM)


class Wanted(NamedTuple):
    """What an easyconfig says about its image: file name, kind (own, central, reference), where to fetch it, ..."""

    name: str
    kind: str
    source: Optional[ImageSource] = None
    striping: Sequence[str] = ()  # options of lfs-setstripe(1)
    checksum: object = None  # in any form that EasyBuild supports


class Image:
    """The image that an easyconfig describes (`wanted`); `others` are the images of other installations."""

    def __init__(self, wanted: Wanted, others: InstalledImages) -> None:
        """Store the arguments."""
        self.wanted = wanted
        self.others = others

    def has_checksum(self, path: str, sha256: str) -> bool:
        """Return whether a file with a known SHA256 has the easyconfig's checksum; True if the easyconfig has none."""
        checksum = self.wanted.checksum
        return checksum is None or verify_checksum(path, checksum, {CHECKSUM_TYPE_SHA256: sha256})

    def is_image_of(self, installed: InstalledImage) -> bool:
        """Return whether the image of another installation is this one, by its record."""
        digest = self.wanted.source.digest if self.wanted.source else None
        # two conversions of the same image differ, so there only the digest of the source tells
        is_same = digest is None or self.wanted.checksum is not None or installed.image.source_digest == digest
        return is_same and self.has_checksum(installed.path() or '', installed.image.sha256 or '')

    def shared_path(self) -> Optional[str]:
        """Return the path of the image of another module, for a module without a copy; None if there is none (E-01)."""
        if self.wanted.kind != IMAGE_REFERENCE:
            return None
        return self.others.find(self.wanted.name, self.is_image_of)

    def is_known(self, path: str) -> bool:
        """Return whether a shared image has the right SHA256 in a record, so that the file needn't be read (E-01)."""
        recorded = self.others.unchanged(path) if self.wanted.kind != IMAGE_OWN else None
        return recorded is not None and self.has_checksum(path, recorded.image.sha256 or '')

    def install(self, opened: 'OpenImage', found: str, installdir: str) -> ImageRecord:
        """
        Give an installation the image; return the part of the record on it.

        `found` is the path where the image was found, without links resolved: a note may be beside it.
        """
        target = os.path.join(installdir, self.wanted.name)
        is_own = self.wanted.kind == IMAGE_OWN
        sha256 = self.copy(opened, target) if is_own else self.digest_in_place(opened.path)
        trace_msg("SHA256 %s" % sha256)
        opened.check_unchanged()
        # NFS keeps an open file that is removed with an earlier installation, and its directory
        opened.file.close()
        used = target if is_own else opened.path
        if not build_option('ignore_checksums'):
            self.check(used, found, sha256)
        status = os.stat(used)
        more: Dict[str, Any] = dict(origin_of(found, sha256, self.others))
        owner = self.others.origin(opened.path) if self.wanted.kind == IMAGE_REFERENCE else None
        if owner:
            more['origin'] = owner
        if opened.verified:
            more['verified'] = opened.verified
        return ImageRecord(file=self.wanted.name, kind=self.wanted.kind, mtime_ns=status.st_mtime_ns,
                           resolved=opened.path, size=status.st_size, sha256=sha256, signers=signers(used), **more)

    def stale_modules(self, sha256: str) -> List[str]:
        """Return the modules that use the image of the earlier installation, if the new one has another SHA256."""
        earlier = self.others.own
        return [one.module for one in self.others.images()
                if one.root != earlier.root and one.needs(earlier.own_path) and one.image.sha256 != sha256]

    def copy(self, opened: 'OpenImage', target: str) -> str:
        """Copy the image; return its SHA256."""
        size = format_size(os.fstat(opened.file.fileno()).st_size)
        trace_msg(COPYING % (opened.path, target, size))
        return copy_hashed(opened.file, target, self.wanted.striping)

    def digest_in_place(self, path: str) -> str:
        """
        Return the SHA256 of an image that isn't copied; from the record, if size and time match the record.

        Raise EasyBuildError if the image has changed since the module with the record was installed.
        """
        trace_msg(NOT_COPIED % path)
        recorded = self.others.unchanged(path)
        if recorded:
            trace_msg("size and time of the image match the record of %s" % recorded.module)
            return recorded.image.sha256 or ''
        trace_msg("computing the SHA256 of %s (%s)" % (path, format_size(os.path.getsize(path))))
        sha256 = compute_checksum(path, CHECKSUM_TYPE_SHA256)
        wrong = [one for one in self.others.using(path) if one.image.sha256 != sha256]
        if wrong and not build_option('ignore_checksums'):
            raise ContentError("The image %s was changed after %s had been installed with it: its SHA256 is %s now, "
                               "and was %s. Reinstall that module (eb --rebuild), or use an unchanged image."
                               % (path, wrong[0].module, sha256, wrong[0].image.sha256))
        return sha256

    def check(self, used: str, found: str, sha256: str) -> None:
        """Raise EasyBuildError if the image in use doesn't match the easyconfig or its note (G-06)."""
        if not self.has_checksum(used, sha256):
            raise ContentError("The image %s changed during the installation: its checksum no longer matches the "
                               "easyconfig (its SHA256 is %s). Try again when nobody is writing to it." % (
                                   found, sha256))
        if self.wanted.source:
            check_content(found, sha256)


class OpenImage:
    """
    An image that stays open from its verification to the end of the copy, so that both read the same file (P-05).

    Attributes: `path` has no links; `verified` names who signed the image, if that was verified.
    """

    def __init__(self, path: str):
        """Open the image; links are resolved once, because a central link may change during the installation."""
        self.path = os.path.realpath(path)
        self.file: BinaryIO = open(self.path, 'rb', buffering=0)  # noqa: SIM115 for all steps
        self.before = file_identity(os.fstat(self.file.fileno()))
        self.verified: List[str] = []

    def verify(self, keys: Sequence[str], folder: str) -> None:
        """Verify that all who signed the image are among the keys (files), in a keyring of our own (R-04)."""
        same_file = '/proc/%d/fd/%d' % (os.getpid(), self.file.fileno())
        self.verified, problem = verify(same_file, keys, folder)
        if problem:
            raise ContentError("The image %s %s. Only owners of the keys in 'signature_keys' of the easyconfig may "
                               "sign it." % (self.path, problem))
        trace_msg("the image is signed by %s" % ', '.join(self.verified))

    def check_unchanged(self) -> None:
        """Raise EasyBuildError if somebody has written to a verified image."""
        if self.verified and file_identity(os.fstat(self.file.fileno())) != self.before:
            raise ContentError("The image %s changed during the installation, after its signature had been verified. "
                               "Try again when nobody is writing to it." % self.path)


def origin_of(found: str, sha256: str, others: InstalledImages) -> Dict[str, str]:
    """Return the origin of an image for the record: source and digest from a note or record, else the path."""
    note = read_note(found)
    if note and note[SHA256] == sha256:
        return {SOURCE: note[SOURCE], SOURCE_DIGEST: ImageSource.parse(note[SOURCE]).digest or ''}
    known = others.at(os.path.dirname(os.path.realpath(found))).image
    if known.sha256 == sha256 and known.source_digest:
        return {SOURCE: known.source or '', SOURCE_DIGEST: known.source_digest}
    return {SOURCE: found}


def check_installed_image(installed: InstalledImage) -> None:
    """
    Raise EasyBuildError if the image of an installed module is not the recorded image (I-03).

    The image is only read if its size matches the record, but its time doesn't.
    """
    path, size = installed.path(), installed.image.size
    # without its own copy, the module uses a central image, which nobody has recorded
    is_in_use = installed.is_shared or path == installed.own_path
    if path is None or size is None or not is_in_use or installed.is_unchanged():
        return
    if installed.has_size():
        trace_msg("computing the SHA256 of %s, because its time has changed" % path)
        if compute_checksum(path, CHECKSUM_TYPE_SHA256) == installed.image.sha256:
            return
    what = "its SHA256 is different" if installed.has_size() else \
        "it has %d bytes, and had %d" % (os.path.getsize(path), size)
    raise ContentError("The image %s was changed after %s had been installed: %s. Put the earlier image back, or "
                       "install the module again with `eb --rebuild`." % (path, installed.module, what))


# --- the note beside an image that was fetched: where it is from

def note_path(image: str) -> str:
    """Return the path of the note on an image."""
    return image + '.source.json'


def read_note(image: str) -> Dict[str, str]:
    """Return the note on an image: its source, with the digest, and its SHA256; empty without one."""
    try:
        with open(note_path(image)) as text:
            note = json.load(text)
        ImageSource.parse(note[SOURCE])
        return {SOURCE: note[SOURCE], SHA256: str(note[SHA256])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def noted_source(image: str) -> Optional[ImageSource]:
    """Return where an image was fetched from, according to its note; None without a note."""
    note = read_note(image)
    return ImageSource.parse(note[SOURCE]) if note else None


def check_note(image: str, source: ImageSource) -> None:
    """Raise EasyBuildError if an image that is there was fetched from another digest than the easyconfig names."""
    noted = noted_source(image)
    if noted and source.digest not in (None, noted.digest):
        raise ContentError("%s was made from %s, and the easyconfig names %s. Give the image in 'sources' another "
                           "name, or remove this file (and %s)." % (image, noted, source, note_path(image)))


def check_content(image: str, sha256: str) -> None:
    """Raise EasyBuildError if an image with this SHA256 was altered or truncated since it was fetched."""
    note = read_note(image)
    if note and note[SHA256] != sha256:
        raise ContentError("The image %s is not what was fetched from %s: its SHA256 is %s, and was %s. Remove it (and "
                           "%s): then `eb` fetches it again." % (
                               image, note[SOURCE], sha256, note[SHA256], note_path(image)))
