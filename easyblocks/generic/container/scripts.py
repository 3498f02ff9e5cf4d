##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Install scripts and commands of a module, readable for everybody, whatever the umask.
"""
import os
import shutil
from typing import Collection, Iterable, List, Mapping

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import mkdir

from .imageprograms import FILES
from .permissions import copy_readable
from .schedulers import SCHEDULERS
from .sitevalues import RUNTIMES

# start of the line in which make-squashfs reports what it has created
PACKED = 'make-squashfs: made '

# Wrappers can't have these names: host scripts with `#!/usr/bin/env bash`, and programs that eb runs, would run in the
# container.
NEEDED_ON_HOST = ('bash', 'env', 'sh') + RUNTIMES
# Directories with commands of the host, which programs of packages don't replace unasked.
HOST_COMMANDS = ('/usr/bin', '/bin', '/usr/sbin', '/sbin')


def install_scripts(scripts: Mapping[str, str], installdir: str) -> None:
    """Install scripts: their paths in the installation, each with its source file."""
    # every module binds it, even if it is empty
    mkdir(os.path.join(installdir, 'runscripts'), parents=True)
    for name, script in scripts.items():
        copy_readable(os.path.join(FILES, script), os.path.join(installdir, name), 0o755)


def check_files(installdir: str, needed: Iterable[str]) -> None:
    """Raise EasyBuildError if an installation, unless there is none, lacks a file that its module needs."""
    missing = [name for name in needed if not os.path.exists(os.path.join(installdir, name))]
    if missing and os.path.isdir(os.path.join(installdir, 'runscripts')):
        raise EasyBuildError("The installation %s lacks %s: it is damaged, or an earlier version of ebsif has made it. "
                             "Install it again, as a whole: `eb --rebuild`", installdir, ', '.join(missing))


def wrapped_programs(names: Iterable[str], scripts: Collection[str]) -> List[str]:
    """
    Return the programs of the container that wrappers with these names start.

    The run scripts of the installation (``scripts``: paths in it) are not on PATH in the container yet. Raises
    EasyBuildError if the module has a command of its own by the name of a wrapper.
    """
    for name in names:
        if os.path.join('bin', name) in scripts:
            raise EasyBuildError("Easyconfig parameter 'wrappers': '%s' is a command of the module itself", name)
    return [name for name in names if os.path.join('runscripts', name) not in scripts]


def commands_of_host(names: Iterable[str]) -> List[str]:
    """
    Return those of the names that are commands of the host, of a scheduler, or of ebsif and EasyBuild.

    A package may have a program of any name. As a command of the module, it would run instead of ssh, git or sbatch.
    """
    submits = [shutil.which(one.submit[0]) for one in SCHEDULERS.values()]
    folders = list(HOST_COMMANDS) + [os.path.dirname(path) for path in submits if path]
    own = ['eb', 'ebsif'] + [command for one in SCHEDULERS.values() for command in one.commands()]
    return [name for name in names
            if name in own or any(os.path.exists(os.path.join(folder, name)) for folder in folders)]


def install_wrappers(names: Iterable[str], installdir: str) -> None:
    """Install commands that run the program of the same name in the container."""
    for name in names:
        copy_readable(os.path.join(FILES, 'share', 'ebsif', 'wrapper'), os.path.join(installdir, 'bin', name), 0o755)
