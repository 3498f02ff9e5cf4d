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
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from .loader import PLUGINS, Closure, Loader, marked, path_problem
from ..record.lockfile import HostProgramsRecord
from ..values import bind_problem, bind_source, escape_bind
from ..written import is_command

# In the container: the programs with their loader and libraries, and the wrappers, which are at the end of PATH.
FOLDER = '/host-programs'
WRAPPERS = FOLDER + '/commands'

# The wrappers in an installation. They are not in its bin/ or runscripts/, which are on PATH outside, too.
INSTALLED_WRAPPERS = os.path.join('share', 'ebsif', 'host-programs')
WRAPPER = os.path.join('host-programs', 'host-program')

# What the value has: names or full paths of programs; directories, or patterns, of what they open by path; binds of
# what else they read. A '?' before an item allows that a machine doesn't have it.
PROGRAMS, FILES = 'programs', 'files'

SLURM_USER = re.compile(r'^\s*SlurmUser\s*=\s*([^\s(#]+)', re.MULTILINE | re.IGNORECASE)

# What glibc opens by name, without that a program says so: lookups of names, and the end of threads.
OPENED_BY_GLIBC = ('libgcc_s.so.1', 'libnss_dns.so.2', 'libnss_files.so.2')


class HostPrograms(Closure):
    """What programs of the host need in the container."""

    def __init__(self, loader: Loader, programs: Sequence[str], plugins: Sequence[str] = (),
                 files: Sequence[str] = ()) -> None:
        """Find what the value of 'host_programs' names, and what that needs."""
        super().__init__(loader)
        # paths by name
        self.programs: Dict[str, str] = {}
        self.plugin_folders: List[str] = []
        # binds
        self.files: List[str] = []
        self.interpreter = ''
        for name, is_optional in marked(programs):
            self.add_program(name, is_optional)
        for pattern, is_optional in marked(plugins):
            folders = {os.path.dirname(path) for path in self.add_plugins(pattern, is_optional)}
            self.plugin_folders += sorted(folders - set(self.plugin_folders))
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
            libraries, missing = self.loader.needs(os.path.realpath(path), self.libraries)
            self.libraries.update(libraries)
            self.problems += missing

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
                self.libraries.update(self.loader.needs(path, self.libraries)[0], **{name: path})

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
        builds = self.loader.builds([*self.programs.values(), *self.libraries.values()])
        return HostProgramsRecord(programs=self.programs, binds=self.binds, builds=builds, left_out=self.left_out)


# --- the value of 'host_programs'

def program_problem(name: str) -> Optional[str]:
    """Return why a text can't be a program of the host."""
    is_valid = is_command(os.path.basename(name)) and (name.startswith('/') or '/' not in name)
    return None if is_valid else "should be the name or the full path of a program"


CHECKS = {PROGRAMS: program_problem, PLUGINS: path_problem, FILES: bind_problem}


def wrapper_names(value: Mapping[str, Sequence[str]]) -> List[str]:
    """Return the names of the programs, which have a wrapper each, wherever they are."""
    return sorted({os.path.basename(name) for name, _ in marked(value.get(PROGRAMS, ()))})
