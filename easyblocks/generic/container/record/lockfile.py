##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The record of an installation, share/ebsif/lock.json: its path, its values with their types, which packages it lists.

Doesn't import EasyBuild, so that commands can use it too: importing EasyBuild takes longer than running them.
"""
import json
import os
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, Type, TypeVar, Union, get_type_hints

from ..values import normal_name, system_names
from ..written import UnfitError, read_regular

# Relative to the installation directory; only complete installations have one.
RECORD = os.path.join('share', 'ebsif', 'lock.json')
# what comes first in the file
FIRST = ('module', 'image', 'versions')

# What a copy of it has instead of the suffix of the easyconfig that repeats the installation, in the same directory.
COPY_SUFFIX = '.lock.json'

# Where the image of a module is (easyconfig parameter 'image').
IMAGE_OWN = 'own'
IMAGE_CENTRAL = 'central'
IMAGE_REFERENCE = 'reference'
IMAGE_KINDS = (IMAGE_OWN, IMAGE_CENTRAL, IMAGE_REFERENCE)

# The layer with packages of the image's system, in an installation.
LAYER = 'system-packages.squashfs'

# Where an installed package is; others are in a Conda environment of the image, and have its prefix as their place.
IN_IMAGE, IN_USER_SOFTWARE, IN_LAYER = 'image', 'user-software', 'system-packages'


# --- the record

# Larger files aren't read: records have a few MB.
MOST = 64 * 10 ** 6


class RecordError(ValueError):
    """A text is not the record of an installation; the message says why."""


F = TypeVar('F', bound='Fields')


class Fields:
    """
    A JSON object whose values are attributes with declared types; those that are missing have the default, if any.

    Values that aren't declared, of other versions of ebsif, are kept as `undeclared`. Defaults must not be changed in
    place.
    """

    def __init__(self, **values: object) -> None:
        """Set values; the others have their defaults."""
        vars(self).update(values)

    def __bool__(self) -> bool:
        """Return whether there are any values."""
        return bool(vars(self))

    def has(self, name: str) -> bool:
        """Return whether a value is there, and not only its default."""
        return name in vars(self)

    def replace(self: F, **values: object) -> F:
        """Return the same object with other values."""
        return type(self)(**dict(vars(self), **values))

    @property
    def content(self) -> Dict[str, object]:
        """All values, for JSON."""
        declared = dict(vars(self))
        return dict(declared.pop('undeclared', {}), **declared)

    @classmethod
    def from_content(cls: Type[F], content: Dict[str, object], name: str = '') -> F:
        """Return an object from JSON, of which `name` is the place; raise RecordError if a value has a wrong type."""
        place = name + ': ' if name else ''
        hints = get_type_hints(cls)
        missing = [key for key in hints if key not in content and not hasattr(cls, key)]
        if missing:
            raise RecordError("damaged: '%s%s' is missing" % (place, missing[0]))
        values = {key: as_declared(value, hints[key], place + key) for key, value in content.items() if key in hints}
        # not as attributes: some may have the name of one of our methods
        undeclared = {key: value for key, value in content.items() if key not in hints}
        return cls(undeclared=undeclared, **values) if undeclared else cls(**values)


class ImageRecord(Fields):
    """What a record says about the image."""

    file: str
    kind: str = IMAGE_OWN  # or central, reference
    source: Optional[str] = None  # where it was fetched from, else where it was found
    source_digest: Optional[str] = None  # of what was fetched
    resolved: Optional[str] = None  # the file that was found, without links
    sha256: Optional[str] = None
    size: Optional[int] = None  # of the file that the module uses
    mtime_ns: Optional[int] = None
    origin: Optional[str] = None  # the module whose image it is, if that is another one
    labels: Dict[str, str] = {}
    signers: List[str] = []  # fingerprints of the keys that signed it, which nobody has verified
    verified: List[str] = []  # those that were verified, if the easyconfig asks for that


class LayerRecord(Fields):
    """What a record says about packages of the image's system that were added as a layer (system/packages.py)."""

    requested: List[str] = []  # names, perhaps NAME=VERSION
    allow_upgrade: List[str] = []
    packages: List[str] = []  # all that were added
    upgraded: Dict[str, List[str]] = {}  # packages of the image: versions before and after
    debs: Dict[str, str] = {}  # SHA256 of the files that were installed, by name of the package
    replaced: List[str] = []  # files of the image, for example by other alternatives
    hidden: List[str] = []  # files of the image that are gone
    image: Optional[str] = None  # SHA256 of the image that it was made for
    size: Optional[int] = None  # of the SquashFS file; None if the image has all of the packages
    sha256: Optional[str] = None

    @property
    def summary(self) -> str:
        """The packages that were asked for, with their versions, and how many more there are."""
        versions = dict(versions_in(self.packages), **{name: new for name, (_, new) in self.upgraded.items()})
        names = system_names(self.requested)
        text = ', '.join('%s %s' % (name, versions[name]) if name in versions else '%s (in the image)' % name
                         for name in names)
        others = len(set(versions) - set(names))
        return text + (' (and %d that they need)' % others if others else '')


class HostProgramsRecord(Fields):
    """What a record says about programs of the host in the container (host/programs.py)."""

    programs: Dict[str, str] = {}  # their paths by name
    binds: List[str] = []  # of all that they need
    builds: Dict[str, str] = {}  # of programs and libraries: the build ID, else the size, by path
    left_out: List[str] = []  # plugins that lack something on the host, too


class HostLibrariesRecord(Fields):
    """What a record says about libraries of the host in the container (host/libraries.py)."""

    libraries: Dict[str, str] = {}  # their paths by name
    why: Dict[str, str] = {}  # each is bound, by name
    served: Dict[str, str] = {}  # paths of libraries of the image that are used, by name
    binds: List[str] = []
    builds: Dict[str, str] = {}  # the build ID, else the size, by path
    left_out: List[str] = []  # plugins that lack something on the host, too


R = TypeVar('R', bound='Record')


class Record(Fields):
    """The record of an installation. Packages are lines like ``name==version``."""

    module: Dict[str, str] = {}  # name, version, versionsuffix
    easyconfig: Optional[str] = None  # path of the file that was installed
    made_from: Optional[str] = None  # the module that `ebsif extend` has changed to make this one
    versions: Dict[str, str] = {}  # of the software that was used: ebsif, EasyBuild, the runtime ...
    image: ImageRecord = ImageRecord(file='')
    image_packages: List[str] = []  # Python packages of the image
    system: Dict[str, Optional[str]] = {}  # distribution and release
    system_packages: Dict[str, List[str]] = {}  # by kind: deb, rpm, apk
    conda_packages: Dict[str, List[str]] = {}  # by prefix of the environment
    image_constraints: Dict[str, str] = {}  # constraints for pip and uv that aren't used, by the image's variable
    image_list: Dict[str, List[str]] = {}  # by kind: what the image itself lists in /.sbom.json
    system_layer: LayerRecord = LayerRecord()
    masks: Dict[str, Any] = {}
    host_libraries: HostLibrariesRecord = HostLibrariesRecord()
    host_programs: HostProgramsRecord = HostProgramsRecord()
    optional_binds: List[str] = []  # existing sources only
    entry_point_environment: Dict[str, str] = {}
    wrappers: List[str] = []
    scripts: Dict[str, str] = {}  # fingerprints
    user_software: Dict[str, str] = {}  # fingerprints of its files
    user_software_file: Dict[str, int] = {}  # size and mtime_ns of the SquashFS file
    # with user software:
    stages: List[Dict[str, Any]] = []
    venv_packages: List[str] = []
    replaced: List[Dict[str, Any]] = []  # packages of the image that others hide, see InstalledPackages.replaced_in
    artifacts: Dict[str, Dict[str, str]] = {}  # name and SHA256 of the files that pip installed, by normalized name
    local_files: Dict[str, str] = {}  # SHA256 of local files that stages refer to, by path
    venv_environment: Dict[str, str] = {}
    venv_name: Optional[str] = None

    @classmethod
    def parse(cls: Type[R], text: Union[str, bytes]) -> R:
        """Return the record in a text; raise RecordError if it is none, or a value has a wrong type."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as err:
            place = ' in line %d' % err.lineno if isinstance(err, json.JSONDecodeError) else ''
            raise RecordError("not a lock, which `ebsif lock` writes (not JSON%s)" % place)
        if not isinstance(content, dict) or not isinstance(content.get('image'), dict):
            raise RecordError("not the lock file of an installation (it has no 'image')")
        record = cls.from_content(content)
        for stage in record.stages:
            as_declared(stage.get('name'), str, 'stages')
            requirements = stage.get('requirements', '')
            as_declared(requirements, List[str] if isinstance(requirements, list) else str, 'stages')
        if not all({'file', 'sha256'} <= set(artifact) for artifact in record.artifacts.values()):
            raise RecordError("damaged: 'artifacts' has a file without name or SHA256")
        wrong = [line for _, _, lines in record.package_lists for line in lines if '==' not in line]
        if wrong:
            raise RecordError("damaged: '%s' is not a package and its version" % wrong[0])
        return record

    @classmethod
    def read(cls: Type[R], path: str) -> R:
        """Return the record in a file; raise OSError if it can't be read, RecordError if it is none."""
        try:
            return cls.parse(read_regular(path, MOST, links=True))
        except UnfitError as err:
            raise RecordError("can't be read as a lock: %s" % err)

    @property
    def text(self) -> str:
        """The text of the file, which begins with what people look for; the same content always gives the same text."""
        content = json.loads(json.dumps(self.content, sort_keys=True, default=lambda one: one.content))
        ordered = {key: content[key] for key in FIRST if key in content}
        ordered.update(content)
        return json.dumps(ordered, indent=2) + '\n'

    @property
    def binds_of_host(self) -> List[str]:
        """The binds that depend on what the host has; at load, each may be missing."""
        return self.host_libraries.binds + self.host_programs.binds

    @property
    def module_name(self) -> Optional[str]:
        """Name, version and suffix of the module; None if the record has no name."""
        name = self.module.get('name')
        return '%s/%s' % (name, self.full_version) if name else None

    @property
    def full_version(self) -> str:
        """Version and suffix of the module."""
        return self.module.get('version', '') + self.module.get('versionsuffix', '')

    @property
    def has_user_software(self) -> bool:
        """Whether the module has packages of its own, or can have some."""
        return self.has('stages')

    @property
    def is_complete(self) -> bool:
        """Whether it lists all packages; records of earlier versions of ebsif list Python packages only."""
        return self.has('system_packages')

    @property
    def image_versions(self) -> Dict[str, str]:
        """Versions of the Python packages of the image, by normalized name."""
        return normalized(self.image_packages)

    @property
    def venv_versions(self) -> Dict[str, str]:
        """Versions of the packages in user software, by normalized name."""
        return normalized(self.venv_packages)

    @property
    def replacements(self) -> List[str]:
        """What replaces packages of the image, and what that breaks, one text for each."""
        return [replacement(**one) for one in self.replaced]

    @property
    def package_lists(self) -> List[Tuple[str, str, List[str]]]:
        """Kind, place and lines of each list of packages; the list in /.sbom.json comes last."""
        lists = [('pypi', IN_IMAGE, self.image_packages), ('pypi', IN_USER_SOFTWARE, self.venv_packages)]
        added = {*self.system_layer.packages,
                 *('%s==%s' % (name, new) for name, (_, new) in self.system_layer.upgraded.items())}
        for kind, lines in sorted(self.system_packages.items()):
            lists += [(kind, place, [line for line in lines if (line in added) == (place == IN_LAYER)])
                      for place in (IN_IMAGE, IN_LAYER)]
        lists += [('conda', prefix, lines) for prefix, lines in sorted(self.conda_packages.items())]
        return lists + [(kind, IN_IMAGE, lines) for kind, lines in sorted(self.image_list.items())]

    @property
    def packages(self) -> List['Package']:
        """The packages, each once."""
        return list(dict.fromkeys(Package(kind, place, *line.split('==', 1))
                                  for kind, place, lines in self.package_lists for line in lines))


class Package(NamedTuple):
    """An installed package; `kind` is its type in package URLs: 'pypi', 'conda', 'deb', 'rpm' or 'apk'."""

    kind: str
    place: str
    name: str
    version: str


def replacement(name: str, version: str, image: str, breaks: List[str], wanted: List[str], affects: List[str]) -> str:
    """Return in words that a package replaces the image's, and what that breaks; see InstalledPackages.replaced_in."""
    parts = ["%s %s instead of the image's %s" % (name, version, image)]
    parts += ["because " + ', '.join(wanted)] if wanted else []
    parts += ["this breaks: " + ', '.join(breaks)] if breaks else []
    parts += ["these allow it: " + ', '.join(affects)] if affects else []
    return '; '.join(parts)


def versions_in(lines: Iterable[str]) -> Dict[str, str]:
    """Return the versions in lines like ``name==version``, by name."""
    return dict(line.split('==', 1) for line in lines)


def normalized(lines: Iterable[str]) -> Dict[str, str]:
    """Return the versions in lines like ``name==version``, by normalized name."""
    return {normal_name(name): version for name, version in versions_in(lines).items()}


def as_declared(value: object, kind: Any, name: str) -> Any:
    """Return a value of JSON as a declared type; raise RecordError, which names the value, if it has another one."""
    # in Python 3.6, the origin of List[str] is List
    origin, kinds = getattr(kind, '__origin__', None), getattr(kind, '__args__', [])
    if kind is Any or (origin is Union and value is None):
        return value
    if origin is Union:
        return as_declared(value, kinds[0], name)
    if (origin in (list, List) and isinstance(value, list)) or (origin in (dict, Dict) and isinstance(value, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            # records have thousands of texts
            if type(item) is not kinds[-1]:
                as_declared(item, kinds[-1], name)
        return value
    if origin is None and issubclass(kind, Fields) and isinstance(value, dict):
        return kind.from_content(value, name)
    if origin is None and isinstance(value, kind):
        return value
    raise RecordError("damaged: '%s' has a wrong type" % name)
