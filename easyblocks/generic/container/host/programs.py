##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Programs of the host in the container, with the loader and the libraries of the host (K-03).

Each is started by a wrapper (files/host-programs/host-program), which names loader and libraries, so that it works in
any image: with another glibc, or with none. Doesn't import EasyBuild, so that commands can use it too.
"""
import os
import re
import shutil
from glob import glob
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .elf import Elf, NotElfError, cached_libraries
from ..record.lockfile import HostProgramsRecord
from ..values import bind_problem, bind_source, escape_bind, parse_binds
from ..written import is_command

# In the container: the programs with their loader and libraries, and the wrappers, which are at the end of PATH.
FOLDER = '/host-programs'
WRAPPERS = FOLDER + '/commands'

# The wrappers in an installation. They are not in its bin/ or runscripts/, which are on PATH outside, too.
INSTALLED_WRAPPERS = os.path.join('share', 'ebsif', 'host-programs')
WRAPPER = os.path.join('host-programs', 'host-program')

# What the value has: names or full paths of programs; directories, or patterns, of what they open by path; binds of
# what else they read. A '?' before an item allows that a machine doesn't have it.
KEYS = PROGRAMS, PLUGINS, FILES = 'programs', 'plugins', 'files'

SLURM_USER = re.compile(r'^\s*SlurmUser\s*=\s*([^\s(#]+)', re.MULTILINE | re.IGNORECASE)

# What glibc opens by name, without that a program says so: lookups of names, and the end of threads.
OPENED_BY_GLIBC = ('libgcc_s.so.1', 'libnss_dns.so.2', 'libnss_files.so.2')

# Where the loader looks last, on the distributions that we know.
DEFAULT_FOLDERS = ('/lib64', '/usr/lib64', '/lib/x86_64-linux-gnu', '/usr/lib/x86_64-linux-gnu',
                   '/lib/aarch64-linux-gnu', '/usr/lib/aarch64-linux-gnu', '/lib', '/usr/lib')


class Loader:
    """The loader of this machine: finds libraries as ld.so(8) says, without LD_LIBRARY_PATH of the caller."""

    def __init__(self, cache: Optional[Dict[str, List[str]]] = None,
                 default_folders: Sequence[str] = DEFAULT_FOLDERS) -> None:
        """Use the cache of this machine, or another one."""
        self.cache = cached_libraries() if cache is None else cache
        self.default_folders = default_folders
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
        folders += expanded(last.runpath, above[-1])
        paths = [os.path.join(folder, name) for folder in folders] + self.cache.get(name, []) + \
            [os.path.join(folder, name) for folder in self.default_folders]
        for path in paths:
            found = self.read(path)
            if found and found.machine == last.machine:
                return path
        return None


def expanded(folders: Sequence[str], path: str) -> List[str]:
    """Return the search path of a file, with the directory of the file for $ORIGIN, and both meanings of $LIB."""
    found = []
    for folder in folders:
        folder = re.sub(r'\$(ORIGIN|\{ORIGIN\})', lambda _: os.path.dirname(os.path.realpath(path)), folder)
        for lib in ('lib64', 'lib') if re.search(r'\$(LIB\b|\{LIB\})', folder) else ('',):
            found.append(os.path.normpath(re.sub(r'\$(LIB\b|\{LIB\})', lib, folder)))
    return found


class HostPrograms:
    """What programs of the host need in the container; `problems` says what is missing, one sentence for each."""

    def __init__(self, loader: Loader, programs: Sequence[str], plugins: Sequence[str] = (),
                 files: Sequence[str] = ()) -> None:
        """Find what the value of 'host_programs' names (KEYS), and what that needs."""
        self.loader = loader
        # paths by name
        self.programs: Dict[str, str] = {}
        self.libraries: Dict[str, str] = {}
        self.plugin_folders: List[str] = []
        # binds
        self.files: List[str] = []
        self.interpreter = ''
        self.problems: List[str] = []
        # plugins that lack something on the host, too, where nobody misses them
        self.left_out: List[str] = []
        for name, is_optional in marked(programs):
            self.add_program(name, is_optional)
        for pattern, is_optional in marked(plugins):
            self.add_plugins(pattern, is_optional)
        for bind, is_optional in marked(files):
            self.add_file(bind, is_optional)
        if self.programs:
            self.add_libraries_of_glibc()

    def add_program(self, name: str, is_optional: bool) -> None:
        """Add a program, and what it needs."""
        path = shutil.which(name)
        read = self.loader.read(os.path.realpath(path)) if path else None
        if not path:
            if not is_optional:
                self.problems.append("%s is not on this machine, or not on PATH: write its full path, or '?' before it "
                                     "if it may be missing" % name)
        elif not read or not read.interpreter:
            self.problems.append("%s is not a program that a loader starts, but a script, or linked statically: bind "
                                 "it, with what it needs, in 'binds'" % path)
        elif self.interpreter not in ('', read.interpreter):
            self.problems.append("%s has another loader (%s) than the programs before it (%s): leave it out" % (
                path, read.interpreter, self.interpreter))
        else:
            self.interpreter = read.interpreter
            self.programs[os.path.basename(path)] = path
            libraries, missing = self.needs(os.path.realpath(path))
            self.libraries.update(libraries)
            self.problems += missing

    def add_plugins(self, pattern: str, is_optional: bool) -> None:
        """Add directories with plugins, and what these need."""
        paths = sorted(glob(os.path.join(pattern, '*.so*') if os.path.isdir(pattern) else pattern))
        plugins = [path for path in paths if self.loader.read(path)]
        if not plugins and not is_optional:
            self.problems.append("there are no plugins in %s: correct '%s', or write '?' before it if they may be "
                                 "missing" % (pattern, PLUGINS))
        for path in plugins:
            libraries, missing = self.needs(path)
            if missing:
                self.left_out += missing
            else:
                self.libraries.update(libraries)
        self.plugin_folders += sorted({os.path.dirname(path) for path in plugins} - set(self.plugin_folders))

    def add_file(self, bind: str, is_optional: bool) -> None:
        """Add the bind of a file or directory that the programs read."""
        source = bind_source(bind)
        if os.path.exists(source) or is_optional:
            self.files.append(bind)
        else:
            self.problems.append("%s doesn't exist on this machine: correct '%s', or write '?' before it if it may be "
                                 "missing" % (source, FILES))

    def add_libraries_of_glibc(self) -> None:
        """Add libraries that no program names; the image's would be of another glibc."""
        program = os.path.realpath(next(iter(self.programs.values())))
        for name in OPENED_BY_GLIBC:
            path = self.libraries.get(name) or self.loader.find(name, [program])
            if path:
                self.libraries.update(self.needs(path)[0], **{name: path})

    def needs(self, root: str) -> Tuple[Dict[str, str], List[str]]:
        """
        Return the libraries that a file needs and that aren't known yet, and what is missing.

        In the order of the loader, breadth first: the first library of a name serves all.
        """
        found: Dict[str, str] = {}
        missing, waiting, seen = [], [[root]], set()
        while waiting:
            above = waiting.pop(0)
            read = self.loader.read(above[-1])
            for name in read.needed if read else ():
                if name in seen:
                    continue
                seen.add(name)
                path = self.libraries.get(name) or self.loader.find(name, above)
                if path:
                    found[name] = path
                    waiting.append(above + [path])
                else:
                    missing.append("%s needs %s, which this machine doesn't have (%s)" % (
                        os.path.basename(above[-1]), name, ' -> '.join(map(os.path.basename, above))))
        return {name: path for name, path in found.items() if name not in self.libraries}, missing

    def slurm_user(self) -> Tuple[str, str]:
        """Return the account in SlurmUser, and the file that names it; empty if the programs read no slurm.conf."""
        sources = [os.environ.get('SLURM_CONF', ''), *map(bind_source, self.files)]
        for path in [os.path.join(source, *more) for source in sources
                     for more in ((), ('slurm.conf',), ('conf', 'slurm.conf'))]:
            if os.path.basename(path) == 'slurm.conf' and os.path.isfile(path) and os.access(path, os.R_OK):
                with open(path, errors='replace') as text:
                    users = SLURM_USER.findall(text.read())
                return (users or ['root'])[-1], path
        return '', ''

    @property
    def binds(self) -> List[str]:
        """The binds of programs, loader, libraries and plugins, which are read-only, and of files."""
        pairs = [(self.interpreter, FOLDER + '/ld.so')] if self.interpreter else []
        pairs += [(path, '%s/bin/%s' % (FOLDER, name)) for name, path in sorted(self.programs.items())]
        pairs += [(path, '%s/lib/%s' % (FOLDER, name)) for name, path in sorted(self.libraries.items())]
        pairs += [(folder, folder) for folder in self.plugin_folders]
        return ['%s:%s:ro' % tuple(map(escape_bind, pair)) for pair in pairs] + self.files

    def record(self) -> HostProgramsRecord:
        """Return what is recorded; the build of a file, or its size, is what an update of the system changes."""
        builds = {}
        for path in [*self.programs.values(), *self.libraries.values()]:
            read = self.loader.read(os.path.realpath(path))
            builds[path] = (read and read.build_id()) or str(os.path.getsize(path))
        return HostProgramsRecord(programs=self.programs, binds=self.binds, builds=builds, left_out=self.left_out)


# --- the value of 'host_programs'

def marked(texts: Iterable[str]) -> List[Tuple[str, bool]]:
    """Return the items of a list, and whether a machine may lack each: those have the mark of optional binds."""
    required, optional = parse_binds(texts)
    return [(item, False) for item in required] + [(item, True) for item in optional]


def program_problem(name: str) -> Optional[str]:
    """Return why a text can't be a program of the host."""
    is_valid = is_command(os.path.basename(name)) and (name.startswith('/') or '/' not in name)
    return None if is_valid else "should be the name or the full path of a program"


def plugins_problem(path: str) -> Optional[str]:
    """Return why a text can't be a directory with plugins, or a pattern of plugins."""
    return None if path.startswith('/') else "should be a full path of a directory, or a pattern of files"


PROBLEMS: Dict[str, Callable[[str], Optional[str]]] = {
    PROGRAMS: program_problem, PLUGINS: plugins_problem, FILES: bind_problem}


def item_problem(key: str, item: str) -> Optional[str]:
    """Return what is wrong with an item of one of the lists, which may have the mark."""
    return next(filter(None, (PROBLEMS[key](one) for one, _ in marked([item]))), None)


def host_programs_problem(value: Mapping[str, Sequence[str]]) -> Optional[str]:
    """Return what is wrong with the value of the parameter 'host_programs', which has the right type."""
    for key, items in value.items():
        if key not in PROBLEMS:
            return ": unknown '%s' (known: %s)" % (key, ', '.join(KEYS))
        for item in items:
            problem = item_problem(key, item)
            if problem:
                return ": '%s' in '%s' %s" % (item, key, problem)
    return ": '%s' is missing, the programs that the container gets" % PROGRAMS \
        if value and not value.get(PROGRAMS) else None


def wrapper_names(value: Mapping[str, Sequence[str]]) -> List[str]:
    """Return the names of the programs, which have a wrapper each, wherever they are."""
    return sorted({os.path.basename(name) for name, _ in marked(value.get(PROGRAMS, ()))})
