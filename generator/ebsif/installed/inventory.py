"""Find all installations below prefixes and directories of modules, also incomplete ones."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from easybuild.easyblocks.generic.container import lockfile

from ebsif.eb import framework
from ebsif.errors import UsageError
from ebsif.files import is_there
from ebsif.installed import places
from ebsif.installed.places import BESIDE, MODULES, Installation
from ebsif.report.findings import ERROR, NOTE, WARNING, Finding

# Software below a prefix of EasyBuild.
SOFTWARE = "software"
# The beginning of what is said of a directory that can't be read.
UNREADABLE = "can't be read, so what is installed there is unknown"


def installations(named: Sequence[str] = ()) -> tuple[list[Installation], list[Finding]]:
    """
    Return all installations in some directories, sorted by module, and what can't be searched.

    Parameters
    ----------
    named
        Prefixes of EasyBuild, directories of installations or of modules, installations, or several of these separated
        by colons, as in MODULEPATH, of which some may not exist. By default EasyBuild's prefix and MODULEPATH are
        searched.

    Returns
    -------
    list of Installation
        Those with a damaged record are included; see `Installation.damage`.
    list of Finding
        Directories that can't be read (see `is_gap`), and container modules without an installation, or with one of
        another origin.

    Raises
    ------
    UsageError
        If a directory that is named by itself doesn't exist.
    """
    search = Search()
    if named:
        for text in named:
            search.add(text)
    else:
        software, modules = framework.prefix()
        for directory in dict.fromkeys([modules, *places.directories_of_modules()]):
            search.add_modules(directory)
        search.add_software(software)
    return sorted(search.found.values(), key=lambda one: one.module), list(search.problems)


def everything() -> list[Installation]:
    """Return the installations below EasyBuild's prefix and on MODULEPATH, also those without a module file."""
    return installations()[0]


class Search:
    """
    A search of directories.

    Attributes
    ----------
    found : dict of Installation
        By real path of the installation directory.
    problems : dict of Finding
        In the order in which they were found, each once.
    """

    def __init__(self):
        """Start without results."""
        self.found = {}
        self.problems = {}

    def add(self, text):
        """Search a directory of any kind, or several separated by colons, without those that don't exist."""
        parts = [part for part in text.split(":") if part]
        if is_directory(text):
            self.add_directory(Path(text))
            return
        if len(parts) < 2:
            raise UsageError(f"{text or repr(text)} is not a directory: name a prefix of EasyBuild, a directory of "
                             "modules, or an installation")
        for part in parts:
            if is_directory(part):
                self.add_directory(Path(part))
            else:
                # MODULEPATH often has such entries, and modules tools skip them
                self.note(Finding(NOTE, "", "skipped: there is no such directory", part, 0))

    def add_directory(self, path):
        """Search a directory of any kind."""
        path = path.absolute()
        if is_there(path / lockfile.RECORD):
            self.add_root(path)
        elif is_directory(path / SOFTWARE) or is_directory(path / MODULES):
            self.add_modules(path / MODULES)
            self.add_software(path / SOFTWARE)
        elif not self.add_software(path):
            self.add_modules(path)

    def add_modules(self, directory):
        """Add the installations with a module file in a directory of modules."""
        if self.listed(directory) is None:
            return
        closed = []
        for one in places.module_files(directory, only_complete=False, closed=closed):
            if is_there(one.root / lockfile.RECORD):
                known = self.found.setdefault(os.path.realpath(one.root), one)
                if not known.file:
                    self.found[os.path.realpath(one.root)] = one
            else:
                self.note(without_record(one))
        for error in closed:
            self.note(unreadable(error.filename, error.errno))

    def add_software(self, directory):
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

    def add_root(self, root):
        """Add the installation in a directory."""
        self.found.setdefault(os.path.realpath(root), places.of_directory_or_path(root))

    def listed(self, directory):
        """Return the names in a directory (list of str); None if it is none, or can't be read, which is noted."""
        try:
            return sorted(path.name for path in directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.note(unreadable(directory, error.errno))
            return None

    def note(self, problem):
        """Add a Finding, once: software is found by its directory and by its module."""
        self.problems[problem] = None


def is_place(text: str) -> bool:
    """Return whether a text means a directory, or several, and not a name."""
    return not text or text.startswith(("/", ".")) or ":" in text or is_directory(text)


def is_search(texts: Sequence[str]) -> bool:
    """Return whether all of a place is searched, not only modules by their names or installation directories."""
    return not texts or any(is_place(text) and not is_there(Path(text, lockfile.RECORD)) for text in texts)


def is_directory(path):
    """Return whether a path is a directory that can be reached (older versions of pathlib raise an error if not)."""
    return os.path.isdir(path)  # noqa: PTH112


def is_closed(path):
    """Return whether this account may not look into a directory."""
    return is_directory(path) and not os.access(path, os.R_OK | os.X_OK)


def unreadable(path, reason=errno.EACCES):
    """Return a Finding on a directory that can't be read; that others don't let us is nothing wrong."""
    level = NOTE if reason == errno.EACCES and is_of_others(path) else WARNING
    return Finding(level, "", f"{UNREADABLE}: {os.strerror(reason)}", str(path), 0)


def is_of_others(path):
    """Return whether a directory belongs to another account, which may be all that we can't look for."""
    try:
        return os.lstat(path).st_uid != os.getuid()
    except OSError:
        return True


def is_gap(problem: Finding) -> bool:
    """Return whether a problem is a directory that can't be read, so that there may be more installations."""
    return problem.text.startswith(UNREADABLE)


def without_record(one):
    """Return a Finding on a module whose installation has no record."""
    try:
        os.lstat(one.root)
    except PermissionError:
        return unreadable(one.root)
    except OSError:
        text = f"its installation {one.root} is gone: remove the module file, or install it again with eb"
        return Finding(ERROR, one.module, text, str(one.file))
    if is_closed(one.root):
        return unreadable(one.root)
    if is_there(one.root / Path(lockfile.RECORD).parent):
        text = f"its installation has no {one.root / lockfile.RECORD}: install it again with eb --rebuild"
        return Finding(ERROR, one.module, text, str(one.file))
    return Finding(NOTE, one.module, "not installed with ebsif, so nothing is known about it", str(one.file))
