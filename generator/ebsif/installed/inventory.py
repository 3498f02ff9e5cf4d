"""Find all installations below prefixes and directories of modules, also incomplete ones."""

import os
from collections.abc import Sequence
from pathlib import Path

from easybuild.easyblocks.generic.container import lockfile

from ebsif import eb
from ebsif.errors import UsageError
from ebsif.files import is_there
from ebsif.findings import ERROR, NOTE, WARNING, Finding
from ebsif.installed import places
from ebsif.installed.places import BESIDE, Installation

# Below EasyBuild's prefix.
SOFTWARE, MODULES = "software", "modules/all"


def installations(named: Sequence[str] = ()) -> tuple[list[Installation], list[Finding]]:
    """
    Return all installations in some directories, sorted by module, and what can't be searched.

    Parameters
    ----------
    named
        Prefixes of EasyBuild, directories of installations or of modules, installations, or several of these separated
        by colons, as in MODULEPATH. By default EasyBuild's prefix and MODULEPATH are searched.

    Returns
    -------
    list of Installation
        Those with a damaged record are included; see `Installation.damage`.
    list of Finding
        Directories that can't be read, and container modules without an installation, or with one of another origin.

    Raises
    ------
    UsageError
        If a directory doesn't exist.
    """
    search = Search()
    if named:
        for text in named:
            for path in [Path(text)] if os.path.isdir(text) else map(Path, filter(None, text.split(":"))):  # noqa: PTH112
                search.add(path)
    else:
        software, modules = eb.prefix()
        for directory in dict.fromkeys([modules, *places.directories_of_modules()]):
            search.add_modules(directory)
        search.add_software(software)
    return sorted(search.found.values(), key=lambda one: one.module), search.problems


class Search:
    """
    A search of directories.

    Attributes
    ----------
    found : dict of Installation
        By real path of the installation directory.
    problems : list of Finding
    """

    def __init__(self):
        """Start without results."""
        self.found = {}
        self.problems = []

    def add(self, path):
        """Search a directory of any kind; raise UsageError if it doesn't exist."""
        if not path.is_dir():
            raise UsageError(f"{path} is not a directory: name a prefix of EasyBuild, a directory of modules, or an "
                             "installation")
        path = path.absolute()
        if is_there(path / lockfile.RECORD):
            self.add_root(path)
        elif (path / SOFTWARE).is_dir() or (path / MODULES).is_dir():
            self.add_modules(path / MODULES)
            self.add_software(path / SOFTWARE)
        elif not self.add_software(path):
            self.add_modules(path)

    def add_modules(self, directory):
        """Add the installations with a module file in a directory of modules."""
        if self.listed(directory) is None:
            return
        for one in places.module_files(directory, only_complete=False):
            if is_there(one.root / lockfile.RECORD):
                known = self.found.setdefault(os.path.realpath(one.root), one)
                if not known.file:
                    self.found[os.path.realpath(one.root)] = one
            else:
                self.problems.append(without_record(one))

    def add_software(self, directory):
        """Add the installations NAME/VERSION in a directory, or VERSION in that of a software; return if there are."""
        before = len(self.found)
        for name in self.listed(directory) or []:
            inside = self.listed(directory / name) or []
            for root in (directory / name, *(directory / name / version for version in inside)):
                if not BESIDE.search(root.name) and is_there(root / lockfile.RECORD):
                    self.add_root(root)
                elif is_closed(root):
                    self.problems.append(unreadable(root, "permission denied"))
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
            self.problems.append(unreadable(directory, error.strerror))
            return None


def is_closed(path):
    """Return whether this account may not look into a directory."""
    return path.is_dir() and not os.access(path, os.R_OK | os.X_OK)


def unreadable(path, reason):
    """Return a Finding on a directory that can't be read."""
    return Finding(WARNING, "", f"can't be read, so what is installed there is unknown: {reason}", str(path))


def without_record(one):
    """Return a Finding on a module whose installation has no record."""
    try:
        os.lstat(one.root)
    except PermissionError:
        return unreadable(one.root, "permission denied")
    except OSError:
        text = f"its installation {one.root} is gone: remove the module file, or install it again with eb"
        return Finding(ERROR, one.module, text, str(one.file))
    if is_closed(one.root):
        return unreadable(one.root, "permission denied")
    if is_there(one.root / Path(lockfile.RECORD).parent):
        text = f"its installation has no {one.root / lockfile.RECORD}: install it again with eb --rebuild"
        return Finding(ERROR, one.module, text, str(one.file))
    return Finding(NOTE, one.module, "not installed with ebsif, so nothing is known of it", str(one.file))
