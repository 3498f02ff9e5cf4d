"""Find installations of container modules: by directory, by module file, the loaded one, all of a user."""

import datetime
import functools
import itertools
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.texts import shown_module

from ebsif import files
from ebsif.eb import framework
from ebsif.installed import lock

# Modules below a prefix of EasyBuild.
MODULES = "modules/all"
# where EasyBuild's generators of module files write the installation directory
ROOT = re.compile(r'^(?:local root = "(?P<lua>.*)"|set root\s+(?P<tcl>.*\S))\s*$', re.MULTILINE)
# start of the easyconfigs of extensions, and end of their version suffixes
WRITTEN = "# Written by `ebsif "
NAMED = re.compile(r"-(?P<name>[A-Za-z0-9_.]+)-(?P<date>[A-Za-z0-9_.]+)\Z")
# module names have two parts, and more in some naming schemes
DEPTH = 4
LARGEST = 4 * 1024 * 1024  # bytes of a module file
# settings of directories; backups and unfinished files of the easyblocks, backups of EasyBuild (--backup-modules)
NO_MODULE = re.compile(r"\A\.(?:modulerc|version)|\.(?:unfinished|replaced|removed|bak_\d+_\d+)\Z")

# Suffixes of paths next to an installation: leftovers of reinstallations, and user software set aside, with the time.
BESIDE = re.compile(r"\.(?:replace|replaced|\d{8}-\d{6}(?:\..+)?)\Z")


@dataclass(frozen=True)
class Installation:
    """
    An installation of a container module.

    Attributes
    ----------
    root
        The installation directory.
    module
        Name of the module.
    file
        The module file; None if it doesn't exist or was not searched.
    use
        The directory for `module use`.
    """

    root: Path
    module: str
    file: Optional[Path] = None
    use: Optional[Path] = None

    @cached_property
    def record(self) -> lockfile.Record:
        """The record, as written at installation."""
        return lock.read(self.root)

    @property
    def damage(self) -> Optional[str]:
        """Why the record can't be used; None if it can."""
        try:
            self.record  # noqa: B018 reading it is the test
        except lock.LockError as error:
            return str(error)
        return None

    @property
    def repair(self) -> str:
        """What to do about a damaged record, or one that this account may not read."""
        try:
            self.record  # noqa: B018 reading it is the test
        except lock.ClosedLockError:
            return files.how_to_get_access(self.root / lockfile.RECORD)
        except lock.LockError:
            pass
        return f"install the module again with `{self.rebuild}`"

    @property
    def recorded_name(self) -> Optional[str]:
        """Name, version and suffix in the record, whatever the naming scheme calls the module; None if unknown."""
        return None if self.damage else self.record.module_name

    @property
    def easyconfig(self) -> Optional[Path]:
        """EasyBuild's copy of the easyconfig in the installation; None if this account can't read it."""
        return next((path for path in sorted(self.kept.glob("*.eb")) if os.access(path, os.R_OK)), None)

    @property
    def kept(self) -> Path:
        """The directory in which EasyBuild keeps easyconfig and log."""
        return self.root / "easybuild"

    @property
    def lack(self) -> str:
        """Why there is no easyconfig, and what to do."""
        closed = next((path for path in (self.kept, *sorted(self.kept.glob("*.eb"))) if files.is_there(path) and
                       not os.access(path, os.R_OK)), None)
        if closed:
            return f"the easyconfig in {self.kept} can't be read: {files.how_to_get_access(closed)}"
        return f"{self.kept} has no copy of the easyconfig, which EasyBuild puts there"

    @property
    def rebuild(self) -> str:
        """The command that installs the module again; EasyBuild's copy is there wherever the easyconfig was."""
        return f"eb --rebuild {shlex.quote(str(self.easyconfig or 'EASYCONFIG'))}"

    @property
    def extension(self) -> Optional[tuple[str, str]]:
        """Name and date of an extension whose easyconfig `ebsif` wrote; None for other modules."""
        path, found = self.easyconfig, NAMED.search(self.module)
        if not (path and found and path.read_text(encoding="utf-8", errors="replace").startswith(WRITTEN)):
            return None
        return found.group("name"), found.group("date")

    @property
    def base(self) -> Optional[str]:
        """Name of the module that an extension extends; None for other modules."""
        return shown_module(NAMED.sub("", self.module)) if self.extension else None

    @property
    def is_loaded(self) -> bool:
        """Whether the module is loaded in this environment."""
        root = os.environ.get("CONTAINERROOT")
        loaded = os.environ.get("_LMFILES_", "").split(":")
        return bool(root) and os.path.realpath(root) == os.path.realpath(self.root) or \
            bool(self.file) and str(self.file) in loaded

    @property
    def date(self) -> datetime.date:
        """The date of the installation."""
        return datetime.date.fromtimestamp((self.root / lockfile.RECORD).stat().st_mtime)

    @property
    def load(self) -> str:
        """The command that loads the module."""
        return framework.load_command(self.use, self.module)


def of_directory(root: Path) -> Installation:
    """
    Return the installation in a directory.

    Raises
    ------
    LockError
        If there is none.
    """
    return Installation(root, lock.read(root).module_name or f"{root.parent.name}/{root.name}")


def of_directory_or_path(root):
    """Return the installation in a directory; if its record is damaged, with a name that follows from the path."""
    try:
        return of_directory(root)
    except lock.LockError:
        return Installation(root, f"{root.parent.name}/{root.name}")


def loaded() -> Optional[Installation]:
    """Return the installation of the loaded container module; None if none is loaded."""
    root, module = os.environ.get("CONTAINERROOT"), os.environ.get("EBSIF_LOADED_MODULE")
    if not root:
        return None
    found = of_directory(Path(root))
    return Installation(found.root, module or found.module)


def module_files(directory: Path, name: Optional[str] = None, only_complete: bool = True,
                 closed: Optional[list[OSError]] = None) -> Iterator[Installation]:
    """
    Yield the installations with a module file in a directory of modules.

    Parameters
    ----------
    directory
        The directory, as for `module use`.
    name
        Name of a module, to yield only this one.
    only_complete
        Whether to leave out module files whose installation has no record or is gone.
    closed
        Gets the errors of directories and files in it that can't be read.
    """
    closed = [] if closed is None else closed
    if name:
        head, _, version = name.rpartition("/")
        paths = [directory / head / f"{dot}{version}{suffix}" for dot in ("", ".") for suffix in (".lua", "")]
    else:
        paths = paths_below(directory, closed)
    for path in paths:
        # the earlier name of a module that was hidden after its installation
        if path.is_symlink() and path.readlink().parent == Path():
            path = path.with_name(str(path.readlink()))
        root = root_in(path, only_complete, closed)
        if root:
            module = str(path.relative_to(directory)).removesuffix(".lua")
            yield Installation(root, module, path, directory)


def paths_below(directory, closed):
    """Yield the paths of possible module files; add the errors of directories that can't be read to a list."""
    for folder, folders, names in os.walk(directory, onerror=closed.append):
        if len(Path(folder).relative_to(directory).parts) >= DEPTH - 1:
            folders.clear()
        folders.sort()
        for name in sorted(names):
            if not NO_MODULE.search(name):
                yield Path(folder, name)


def root_in(path, only_complete=True, closed=None):
    """Return the installation directory in a container's module file (Path); None for others, `closed` gets errors."""
    try:
        # nothing else waits for a reader, or is as large as an image
        if not stat.S_ISREG(path.stat().st_mode) or path.stat().st_size > LARGEST:
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError) and closed is not None:
            closed.append(error)
        return None
    found = ROOT.search(text) if "CONTAINERROOT" in text else None
    root = found and Path(found.group("lua") or found.group("tcl"))
    return root if root and (not only_complete or files.is_there(root / lockfile.RECORD)) else None


def directories_of_modules() -> list[Path]:
    """Return the module directories known without EasyBuild: those on MODULEPATH and below the usual prefixes."""
    named = [part for part in os.environ.get("MODULEPATH", "").split(":") if part]
    prefixes = [os.environ[name] for name in ("EASYBUILD_INSTALLPATH", "EASYBUILD_PREFIX") if os.environ.get(name)]
    if os.environ.get("EASYBUILD_INSTALLPATH_MODULES"):
        named.append(f"{os.environ['EASYBUILD_INSTALLPATH_MODULES']}/all")
    places = [*named, *(f"{prefix}/modules/all" for prefix in (*prefixes, files.home() / ".local/easybuild"))]
    return [Path(place) for place in dict.fromkeys(map(os.path.realpath, places)) if os.path.isdir(place)]  # noqa: PTH112


def known(directories: Iterable[Path], name: Optional[str] = None) -> list[Installation]:
    """Return the installations with a module file in one of these directories, without duplicates."""
    found: dict[str, Installation] = {}
    for directory in directories:
        for one in module_files(directory, name):
            found.setdefault(os.path.realpath(one.root), one)
    return list(found.values())


def size_of(root: Path) -> int:
    """Return the number of bytes that removing a directory frees; files with hard links elsewhere don't count."""
    names: dict[tuple[int, int], list[int]] = {}
    for folder, _, entries in os.walk(root):
        for entry in entries:
            status = os.lstat(os.path.join(folder, entry))  # noqa: PTH118
            count = names.setdefault((status.st_dev, status.st_ino), [status.st_nlink, status.st_blocks * 512])
            count[0] -= 1
    return sum(size for left, size in names.values() if left == 0)


def with_module_files(installations: Iterable[Installation]) -> list[Installation]:
    """
    Return installations with their module files.

    These are searched in the prefix of the installation, on MODULEPATH and below EasyBuild's prefix; each directory is
    read once at most.
    """
    everything = functools.cache(lambda directory: known([directory]))
    return [one if one.file else with_module_file(one, everything) for one in installations]


def with_module_file(installation: Installation,
                     everything: Optional[Callable[[Path], list[Installation]]] = None) -> Installation:
    """Return an installation with its module file; `everything` returns all installations of a module directory."""
    if installation.file:
        return installation
    root = os.path.realpath(installation.root)
    prefixes = list(installation.root.absolute().parents)[2:3]
    directories = dict.fromkeys(
        [*(prefix / MODULES for prefix in prefixes), *directories_of_modules(), framework.prefix()[1]])
    named = (one for directory in directories for one in known([directory], installation.module))
    others = (one for directory in directories for one in (everything or module_files)(directory))
    return next((one for one in itertools.chain(named, others) if os.path.realpath(one.root) == root), installation)
