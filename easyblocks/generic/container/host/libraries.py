##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Libraries of the host for programs of the image (K-01): roots that a site names, and what they need.

They are in one directory, which comes first on the library path. glibc stays the image's, and so does each library of
the image that has all versions and symbols that the bound ones need. Doesn't import EasyBuild, so that commands can use
it too.
"""
import os
import re
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from .elf import DAMAGE, Elf
from .loader import PLUGINS, Closure, Loader, marked, numbers, path_problem
from ..record.lockfile import HostLibrariesRecord
from ..values import escape_bind
from ..written import escape, is_file_name

# In the container.
FOLDER = '/host-libraries'

# What the value has: names or paths of libraries, or patterns; directories, or patterns, of what they open by path;
# directories, or patterns, that come first where the host looks for libraries. A '?' before one of the first two allows
# that a machine doesn't have it.
LIBRARIES, SEARCH_PATH = 'libraries', 'search_path'

# A library, the name under which the image's programs know it, and whether it replaces one of the image that has more.
ROOT = re.compile(r'(?P<path>\S+)(?: as (?P<name>\S+))?(?P<replace> replace)?\Z')

# It has to be of the loader, which is the image's.
GLIBC = re.compile(r'(ld-linux[^/]*|lib(c|m|mvec|dl|rt|pthread|resolv|util|anl|thread_db|BrokenLocale|nsl)|'
                   r'libnss_(files|dns|compat|hesiod|db))\.so\.[12346]\Z|libpthread\.so\.0\Z')
LIBC = 'libc.so.6'

# Why a root is bound.
NAMED = 'named'


class ImageLibrary(NamedTuple):
    """What a library of the image has for others."""

    path: str
    versions: Set[str]
    symbols: Set[str]

    @classmethod
    def of(cls, path: str, data: bytes) -> Optional['ImageLibrary']:
        """Return the library in the content of a file; None if it is none."""
        try:
            read = Elf(data)
            return cls(path, read.offered(), read.symbols()[0])
        except DAMAGE:
            return None


class Decision(NamedTuple):
    """What an image gets: the reason for each library by name, and the image's own libraries that serve."""

    bound: Dict[str, str]
    served: Dict[str, str]
    problems: List[str]


class HostLibraries(Closure):
    """The closure of the roots on this machine; plugins stay in their directory."""

    OF_IMAGE = GLIBC

    def __init__(self, libraries: Sequence[str], plugins: Sequence[str] = (), search_path: Sequence[str] = ()) -> None:
        """Find what the value of 'host_libraries' names, and what that needs."""
        super().__init__(Loader(search_path))
        # names, and whether they may replace a library of the image that has more
        self.roots: Dict[str, bool] = {}
        for text, is_optional in marked(libraries):
            self.add_root(text, is_optional)
        for path in list(self.libraries.values()):
            found, missing = self.loader.needs(os.path.realpath(path), self.libraries, GLIBC)
            self.libraries.update(found)
            self.problems += missing
        for pattern, is_optional in marked(plugins):
            self.add_plugins(pattern, is_optional)

    def add_root(self, text: str, is_optional: bool) -> None:
        """Add a library; of those that match a pattern and have the same name, the newest."""
        match = ROOT.match(text)
        path, name = (match.group('path'), match.group('name')) if match else (text, None)
        paths = self.loader.matching(path)
        for one in paths:
            read = self.loader.read(one)
            for key in filter(None, (name, (read.soname if read else None) or os.path.basename(one))):
                self.libraries[key] = one
                self.roots[key] = bool(name or (match and match.group('replace')))
        if not paths and not is_optional:
            self.problems.append("%s is not on this machine: write its full path, or its directory into '%s', or '?' "
                                 "before it if it may be missing" % (path, SEARCH_PATH))

    def needed_names(self) -> List[str]:
        """Return the names of all libraries about which the image is asked."""
        names = {LIBC, *self.libraries}
        for path in [*self.libraries.values(), *self.plugins]:
            read = self.loader.read(path)
            names.update(read.needed if read else ())
        return sorted(filter(is_file_name, names))

    def closure(self) -> Decision:
        """Return all of it, as an image would get it that has none of these libraries, and a new glibc."""
        bound = dict.fromkeys(self.roots, NAMED)
        for path, user in self.users(self.libraries):
            for name in set(user.needed) & set(self.libraries):
                bound.setdefault(name, "%s needs it" % os.path.basename(path))
        return Decision(bound, {}, [])

    # --- for an image

    def decide(self, image: Mapping[str, ImageLibrary]) -> Decision:
        """Return what an image gets, given its libraries by name."""
        bound = dict.fromkeys(self.roots, NAMED)
        bound.update({name: "the image lacks it" for name in self.libraries
                      if name not in self.roots and name not in image})
        # what is bound may need more than the image has of what wasn't bound, which needs more, and so on
        before = -1
        while before != len(bound):
            before = len(bound)
            for name in sorted(set(self.libraries) - set(bound)):
                lacking = self.lacking(name, bound, image[name])
                if lacking:
                    bound[name] = "the image's is older: " + lacking
        reached = self.reached(bound)
        bound = {name: why for name, why in bound.items() if name in reached}
        served = {name: image[name].path for name in sorted(reached - set(bound))
                  if name in image and not GLIBC.match(name)}
        problems = [*self.glibc_problems(bound, image), *self.replacement_problems(bound, image)]
        return Decision(bound, served, problems if self.libraries else [])

    def users(self, bound: Iterable[str]) -> Iterator[Tuple[str, Elf]]:
        """Yield the files that the container gets, with what the loader reads of them."""
        for path in sorted({*self.plugins, *(self.libraries[name] for name in bound)}):
            read = self.loader.read(path)
            if read:
                yield path, read

    def lacking(self, name: str, bound: Mapping[str, str], image: ImageLibrary) -> str:
        """Return what a library of the image lacks that the bound files need of it; '' if nothing."""
        host = self.loader.read(self.libraries[name])
        for path, user in self.users(bound):
            if name not in user.needed or not host:
                continue
            lacking = user.required().get(name, set()) - image.versions
            if not host.offered():
                # without versions, symbols decide
                lacking = user.symbols()[1] & host.symbols()[0] - image.symbols
            if lacking:
                return "%s needs %s" % (os.path.basename(path), newest(lacking))
        return ''

    def reached(self, bound: Mapping[str, str]) -> Set[str]:
        """Return the names that roots and plugins need, if one goes only through what is bound."""
        found, waiting = set(self.roots), [*self.plugins, *(self.libraries[name] for name in self.roots)]
        while waiting:
            read = self.loader.read(waiting.pop())
            for name in read.needed if read else ():
                if name not in found:
                    found.add(name)
                    waiting += [self.libraries[name]] if name in bound else []
        return found

    def glibc_problems(self, bound: Mapping[str, str], image: Mapping[str, ImageLibrary]) -> List[str]:
        """Return what is wrong if the image has no glibc, or one that is older than the libraries need."""
        if LIBC not in image:
            return ["the image has no glibc, which libraries of the host need; programs of the host work in it"]
        too_new: Dict[str, str] = {}
        for path, user in self.users(bound):
            for name, versions in user.required().items():
                lacking = versions - image[LIBC].versions - (image[name].versions if name in image else set())
                if lacking and GLIBC.match(name):
                    too_new[path] = newest([newest(lacking), too_new.get(path, '')])
        if not too_new:
            return []
        path = max(too_new, key=lambda one: numbers(too_new[one]))
        has = newest(one for one in image[LIBC].versions if re.match(r'GLIBC_\d', one))
        others = " (so do %d others)" % (len(too_new) - 1) if len(too_new) > 1 else ''
        return ["%s needs %s%s, and the image has up to %s: use a newer image, or an older build of the library" % (
            path, too_new[path], others, escape(has))]

    def replacement_problems(self, bound: Mapping[str, str], image: Mapping[str, ImageLibrary]) -> List[str]:
        """Return which libraries would replace one of the image that has more, which its programs may need."""
        found = []
        for name in sorted(set(bound) & set(image)):
            host = self.loader.read(self.libraries[name])
            if not host or self.roots.get(name):
                continue
            less = image[name].versions - host.offered()
            if not image[name].versions:
                less = {one for one in image[name].symbols - host.symbols()[0] if not one.startswith('_')}
            if less:
                found.append("%s would replace %s of the image, which has more (%d, such as %s): its programs may need "
                             "that. %s" % (self.libraries[name], escape(image[name].path), len(less),
                                           escape(newest(less)), "Write 'replace' after it if that is meant"
                                           if name in self.roots else "It is bound because " + bound[name]))
        return found

    def record(self, decision: Decision) -> HostLibrariesRecord:
        """Return what is recorded, with the binds."""
        paths = {name: self.libraries[name] for name in decision.bound}
        pairs = [(path, '%s/%s' % (FOLDER, name)) for name, path in sorted(paths.items())]
        pairs += [(folder, folder) for folder in sorted(set(map(os.path.dirname, self.plugins)))]
        return HostLibrariesRecord(
            libraries=paths, why=decision.bound, served=decision.served, left_out=self.left_out,
            binds=['%s:%s:ro' % tuple(map(escape_bind, pair)) for pair in pairs],
            builds=self.loader.builds(paths.values()))


def library_problem(text: str) -> Optional[str]:
    """Return why a text can't be a library of the host."""
    match = ROOT.match(text)
    path, name = match.group('path', 'name') if match else ('', None)
    is_valid = is_file_name(name or 'x') and (path.startswith('/') or is_file_name(path))
    return None if is_valid else "should be a name or a full path, then perhaps 'as NAME' and 'replace'"


CHECKS = {LIBRARIES: library_problem, PLUGINS: path_problem, SEARCH_PATH: path_problem}


def newest(versions: Iterable[str]) -> str:
    """Return the newest of some versions, or the last of some symbols."""
    return max(versions, key=lambda one: (numbers(one), one), default='')
