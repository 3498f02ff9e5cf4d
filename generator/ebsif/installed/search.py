"""Search installations below directories of any kind, and say which directories can't be searched."""

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container.record import lockfile

from ebsif import files
from ebsif.eb import framework
from ebsif.errors import UsageError
from ebsif.files import is_there
from ebsif.installed import places
from ebsif.installed.places import Installation, shown
from ebsif.modulestool import MODULES, directories_of_modules
from ebsif.report.findings import ERROR, NOTE, WARNING, Finding

# Software below a prefix of EasyBuild.
SOFTWARE = "software"
# Suffixes of paths next to an installation: leftovers of reinstallations, and user software set aside, with the time.
BESIDE = re.compile(r"\.(?:replace|replaced|\d{8}-\d{6}(?:\..+)?)\Z")
# The beginning of what is said of a directory that can't be read.
UNREADABLE = "can't be read, so what is installed there is unknown"


def installations(named: Sequence[str] = ()) -> tuple[list[Installation], list[Finding]]:
    """
    Return all installations in some directories, and what can't be searched.

    They are in the order of their names, with the newest first as far as those tell: `Names.newest_first` also knows
    the dates in the catalog.

    The directories are prefixes of EasyBuild, directories of installations or of modules, installations, or several of
    these separated by colons, as in MODULEPATH, of which some may not exist. By default EasyBuild's prefix and
    MODULEPATH are searched. Those with a damaged record are included; see `Installation.damage`. The findings are
    about directories that can't be read (see `is_gap`), and container modules without an installation or of another
    origin. Raise UsageError if a directory that is named by itself doesn't exist.
    """
    search = Search()
    if named:
        for text in named:
            search.add(text)
    else:
        software, modules = framework.prefix()
        for directory in dict.fromkeys([modules, *directories_of_modules()]):
            search.add_modules(directory)
        search.add_software(software)
    return places.newest_first(search.found.values()), list(search.problems)


def everything() -> list[Installation]:
    """Return the installations below EasyBuild's prefix and on MODULEPATH, also those without a module file."""
    return installations()[0]


class Search:
    """A search of directories; `found` are the installations by their real path, `problems` the findings, each once."""

    def __init__(self) -> None:
        """Start without results."""
        self.found: dict[str, Installation] = {}
        self.problems: dict[Finding, None] = {}

    def add(self, text: str) -> None:
        """Search a directory of any kind, or several separated by colons, without those that don't exist."""
        parts = [part for part in text.split(":") if part]
        if files.is_directory(text):
            self.add_directory(Path(text))
            return
        if len(parts) < 2:
            raise UsageError(
                f"{text or repr(text)} is not a directory: give a prefix of EasyBuild, a directory of "
                "modules, or an installation"
            )
        for part in parts:
            if files.is_directory(part):
                self.add_directory(Path(part))
            else:
                # MODULEPATH often has such entries, and modules tools skip them
                self.note(Finding(NOTE, "", "skipped: there is no such directory", part, 0))

    def add_directory(self, path: Path) -> None:
        """Search a directory of any kind."""
        path = path.absolute()
        if is_there(path / lockfile.RECORD):
            self.add_root(path)
        elif files.is_directory(path / SOFTWARE) or files.is_directory(path / MODULES):
            self.add_modules(path / MODULES)
            self.add_software(path / SOFTWARE)
        elif not self.add_software(path):
            self.add_modules(path)

    def add_modules(self, directory: Path) -> None:
        """Add the installations with a module file in a directory of modules."""
        if self.listed(directory) is None:
            return
        closed: list[OSError] = []
        for installation in places.module_files(directory, only_complete=False, closed=closed):
            if is_there(installation.root / lockfile.RECORD):
                known_one = self.found.setdefault(os.path.realpath(installation.root), installation)
                if not known_one.file:
                    self.found[os.path.realpath(installation.root)] = installation
            else:
                self.note(without_record(installation))
        for error in closed:
            self.note(unreadable(error.filename, error.errno))

    def add_software(self, directory: Path) -> bool:
        """Add the installations NAME/VERSION in a directory, or VERSION in that of a software; return if there are."""
        before = len(self.found)
        for name in self.listed(directory) or []:
            inside = self.listed(directory / name) or []
            for root in (directory / name, *(directory / name / version for version in inside)):
                if not BESIDE.search(root.name) and is_there(root / lockfile.RECORD):
                    self.add_root(root)
                elif is_closed(root):
                    self.note(unreadable(root))
        return len(self.found) > before

    def add_root(self, root: Path) -> None:
        """Add the installation in a directory; if its record is damaged, its name follows from the path."""
        installation = Installation(root, f"{root.parent.name}/{root.name}")
        name = installation.recorded_name or installation.module
        self.found.setdefault(os.path.realpath(root), Installation(root, name))

    def listed(self, directory: Path) -> Optional[list[str]]:
        """Return the names in a directory; None if it is none, or can't be read, which is noted."""
        try:
            return sorted(path.name for path in directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.note(unreadable(directory, error.errno))
            return None

    def note(self, problem: Finding) -> None:
        """Add a finding, once: software is found by its directory and by its module."""
        self.problems[problem] = None


def is_place(text: str) -> bool:
    """Return whether a text means a directory, or several, and not a name."""
    return not text or text.startswith(("/", ".")) or ":" in text or files.is_directory(text)


def is_search(texts: Sequence[str]) -> bool:
    """Return whether all of a place is searched, not only modules by their names or installation directories."""
    return not texts or any(is_place(text) and not is_there(Path(text, lockfile.RECORD)) for text in texts)


def is_closed(path: Path) -> bool:
    """Return whether this account may not look into a directory."""
    return files.is_directory(path) and not os.access(path, os.R_OK | os.X_OK)


def unreadable(path: Union[str, Path], reason: Optional[int] = errno.EACCES) -> Finding:
    """Return the finding on a directory that can't be read; other accounts' private directories are not a problem."""
    try:
        is_own = os.lstat(path).st_uid == os.getuid()
    except OSError:
        is_own = False
    level = WARNING if is_own or reason != errno.EACCES else NOTE
    return Finding(level, "", f"{UNREADABLE}: {os.strerror(reason or errno.EIO)}", str(path), 0)


def is_gap(problem: Finding) -> bool:
    """Return whether a problem is a directory that can't be read, so that there may be more installations."""
    return problem.text.startswith(UNREADABLE)


def without_record(installation: Installation) -> Finding:
    """Return the finding on a module whose installation has no record."""
    root, file = installation.root, str(installation.file)
    try:
        os.lstat(root)
    except PermissionError:
        return unreadable(root)
    except OSError:
        return Finding(
            ERROR,
            installation.module,
            f"its installation {root} is gone: remove the module file, or install it again with eb",
            file,
        )
    record = root / lockfile.RECORD
    closed = next(filter(is_closed, (root, record.parent.parent, record.parent)), None)
    if closed:
        return unreadable(closed)
    if wait := places.in_use(shown(installation), root):
        return Finding(WARNING, installation.module, wait, file)
    if is_there(record.parent):
        return Finding(
            ERROR,
            installation.module,
            f"its installation has no {record}: install it again with eb --rebuild",
            file,
        )
    return Finding(NOTE, installation.module, "not installed with ebsif, so nothing is known about it", file)
