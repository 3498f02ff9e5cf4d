##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The loader of the host: which libraries a file needs, and where they are.

Doesn't import EasyBuild, so that commands can use it too.
"""
import os
import re
from glob import glob
from types import MappingProxyType
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Pattern, Sequence, Tuple

from .elf import Elf, NotElfError, cached_libraries
from ..values import TEXTS, is_of_kind, parse_binds

# Where the loader looks last, on the distributions that we know.
DEFAULT_FOLDERS = ('/lib64', '/usr/lib64', '/lib/x86_64-linux-gnu', '/usr/lib/x86_64-linux-gnu',
                   '/lib/aarch64-linux-gnu', '/usr/lib/aarch64-linux-gnu', '/lib', '/usr/lib')


# a key of 'host_programs' and of 'host_libraries'
PLUGINS = 'plugins'


class Loader:
    """The loader of this machine: finds libraries as ld.so(8) says, without LD_LIBRARY_PATH of the caller."""

    def __init__(self, search_path: Sequence[str] = ()) -> None:
        """``search_path``: directories, as in LD_LIBRARY_PATH; of those that match a pattern, the newest."""
        self.cache = cached_libraries()
        self.search_path = [folders[-1] for folders in map(by_version, map(glob, search_path)) if folders]
        self.known: Dict[str, Optional[Elf]] = {}

    def read(self, path: str) -> Optional[Elf]:
        """Return what the loader reads of a file; None if it can't load it."""
        if path not in self.known:
            try:
                self.known[path] = Elf.read(path)
            except (NotElfError, OSError):
                self.known[path] = None
        return self.known[path]

    def find(self, name: str, above: Sequence[str]) -> Optional[str]:
        """Return the path of a library that the last of some files needs; each of these is needed by the one before."""
        if '/' in name:
            return name if self.read(name) else None
        last = self.read(above[-1])
        if not last:
            return None
        folders = [] if last.runpath else [
            folder for path in reversed(above) for folder in expanded((self.read(path) or last).rpath, path)]
        folders += [*self.search_path, *expanded(last.runpath, above[-1])]
        paths = [os.path.join(folder, name) for folder in folders] + self.cache.get(name, []) + \
            [os.path.join(folder, name) for folder in DEFAULT_FOLDERS]
        for path in paths:
            found = self.read(path)
            if found and found.machine == last.machine:
                return path
        return None

    def needs(self, root: str, known: Mapping[str, str] = MappingProxyType({}),
              without: Optional[Pattern[str]] = None) -> Tuple[Dict[str, str], List[str]]:
        """
        Return the libraries that a file needs, besides those that are ``known``, and what is missing.

        In the order of the loader, breadth first: the first library of a name serves all. Names that ``without``
        matches don't count.
        """
        found: Dict[str, str] = {}
        missing, waiting, seen = [], [[root]], set()
        while waiting:
            above = waiting.pop(0)
            read = self.read(above[-1])
            for name in read.needed if read else ():
                if name in seen or (without and without.match(name)):
                    continue
                seen.add(name)
                path = known.get(name) or self.find(name, above)
                if path:
                    found[name] = path
                    waiting.append(above + [path])
                else:
                    missing.append("%s needs %s, which this machine doesn't have (%s)" % (
                        os.path.basename(above[-1]), name, ' -> '.join(map(os.path.basename, above))))
        return {name: path for name, path in found.items() if name not in known}, missing

    def matching(self, path: str) -> List[str]:
        """Return the library of a name, or those that match a pattern of paths, the newest last."""
        if '/' not in path:
            found = self.find(path, [os.path.realpath('/bin/sh')])
            return [found] if found else []
        return by_version(filter(self.read, glob(path)))

    def builds(self, paths: Iterable[str]) -> Dict[str, str]:
        """Return what an update of the system changes: the build of each file, else its size, by path."""
        found = {}
        for path in paths:
            read = self.read(os.path.realpath(path))
            found[path] = (read and read.build_id()) or str(os.path.getsize(path))
        return found


def numbers(version: str) -> List[int]:
    """Return the numbers in a version, for comparisons."""
    return [int(number) for number in re.findall(r'\d{1,9}', version)]


def by_version(paths: Iterable[str]) -> List[str]:
    """Return paths by the versions in them, the newest last."""
    return sorted(paths, key=lambda path: (numbers(path), path))


class Closure:
    """Files of this machine with the libraries that they need; `problems` says what is missing, a sentence for each."""

    # names of libraries that the image has in any case
    OF_IMAGE: Optional[Pattern[str]] = None

    def __init__(self, loader: Loader) -> None:
        """Begin without files."""
        self.loader = loader
        # paths by name
        self.libraries: Dict[str, str] = {}
        self.plugins: List[str] = []
        self.problems: List[str] = []
        # plugins that lack something on the host, too, where nobody misses them
        self.left_out: List[str] = []

    def add_plugins(self, pattern: str, is_optional: bool) -> List[str]:
        """Add plugins, in a directory or by a pattern, and what they need; return all, also those that are left out."""
        paths = sorted(glob(os.path.join(pattern, '*.so*') if os.path.isdir(pattern) else pattern))
        found = [path for path in paths if self.loader.read(path)]
        if not found and not is_optional:
            self.problems.append("there are no plugins in %s: correct '%s', or write '?' before it if they may be "
                                 "missing" % (pattern, PLUGINS))
        for path in found:
            libraries, missing = self.loader.needs(path, self.libraries, self.OF_IMAGE)
            if missing:
                self.left_out += missing
            else:
                self.libraries.update(libraries)
                self.plugins.append(path)
        return found


def expanded(folders: Sequence[str], path: str) -> List[str]:
    """Return the search path of a file, with the directory of the file for $ORIGIN, and both meanings of $LIB."""
    found = []
    for folder in folders:
        folder = re.sub(r'\$(ORIGIN|\{ORIGIN\})', lambda _: os.path.dirname(os.path.realpath(path)), folder)
        for lib in ('lib64', 'lib') if re.search(r'\$(LIB\b|\{LIB\})', folder) else ('',):
            found.append(os.path.normpath(re.sub(r'\$(LIB\b|\{LIB\})', lib, folder)))
    return found


# --- values of 'host_programs' and 'host_libraries'

# Returns what is wrong with an item of a list, or a key of a dictionary (the rest of a sentence that begins with it).
ItemCheck = Callable[[str], Optional[str]]


def marked(texts: Iterable[str]) -> List[Tuple[str, bool]]:
    """Return the items of a list, and whether a machine may lack each: those have the mark of optional binds."""
    required, optional = parse_binds(texts)
    return [(item, False) for item in required] + [(item, True) for item in optional]


def path_problem(path: str) -> Optional[str]:
    """Return why a text can't be a directory, or a pattern of files."""
    return None if path.startswith('/') else "should be a full path"


def item_problem(check: ItemCheck, item: str) -> Optional[str]:
    """Return what is wrong with an item of a list, which may have the mark."""
    return next(filter(None, (check(one) for one, _ in marked([item]))), None)


def lists_problem(value: object, checks: Mapping[str, ItemCheck]) -> Optional[str]:
    """Return what is wrong with lists by name; the first one has to be there."""
    if not isinstance(value, dict) or not all(is_of_kind(items, TEXTS) for items in value.values()):
        return " should be a dictionary of lists of strings (%s), found: %s" % (', '.join(checks), value)
    for key, items in value.items():
        if key not in checks:
            return ": unknown '%s' (known: %s)" % (key, ', '.join(checks))
        for item in items:
            problem = item_problem(checks[key], item)
            if problem:
                return ": '%s' in '%s' %s" % (item, key, problem)
    first = next(iter(checks))
    return ": '%s' is missing, what the container gets" % first if value and not value.get(first) else None
