##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Images that several installations share: which image an installation uses, and who else uses it.

Doesn't import EasyBuild, so that commands can use it too.
"""
import glob
import json
import os

from . import lockfile

# Where the image of a module is (easyconfig parameter 'image').
IMAGE_OWN = 'own'
IMAGE_CENTRAL = 'central'
IMAGE_REFERENCE = 'reference'
IMAGE_KINDS = (IMAGE_OWN, IMAGE_CENTRAL, IMAGE_REFERENCE)


def image_places(kind, own, resolved, central):
    """
    Yield where a module looks for its image, in its order.

    Parameters
    ----------
    kind : str
        Kind of the image, as recorded.
    own, resolved : str
        The copy in the installation; the image that was installed from, without links.
    central : iterable
        Places of the image in the site's directories.
    """
    if kind != IMAGE_CENTRAL:
        yield resolved if kind == IMAGE_REFERENCE else own
    for path in central:
        yield path


class InstalledImage:
    """
    The image that an installation uses, from its record.

    Attributes
    ----------
    root : str
        The installation directory.
    record : dict
        The whole record, empty if there is none.
    """

    def __init__(self, root):
        """Read the record of an installation; there may be none."""
        self.root = root
        self.record = {}
        try:
            with open(os.path.join(root, lockfile.RECORD)) as text:
                record = json.load(text)
        except (OSError, ValueError):
            return
        if isinstance(record, dict) and isinstance(record.get(lockfile.IMAGE), dict):
            self.record = record

    @property
    def image(self):
        """The part of the record on the image (dict)."""
        return self.record.get(lockfile.IMAGE, {})

    @property
    def file(self):
        """File name of the image (str)."""
        return self.image.get('file', '')

    @property
    def own_path(self):
        """Path of the copy in the installation, which may have been removed (str)."""
        return os.path.join(self.root, self.file)

    @property
    def path(self):
        """Path of the image in use: the installation's own, else the one it was installed from (str), None if gone."""
        for path in (self.own_path, self.image.get('resolved', '')):
            if self.file and os.path.isfile(path):
                return path
        return None

    @property
    def full_version(self):
        """Version and suffix of the module (str)."""
        module = self.record.get(lockfile.MODULE, {})
        return '%s%s' % (module.get('version', ''), module.get('versionsuffix', ''))

    @property
    def module(self):
        """Name of the module (str)."""
        name = self.record.get(lockfile.MODULE, {}).get('name')
        return '%s/%s' % (name, self.full_version) if name else '/'.join(self.root.split(os.sep)[-2:])

    @property
    def is_shared(self):
        """Whether the image is that of another module, or of the site."""
        return self.image.get('kind', IMAGE_OWN) != IMAGE_OWN

    @property
    def origin(self):
        """Name of the module whose image this is: that of another one if the image is shared (str)."""
        return self.image.get('origin') or self.module

    @property
    def has_size(self):
        """Whether the image has the size in the record: it is there, and not truncated."""
        return bool(self.path) and os.path.getsize(self.path) == self.image.get('size')

    @property
    def is_unchanged(self):
        """
        Whether size and time of the image are those in the record, so that the SHA256 in the record is its SHA256.

        Reading tens of gigabytes would take most of the time of an installation without a copy.
        """
        return self.has_size and os.stat(self.path).st_mtime_ns == self.image.get('mtime_ns')

    def uses(self, path):
        """Return whether the installation uses an image."""
        return bool(self.path) and os.path.exists(path) and os.path.samefile(self.path, path)

    def needs(self, path):
        """Return whether the module can't be used without this file: it has no copy of its own."""
        return not os.path.isfile(self.own_path) and bool(self.file) and \
            os.path.realpath(self.image.get('resolved', '')) == os.path.realpath(path)


class InstalledImages:
    """
    Images of other installations that one installation may share, by their records.

    Those in the given directories come first, then those of the same software; of either, first the modules that this
    one extends, those with a copy before those without. The last one is the installation's own, from before.

    Parameters
    ----------
    root : str
        Directory of the installation, complete or to be replaced.
    directories : list of str
        More installation directories, EasyBuild's source path for example; those without a record don't count.
    """

    def __init__(self, root, directories):
        """Take the directories; records are read when they are needed."""
        self.own = InstalledImage(root)
        self.directories = directories
        self.known = None

    @property
    def images(self):
        """The images (list of InstalledImage)."""
        if self.known is None:
            root = self.own.root
            records = glob.glob(os.path.join(glob.escape(os.path.dirname(root)), '*', lockfile.RECORD))
            beside = [InstalledImage(path[:-len(lockfile.RECORD) - 1]) for path in records]
            # not what is left of earlier installations
            beside = [one for one in beside if os.path.basename(one.root) == one.full_version and one.root != root]
            beside.sort(key=lambda one: one.root)
            named = [InstalledImage(path) for path in self.directories]
            name = '/'.join(root.split(os.sep)[-2:])
            # of two with the same image, the one that is extended: the other one may be removed
            ordered = [one for some in (named, beside) for one in sorted(some, key=lambda one: (
                not name.startswith(one.module + '-'), one.is_shared))]
            self.known = [one for one in ordered + [self.own] if one.record]
        return self.known

    def find(self, name, is_wanted):
        """Return the path of a complete image of this name whose installation `is_wanted` accepts (str), or None."""
        return next((one.path for one in self.images
                     if one.file == name and one.has_size and is_wanted(one)), None)

    def using(self, path):
        """Return the installations that use an image (list of InstalledImage)."""
        return [one for one in self.images if one.uses(path)]

    def unchanged(self, path):
        """Return an installation that uses an image and has recorded its digest (InstalledImage), None otherwise."""
        return next((one for one in self.using(path) if one.is_unchanged), None)

    def origin(self, path):
        """Return the name of the other module whose image this is (str), None if there is none."""
        origin = next((one.origin for one in self.using(path)), None)
        return None if origin == self.own.module else origin
