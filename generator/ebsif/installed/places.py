"""Installations of container modules: what they are called, and which one a directory, a name or a file means."""

import datetime
import functools
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic import container
from easybuild.easyblocks.generic.container import modulerc, newest
from easybuild.easyblocks.generic.container.newest import NAMED
from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.values import shown_module

from ebsif import files
from ebsif.catalog.container import Container
from ebsif.eb import easyconfigtext, framework
from ebsif.files import is_there
from ebsif.installed import lock
from ebsif.modulestool import MODULES, directories_of_modules, may_be_there

# The name of an extension that gets none.
DEFAULT_NAME = "mine"
# eb's options that write the module file again
ONLY_MODULE = "--module-only --force"
# module names have two parts, and more in some naming schemes
DEPTH = 4
LARGEST = 4 * 10**6  # bytes of a module file
# settings of directories; backups and unfinished files of the easyblocks, backups of EasyBuild (--backup-modules)
NO_MODULE = re.compile(r"\A\.(?:modulerc|version)|\.(?:unfinished|replaced|removed|bak_\d+_\d+)\Z")


@dataclass(frozen=True)
class Installation:
    """An installation directory, the name of its module, and, where they are known, module file and `module use`."""

    root: Path
    module: str
    file: Optional[Path] = None
    use: Optional[Path] = None

    @cached_property
    def record(self) -> lockfile.Record:
        """The record, as written at installation; raise LockError if it can't be read."""
        return lock.read_record(self.root)

    @cached_property
    def problem(self) -> Optional[lock.LockError]:
        """The error of reading the record; None if it can be read."""
        try:
            self.record  # noqa: B018 reading it is the test
        except lock.LockError as error:
            return error
        return None

    @property
    def damage(self) -> Optional[str]:
        """Why the record can't be used; None if it can."""
        return str(self.problem) if self.problem else None

    @property
    def repair(self) -> str:
        """What to do about a damaged record, or one that this account may not read."""
        if isinstance(self.problem, lock.ClosedLockError):
            return files.how_to_get_access(self.root / lockfile.RECORD)
        return f"install the module again with `{self.rebuild}`"

    @property
    def recorded_name(self) -> Optional[str]:
        """Name, version and suffix in the record, whatever the naming scheme calls the module; None if unknown."""
        return None if self.damage else self.record.module_name

    @property
    def easyconfig(self) -> Optional[Path]:
        """EasyBuild's copy of the easyconfig in the installation; None if this account can't read it."""
        return next(
            (path for path in sorted(self.kept.glob("*.eb")) if os.access(path, os.R_OK) and is_text(path)), None
        )

    @property
    def is_hidden(self) -> bool:
        """Whether the modules tool doesn't list the module."""
        return self.module != shown_module(self.module)

    @property
    def kept(self) -> Path:
        """The directory in which EasyBuild keeps easyconfig and log."""
        return self.root / "easybuild"

    @property
    def lack(self) -> str:
        """Why there is no easyconfig, and what to do."""
        closed = next(
            (
                path
                for path in (self.kept, *sorted(self.kept.glob("*.eb")))
                if is_there(path) and not os.access(path, os.R_OK)
            ),
            None,
        )
        if closed:
            return f"the easyconfig in {self.kept} can't be read: {files.how_to_get_access(closed)}"
        return f"{self.kept} has no copy of the easyconfig, which EasyBuild puts there"

    @property
    def rebuild(self) -> str:
        """The command that installs the module again; EasyBuild's copy is there wherever the easyconfig was."""
        return f"eb --rebuild {shlex.quote(str(self.easyconfig or 'EASYCONFIG'))}"

    @property
    def rewrite_module(self) -> str:
        """The command that writes the module file again, without installing the rest."""
        return self.rebuild.replace("--rebuild", ONLY_MODULE, 1)

    @cached_property
    def extension(self) -> Optional[tuple[str, str]]:
        """Name and date of an extension whose easyconfig `ebsif` wrote; None for other modules."""
        path, suffix = self.easyconfig, NAMED.search(self.module)
        if not (path and suffix and easyconfigtext.is_written(path.read_text(encoding="utf-8", errors="replace"))):
            return None
        return suffix.group("name"), suffix.group("date")

    @property
    def base(self) -> Optional[str]:
        """Name of the module that an extension extends; None for other modules."""
        return shown_module(NAMED.sub("", self.module)) if self.extension else None

    @property
    def aliases(self) -> list[str]:
        """The further names under which the modules tool loads the module."""
        there = modulerc.aliases_in(str(self.file.parent)) if self.file else {}
        software = shown(self).rpartition("/")[0]
        return [f"{software}/{version}" for version, module in there.items() if module == self.module]

    @property
    def is_loaded(self) -> bool:
        """Whether the module is loaded in this environment."""
        root = os.environ.get("CONTAINERROOT")
        loaded_files = os.environ.get("_LMFILES_", "").split(":")
        return bool(root and is_same(Path(root), self.root)) or (bool(self.file) and str(self.file) in loaded_files)

    @property
    def date(self) -> datetime.date:
        """The date of the installation."""
        return datetime.date.fromtimestamp((self.root / lockfile.RECORD).stat().st_mtime)

    @property
    def programs(self) -> list[str]:
        """The commands of the loaded module that run programs of the container, without those of ebsif."""
        commands = self.root / "bin"
        names = {path.name for path in commands.iterdir()} if is_there(commands) else set()
        own = Path(container.__file__).parent / "files/bin"
        return sorted(names - {path.name for path in own.iterdir()})

    @property
    def load(self) -> str:
        """The command that loads the module."""
        return framework.load_command(self.use, short(self))


def shown(installation: Installation) -> str:
    """Return the name of an installed module, without the dot of a hidden one."""
    return shown_module(installation.module)


def adding(installation: Installation, package: str) -> str:
    """Return the command that adds a package: it changes an extension; from another module it makes one."""
    return shlex.join([*changing(installation, "jupyter"), "--add", package])


def changing(installation: Installation, name: str = DEFAULT_NAME) -> list[str]:
    """Return the words of the command that changes an extension; of another module, that makes one with this name."""
    return ["ebsif", "extend", word(installation), *([] if installation.extension else ["--name", name])]


def software(installation: Installation) -> str:
    """Return the name of an installed software, without the category of its module (ai/PyTorch/2.7)."""
    return installation.module.rpartition("/")[0].rpartition("/")[2]


def short(
    installation: Installation, further: Optional[Iterable[str]] = None, searched: Optional[Sequence[Path]] = None
) -> str:
    """
    Return the shortest name by which the modules tool loads an installation here (N-01).

    An extension `mine` is PyTorch/mine, or PyTorch/2.7-mine if a newer base has one of that name, too. Only its whole
    name always means the same installation. `further` are the other names to choose from, by default its own;
    `searched` are the directories of modules, by default those that are known without EasyBuild.
    """
    searched = directories_of_modules() if searched is None else searched
    further = installation.aliases if further is None else further
    names = [name for name in further if not is_hidden_by(installation, name, searched)]
    return min([*names, installation.module], key=lambda name: (len(name), name))


def short_once_installed(place: framework.ModulePlace, versions: Iterable[str]) -> str:
    """Return the shortest name of a module that is going to be at a place, with aliases for its version (N-01)."""
    software, _, version = place.module.rpartition("/")
    folder = str(place.use / software)
    own = [f"{software}/{alias}" for alias in versions if modulerc.version_meant(folder, version, alias) == version]
    return short(Installation(place.installation, place.module, use=place.use), own)


def is_hidden_by(installation: Installation, name: str, searched: Iterable[Path]) -> bool:
    """Return whether another of the directories of modules has a name, so that the modules tool may load that one."""
    software, _, version = name.rpartition("/")
    folders = [
        str(use / software)
        for use in searched
        if installation.use and may_be_there(str(use / software)) and not is_same(use, installation.use)
    ]
    return any(version in modulerc.aliases_in(folder) or modulerc.file_of(folder, version) for folder in folders)


def word(installation: Installation, others: Optional[Iterable[Installation]] = None) -> str:
    """
    Return what people type for an installation in commands of `ebsif`: `mine` for the newest extension of that name.

    That isn't enough if another software has one of that name, or is called so. `others` are all installations, by
    default those that are known without EasyBuild.
    """
    name = short(installation)
    alone = name.rpartition("/")[2]
    if not installation.extension or alone != installation.extension[0]:
        return shown_module(name)
    others = known(directories_of_modules()) if others is None else others
    are_alike = any(
        alone.lower() == software(one).lower()
        or (
            one.extension
            and one.extension[0].lower() == alone.lower()
            and (software(one), one.extension[0]) != (software(installation), alone)
        )
        for one in others
    )
    return name if are_alike else alone


def undated(installation: Installation) -> Optional[str]:
    """Return the name of an extension without its date, if its module can be loaded by that; None otherwise."""
    if not (installation.extension and installation.file):
        return None
    name = f"{installation.base}-{installation.extension[0]}"
    return name if name in installation.aliases else None


def age(installation: Installation, date: str = "") -> tuple:
    """
    Return the sort key of an installation among those of its software, the newest one last.

    Extensions of a name come in the order of their dates. `date` is that in the record of the catalog.
    """
    name, own_date = installation.extension or ("", "")
    version = (installation.base or shown(installation)).rpartition("/")[2]
    return newest.module_key(version, date), newest.natural(version), name, newest.date_key(own_date)


def newest_first(
    installations: Iterable[Installation], key: Callable[[Installation], tuple] = age
) -> list[Installation]:
    """Return installations by software, each with its newest version first; the key is as that of `age`."""
    return sorted(sorted(installations, key=key, reverse=True), key=lambda one: shown(one).rpartition("/")[0].lower())


# --- single installations


def of_directory(root: Path) -> Installation:
    """Return the installation in a directory; raise LockError if there is none."""
    return Installation(root, lock.read_record(root).module_name or f"{root.parent.name}/{root.name}")


def loaded() -> Optional[Installation]:
    """Return the installation of the loaded container module; None if none is loaded, or it was removed since."""
    root, module = os.environ.get("CONTAINERROOT"), os.environ.get("EBSIF_LOADED_MODULE")
    if not root or not is_there(Path(root)):
        return None
    installation = of_directory(Path(root))
    module = module or installation.module
    # below the directory of `module use`
    uses = (file.removesuffix(".lua").removesuffix(f"/{module}") for file in os.environ.get("_LMFILES_", "").split(":"))
    found = known(map(Path, filter(None, uses)), module)
    return next((one for one in found if is_same(one.root, installation.root)), Installation(installation.root, module))


# --- module files


def module_files(
    directory: Path, name: Optional[str] = None, only_complete: bool = True, closed: Optional[list[OSError]] = None
) -> Iterator[Installation]:
    """
    Yield the installations with a module file in a directory of modules; with a name, only that module.

    Module files whose installation has no record or is gone are left out if `only_complete`. The errors of directories
    and files that can't be read are added to `closed`.
    """
    closed = [] if closed is None else closed
    if name:
        head, _, version = name.rpartition("/")
        there = may_be_there(str(directory / head))
        paths = iter([directory / head / one for one in modulerc.file_names(version)] if there else ())
    else:
        paths = paths_below(directory, closed)
    for path in paths:
        # the earlier name of a module that was hidden later, or its name below EasyBuild's module class
        if os.path.islink(path):
            target, tree = Path(os.path.realpath(path)), os.path.realpath(directory)
            if target.is_relative_to(tree):
                path = directory / target.relative_to(tree)
        root = root_in(path, closed)
        if root and (not only_complete or is_there(root / lockfile.RECORD)):
            yield Installation(root, modulerc.version_of(str(path.relative_to(directory))), path, directory)


def paths_below(directory: Path, closed: list[OSError]) -> Iterator[Path]:
    """Yield the paths of possible module files; add the errors of directories that can't be read to a list."""
    for folder, folders, names in os.walk(directory, onerror=closed.append):
        if len(Path(folder).relative_to(directory).parts) >= DEPTH - 1:
            folders.clear()
        folders.sort()
        for name in sorted(names):
            if not NO_MODULE.search(name):
                yield Path(folder, name)


def is_text(path: Path) -> bool:
    """Return whether a file of others can be read at once: it isn't a pipe, a device, or as large as an image."""
    status = path.stat()
    return stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST


def root_in(path: Path, closed: list[OSError]) -> Optional[Path]:
    """Return the installation directory in the module file of a container; None for others, `closed` gets errors."""
    try:
        if not is_text(path):
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError):
            closed.append(error)
        return None
    match = modulerc.ROOT.search(text) if "CONTAINERROOT" in text else None
    return Path(match.group("lua") or match.group("tcl")) if match else None


def known(directories: Iterable[Path], name: Optional[str] = None) -> list[Installation]:
    """Return the installations with a module file in one of these directories, without duplicates."""
    return once(one for directory in directories for one in module_files(directory, name))


def called(module: str) -> list[Installation]:
    """Return the installations that a module of this name on MODULEPATH stands for: one, if it is in one directory."""
    return known(directories_of_modules(), module)


def loaded_as(name: str) -> Optional[Installation]:
    """Return the installation that the modules tool loads by NAME/VERSION, which may be an alias; None for others."""
    software, _, version = name.rpartition("/")
    if not software or name.startswith("/") or ".." in name.split("/"):
        return None
    # without reading all modules of a large system
    for use in directories_of_modules():
        there = known([use], modulerc.aliases_in(str(use / software)).get(version, name))
        if there:
            return there[0]
    return None


def is_found(installation: Installation) -> bool:
    """Return whether the whole name of an installation means it: where modules are searched, it's the first of them."""
    directories = [*directories_of_modules(), framework.prefix()[1]]
    return any(is_same(one.root, installation.root) for one in known(directories, shown(installation))[:1])


def of_container(container: Container, searched: Optional[Sequence[Path]] = None) -> Optional[Installation]:
    """Return the installation of a container of the catalog, without reading all modules of a large system."""
    searched = directories_of_modules() if searched is None else searched
    return next((one for name in container.modules for one in known(searched, name)), None)


def once(installations: Iterable[Installation]) -> list[Installation]:
    """Return the first installation with each installation directory."""
    by_root: dict[str, Installation] = {}
    for installation in installations:
        by_root.setdefault(os.path.realpath(installation.root), installation)
    return list(by_root.values())


def with_module_file(installation: Installation) -> Installation:
    """Return an installation with its module file; see `with_module_files`."""
    return with_module_files([installation])[0]


def with_module_files(installations: Iterable[Installation]) -> list[Installation]:
    """Return installations with their module files, from their prefixes, MODULEPATH and EasyBuild's prefix."""
    all_in = functools.cache(lambda directory: known([directory]))

    def found(installation: Installation) -> Iterator[Installation]:
        prefixes = list(installation.root.absolute().parents)[2:3]
        for directory in dict.fromkeys(
            [*(prefix / MODULES for prefix in prefixes), *directories_of_modules(), framework.prefix()[1]]
        ):
            yield from known([directory], installation.module)
            yield from all_in(directory)

    return [
        one if one.file else next((other for other in found(one) if is_same(one.root, other.root)), one)
        for one in installations
    ]


def is_same(root: Path, other: Path) -> bool:
    """Return whether two paths are the same directory, which may be gone."""
    return os.path.realpath(root) == os.path.realpath(other)


# --- EasyBuild's locks


def easybuild_lock(root: Path) -> Optional[Path]:
    """Return EasyBuild's lock on an installation directory, perhaps of another prefix; None if there is none."""
    locks = (
        folder / ".locks" / (str(path).replace("/", "_") + ".lock")
        for path in (root.absolute(), Path(os.path.realpath(root)))
        for folder in path.parents
    )
    return next(filter(is_there, locks), None)


def in_use(module: str, root: Path) -> Optional[str]:
    """Return what to do about a module that eb is installing in a directory; None if it isn't."""
    found = easybuild_lock(root)
    return locked(module, found) if found else None


def locked(module: str, lock: Path) -> str:
    """Return what to do about a lock of EasyBuild."""
    return f"eb is installing {module}: wait until it is done; if no eb is running anywhere, remove its lock {lock}"
