##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The record of an installation, share/ebsif/lock.json: its path and keys, which packages it lists, which image the
installation uses, and who else uses that image.

Doesn't import EasyBuild, so that commands can use it too: importing EasyBuild takes longer than running them.
"""
import glob
import json
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

# Relative to the installation directory; only complete installations have one.
RECORD = os.path.join('share', 'ebsif', 'lock.json')

# What a copy of it has instead of the suffix of the easyconfig that repeats the installation, in the same directory.
COPY_SUFFIX = '.lock.json'

MODULE = 'module'  # name, version, versionsuffix
EASYCONFIG = 'easyconfig'  # path of the file that was installed
VERSIONS = 'versions'  # of the software that was used: EasyBuild, the runtime ...
# file, source (where it was fetched from, else where it was found), source_digest (of what was fetched), resolved,
# sha256; size and mtime_ns of the file that the module uses; kind (own, central, reference); origin: the module
# whose image it is, if that is another one; labels; signers: fingerprints of the keys that signed it, which nobody has
# verified; signature: state and details of the verification, if the easyconfig asks for that
IMAGE = 'image'
IMAGE_PACKAGES = 'image_packages'  # name==version of each Python package
SYSTEM = 'system'  # distribution and release
SYSTEM_PACKAGES = 'system_packages'  # like IMAGE_PACKAGES, by kind: deb, rpm, apk
CONDA_PACKAGES = 'conda_packages'  # like IMAGE_PACKAGES, by prefix of the environment
IMAGE_LIST = 'image_list'  # like IMAGE_PACKAGES, by kind: what the image itself lists in /.sbom.json
MASKS = 'masks'
LIBRARY_BINDS = 'library_binds'
OPTIONAL_BINDS = 'optional_binds'  # existing sources only
ENTRY_POINT_ENVIRONMENT = 'entry_point_environment'  # value by name of variable
WRAPPERS = 'wrappers'
SCRIPTS = 'scripts'  # fingerprints
USER_FILES = 'user_software'  # fingerprints of the files of user software
USER_SOFTWARE_FILE = 'user_software_file'  # size and mtime_ns of the SquashFS file

# With user software:
STAGES = 'stages'
VENV_PACKAGES = 'venv_packages'  # like IMAGE_PACKAGES
ARTIFACTS = 'artifacts'  # name and SHA256 of the files that pip installed, by normalized package name
LOCAL_FILES = 'local_files'  # SHA256 of local files that stages refer to, by path
VENV_ENVIRONMENT = 'venv_environment'
VENV_NAME = 'venv_name'

# Where the image of a module is (easyconfig parameter 'image').
IMAGE_OWN = 'own'
IMAGE_CENTRAL = 'central'
IMAGE_REFERENCE = 'reference'
IMAGE_KINDS = (IMAGE_OWN, IMAGE_CENTRAL, IMAGE_REFERENCE)

# Where an installed package is; others are in a Conda environment of the image, and have its prefix as their place.
IN_IMAGE, IN_USER_SOFTWARE = 'image', 'user-software'


# --- packages

class Package(NamedTuple):
    """An installed package; `kind` is its type in package URLs: 'pypi', 'conda', 'deb', 'rpm' or 'apk'."""

    kind: str
    place: str
    name: str
    version: str


def is_complete(record: Dict[str, Any]) -> bool:
    """Return whether a record lists all packages; records of earlier versions of ebsif list Python packages only."""
    return SYSTEM_PACKAGES in record


def packages_of(record: Dict[str, Any]) -> Iterator[Package]:
    """Yield the packages in the record of an installation, each once."""
    seen: Set[Package] = set()
    for kind, place, lines in groups(record):
        for line in lines:
            package = Package(kind, place, *line.split('==', 1))
            if package not in seen:
                seen.add(package)
                yield package


def groups(record: Dict[str, Any]) -> Iterator[Tuple[str, str, List[str]]]:
    """Yield kind, place and lines of each list of packages in a record; the list in /.sbom.json comes last."""
    yield 'pypi', IN_IMAGE, record.get(IMAGE_PACKAGES, [])
    yield 'pypi', IN_USER_SOFTWARE, record.get(VENV_PACKAGES, [])
    for kind, lines in sorted(record.get(SYSTEM_PACKAGES, {}).items()):
        yield kind, IN_IMAGE, lines
    for prefix, lines in sorted(record.get(CONDA_PACKAGES, {}).items()):
        yield 'conda', prefix, lines
    for kind, lines in sorted(record.get(IMAGE_LIST, {}).items()):
        yield kind, IN_IMAGE, lines


# --- images

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


class InstalledImage:
    """
    The image that an installation uses, from its record.

    Attributes: `root` is the installation directory; `record` is the whole record, empty if there is none.
    """

    def __init__(self, root: str):
        """Read the record of an installation; there may be none."""
        self.root = root
        self.record: Dict[str, Any] = {}
        try:
            with open(os.path.join(root, RECORD)) as text:
                record = json.load(text)
        except (OSError, ValueError):
            return
        if isinstance(record, dict) and isinstance(record.get(IMAGE), dict):
            self.record = record

    @property
    def image(self) -> Dict[str, Any]:
        """The part of the record on the image."""
        return self.record.get(IMAGE, {})

    @property
    def file(self) -> str:
        """File name of the image."""
        return self.image.get('file', '')

    @property
    def own_path(self) -> str:
        """Path of the copy in the installation, which may have been removed."""
        return os.path.join(self.root, self.file)

    @property
    def path(self) -> Optional[str]:
        """Path of the image in use: the installation's copy, else the file that was installed; None if gone."""
        for path in (self.own_path, self.image.get('resolved', '')):
            if self.file and os.path.isfile(path):
                return path
        return None

    @property
    def full_version(self) -> str:
        """Version and suffix of the module."""
        module = self.record.get(MODULE, {})
        return '%s%s' % (module.get('version', ''), module.get('versionsuffix', ''))

    @property
    def module(self) -> str:
        """Name of the module."""
        name = self.record.get(MODULE, {}).get('name')
        return '%s/%s' % (name, self.full_version) if name else '/'.join(self.root.split(os.sep)[-2:])

    @property
    def is_shared(self) -> bool:
        """Whether the image is another module's, or the site's."""
        return self.image.get('kind', IMAGE_OWN) != IMAGE_OWN

    @property
    def origin(self) -> str:
        """Name of the module to which the image belongs: another one if the image is shared."""
        return self.image.get('origin') or self.module

    @property
    def has_size(self) -> bool:
        """Whether the image is there with the size in the record, and so not truncated."""
        path = self.path
        return path is not None and os.path.getsize(path) == self.image.get('size')

    @property
    def is_unchanged(self) -> bool:
        """
        Whether size and time of the image match the record, so that it still has the recorded SHA256.

        Reading tens of gigabytes would take most of the time of an installation without a copy.
        """
        path = self.path
        return path is not None and self.has_size and os.stat(path).st_mtime_ns == self.image.get('mtime_ns')

    def uses(self, path: str) -> bool:
        """Return whether the installation uses an image."""
        own = self.path
        return own is not None and os.path.exists(path) and os.path.samefile(own, path)

    def needs(self, path: str) -> bool:
        """Return whether the module can't be used without this file, because it has no copy of its own."""
        return not os.path.isfile(self.own_path) and bool(self.file) and \
            os.path.realpath(self.image.get('resolved', '')) == os.path.realpath(path)


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

    @property
    def images(self) -> List[InstalledImage]:
        """The images; their records are read once."""
        if self.known is None:
            root = self.own.root
            records = glob.glob(os.path.join(glob.escape(os.path.dirname(root)), '*', RECORD))
            beside = [InstalledImage(path[:-len(RECORD) - 1]) for path in sorted(records)]
            # not what is left of earlier installations
            beside = [one for one in beside if os.path.basename(one.root) == one.full_version and one.root != root]
            named = [InstalledImage(path) for path in self.directories]
            name = '/'.join(root.split(os.sep)[-2:])
            # of two modules with the same image, the extended module counts: the other one may be removed
            ordered = [one for some in (named, beside) for one in sorted(some, key=lambda one: (
                not name.startswith(one.module + '-'), one.is_shared))]
            self.known = [one for one in ordered + [self.own] if one.record]
        return self.known

    def find(self, name: str, is_wanted: Callable[[InstalledImage], bool]) -> Optional[str]:
        """Return the path of a complete image of this name whose installation `is_wanted` accepts, or None."""
        return next((one.path for one in self.images
                     if one.file == name and one.has_size and is_wanted(one)), None)

    def using(self, path: str) -> List[InstalledImage]:
        """Return the installations that use an image."""
        return [one for one in self.images if one.uses(path)]

    def unchanged(self, path: str) -> Optional[InstalledImage]:
        """Return an installation that uses an image and has recorded its digest; None otherwise."""
        return next((one for one in self.using(path) if one.is_unchanged), None)

    def origin(self, path: str) -> Optional[str]:
        """Return the name of the other module to which an image belongs; None if there is none."""
        origin = next((one.origin for one in self.using(path)), None)
        return None if origin == self.own.module else origin
