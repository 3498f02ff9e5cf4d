##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Images of installations, by their records: where a module looks for its image, which image it uses, and who shares it.

Doesn't import EasyBuild, so that commands can use it too.
"""
import glob
import os
from typing import Any, Callable, Iterable, Iterator, List, Optional

from ..record.lockfile import IMAGE_CENTRAL, IMAGE_OWN, IMAGE_REFERENCE, RECORD, Record, RecordError


def image_places(kind: str, own: str, resolved: Any, central: Iterable[str]) -> Iterator[str]:
    """
    Yield where a module looks for its image, in its order.

    `own` is the copy in the installation; `resolved` is the image that was installed from, without links; `central` are
    the places of the image in the site's directories.
    """
    if kind != IMAGE_CENTRAL:
        yield resolved if kind == IMAGE_REFERENCE else own
    for path in central:
        yield path


def recorded(root: str) -> Record:
    """Return the record of an installation; an empty one if there is none, or if it can't be read."""
    try:
        return Record.read(os.path.join(root, RECORD))
    except (OSError, RecordError):
        return Record()


class InstalledImage:
    """
    The image that an installation uses, from its record.

    Attributes: `root` is the installation directory; `record` is the whole record, empty if there is none; `image` is
    the part of it on the image.
    """

    def __init__(self, root: str, record: Optional[Record] = None):
        """Read the record of an installation, unless it is given; there may be none."""
        self.root = root
        self.record = recorded(root) if record is None else record
        self.image = self.record.image

    @property
    def own_path(self) -> str:
        """Path of the copy in the installation, which may have been removed."""
        return os.path.join(self.root, self.image.file)

    def path(self) -> Optional[str]:
        """Return the path of the image in use: the module's copy, else the file that was installed; None if gone."""
        for path in (self.own_path, self.image.resolved or ''):
            if self.image.file and os.path.isfile(path):
                return path
        return None

    @property
    def module(self) -> str:
        """Name of the module."""
        return self.record.module_name or '/'.join(self.root.split(os.sep)[-2:])

    @property
    def is_shared(self) -> bool:
        """Whether the image is another module's, or the site's."""
        return self.image.kind != IMAGE_OWN

    @property
    def origin(self) -> str:
        """Name of the module to which the image belongs: another one if the image is shared."""
        return self.image.origin or self.module

    def has_size(self) -> bool:
        """Return whether the image is there with the size in the record, and so not truncated."""
        path = self.path()
        return path is not None and os.path.getsize(path) == self.image.size

    def is_unchanged(self) -> bool:
        """
        Return whether size and time of the image match the record, so that it still has the recorded SHA256.

        Reading tens of gigabytes would take most of the time of an installation without a copy.
        """
        path = self.path()
        return path is not None and self.has_size() and os.stat(path).st_mtime_ns == self.image.mtime_ns

    def uses(self, path: str) -> bool:
        """Return whether the installation uses an image."""
        own = self.path()
        return own is not None and os.path.exists(path) and os.path.samefile(own, path)

    def needs(self, path: str) -> bool:
        """Return whether the module can't be used without this file, because it has no copy of its own."""
        return not os.path.isfile(self.own_path) and bool(self.image.file) and \
            os.path.realpath(self.image.resolved or '') == os.path.realpath(path)


class InstalledImages:
    """
    Images of other installations that one installation may share, by their records.

    Images in the given directories come first, then images of the same software. In both, the modules that this one
    extends come first, and modules with a copy before modules without. The image of the earlier installation is last.
    """

    def __init__(self, root: str, directories: Iterable[str]):
        """Store the directory of the installation, and more that may be one: EasyBuild's source path."""
        self.own = InstalledImage(root)
        self.directories = directories
        self.known: Optional[List[InstalledImage]] = None

    def images(self) -> List[InstalledImage]:
        """Return the images; their records are read once."""
        if self.known is None:
            root = self.own.root
            records = glob.glob(os.path.join(glob.escape(os.path.dirname(root)), '*', RECORD))
            roots = [path[:-len(RECORD) - 1] for path in sorted(records)]
            beside = [InstalledImage(path) for path in roots if path != root]
            # not what is left of earlier installations
            beside = [one for one in beside if os.path.basename(one.root) == one.record.full_version]
            named = [InstalledImage(path) for path in self.directories]
            name = '/'.join(root.split(os.sep)[-2:])
            # of two modules with the same image, the extended module counts: the other one may be removed
            ordered = [one for some in (named, beside) for one in sorted(some, key=lambda one: (
                not name.startswith(one.module + '-'), one.is_shared))]
            self.known = [one for one in ordered + [self.own] if one.record]
        return self.known

    def at(self, root: str) -> InstalledImage:
        """Return the image of the installation in a directory, which may be none of these."""
        return next((one for one in self.images() if one.root == root), None) or InstalledImage(root)

    def find(self, name: str, is_wanted: Callable[[InstalledImage], bool]) -> Optional[str]:
        """Return the path of a complete image of this name whose installation `is_wanted` accepts, or None."""
        return next((one.path() for one in self.images()
                     if one.image.file == name and one.has_size() and is_wanted(one)), None)

    def using(self, path: str) -> List[InstalledImage]:
        """Return the installations that use an image."""
        return [one for one in self.images() if one.uses(path)]

    def unchanged(self, path: str) -> Optional[InstalledImage]:
        """Return an installation that uses an image and has recorded its digest; None otherwise."""
        return next((one for one in self.using(path) if one.is_unchanged()), None)

    def origin(self, path: str) -> Optional[str]:
        """Return the name of the other module to which an image belongs; None if there is none."""
        origin = next((one.origin for one in self.using(path)), None)
        return None if origin == self.own.module else origin
