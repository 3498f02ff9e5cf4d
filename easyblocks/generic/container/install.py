##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Install scripts, wrappers and the Jupyter kernel, readable for everybody, whatever the umask.
"""
import json
import os
import re
import shutil
from contextlib import contextmanager, suppress
from typing import Callable, Collection, Iterable, Iterator, List, Mapping

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.config import build_option
from easybuild.tools.filetools import adjust_permissions, copy_file, mkdir, write_file

from .schedulers import SCHEDULERS
from .sitevalues import RUNTIMES
from .values import shown_module

# resolve links: --include-easyblocks links easyblocks into a directory of EasyBuild's
FILES = os.path.join(os.path.dirname(os.path.realpath(__file__)), 'files')
# the program that imports packages; it is also in user software, for pip by hand
IMPORTS = 'ebsif_imports.py'
# start of the line in which make-squashfs reports what it has created
PACKED = 'make-squashfs: made '

# Wrappers can't have these names: host scripts with `#!/usr/bin/env bash`, and programs that eb runs, would run in the
# container.
NEEDED_ON_HOST = ('bash', 'env', 'sh') + RUNTIMES
# Directories with commands of the host, which programs of packages don't replace unasked.
HOST_COMMANDS = ('/usr/bin', '/bin', '/usr/sbin', '/sbin')

# What the module adds to JUPYTER_PATH, and the program that starts a kernel, relative to the installation.
JUPYTER = os.path.join('share', 'jupyter')
INTERPRETER = os.path.join('interpreter', 'python')
LOGO = os.path.join(FILES, JUPYTER, 'logo-64x64.png')
# What Jupyter may replace in the program of a kernel (some names, and more if it has other launchers).
SUBSTITUTED = re.compile(r'\{[A-Za-z0-9_]+\}')
# Variables in a kernel: the environment of make-venv, and the directory with user software.
KERNEL_VENV, KERNEL_USER_SOFTWARE = 'EBSIF_VENV', 'EBSIF_USER_SOFTWARE'


# --- programs for images

def read_program(name: str) -> str:
    """
    Return the text of a program to run in the image, for Python's standard input or `sh -c`.

    It is passed as text because the directory of the easyblocks isn't visible in the image.
    """
    folder = 'sh' if name.endswith('.sh') else os.path.join('share', 'ebsif')
    folder = 'site-packages' if name == IMPORTS else folder
    with open(os.path.join(FILES, folder, name)) as text:
        return text.read()


def sh_command(name: str, *arguments: str) -> List[str]:
    """
    Return the command that runs a program in the image with sh, which every image has.

    EasyBuild's log has the command, so comments are left out.
    """
    lines = [line for line in read_program(name).splitlines() if not line.lstrip().startswith('#')]
    return ['sh', '-c', '\n'.join(lines), name] + list(arguments)


def lines_after(word: str, output: str) -> List[str]:
    """
    Return what a program in the image has printed after a word at the beginning of each line.

    Scripts of the image that run when a container starts may print other lines.
    """
    return [line[len(word) + 1:] for line in output.splitlines() if line.startswith(word + ' ')]


def ebsif_version() -> str:
    """Return the version of ebsif."""
    with open(os.path.join(FILES, 'VERSION')) as text:
        return text.read().strip()


# --- permissions

def copy_readable(source: str, target: str, mode: int = 0o644) -> None:
    """Copy a file, and give it a mode; its directory is created if necessary."""
    copy_file(source, target)
    set_mode(target, mode)


def write_readable(path: str, text: str, write: Callable[[str, str], None] = write_file) -> None:
    """Write a text file with EasyBuild's write_file, or a function like it."""
    write(path, text)
    set_mode(path, 0o644)


def set_mode(path: str, mode: int) -> None:
    """Set the mode of a file, unless this is an extended dry run."""
    if not build_option('extended_dry_run'):
        adjust_permissions(path, mode, relative=False)


@contextmanager
def open_to_readers() -> Iterator[None]:
    """
    Let others read what is created meanwhile, whatever the umask, unless EasyBuild's option --umask is set.

    EasyBuild's last step does this with the installation directory only. Module files and the directories that lead to
    both should not be more restricted, and others can't write to them either.
    """
    before = os.umask(0)
    os.umask(before if build_option('umask') else before & ~0o055 | 0o002)
    try:
        yield
    finally:
        os.umask(before)


@open_to_readers()
def write_whole(path: str, text: str) -> None:
    """
    Write a file under a temporary name first: readers get the earlier or the new one.

    The text may have bytes of another encoding, see `modulerc.read`.
    """
    part = os.path.join(os.path.dirname(path), '.%s.unfinished' % os.path.basename(path))
    # left by a killed process, or a link of another member of the group, which write_file of EasyBuild would follow
    with suppress(FileNotFoundError):
        os.remove(part)
    try:
        with open(part, 'x', encoding='utf-8', errors='surrogateescape') as file:
            file.write(text)
        os.rename(part, path)
    finally:
        with suppress(FileNotFoundError):
            os.remove(part)


# --- scripts and wrappers

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


# --- the Jupyter kernel: share/jupyter/kernels/NAME in the installation, for those who know that directory

def kernel_name(module: str) -> str:
    """Return the name of the kernel of a module; Jupyter allows no slash, and finds only lower case."""
    return re.sub(r'[^a-z0-9._-]+', '-', shown_module(module).lower()).strip('-.')


def kernel_title(module: str) -> str:
    """Return the name of the kernel in Jupyter's menus."""
    name, _, version = shown_module(module).rpartition('/')
    number, _, suffix = version.partition('-')
    return '%s %s%s' % (name, number, ' (%s)' % suffix if suffix else '')


def kernel_spec(python: str, title: str, module: str, venv: str = '', user_software: str = '', newest: str = '') -> str:
    """
    Return the text of kernel.json: ipykernel, started by the interpreter of an installation.

    ``title`` is the name in menus, ``module`` the one by which `ebsif kernel` knows its kernels. ``venv`` and
    ``user_software`` are paths without '$', which Jupyter may replace. If ``python`` starts the newest extension of a
    name, ``newest`` is the path of these installations without the date. In the directory of an installation,
    '{resource_dir}' in ``python`` stands for the directory of kernel.json, so that a copy works. Jupyter knows it since
    jupyter_client 5.2 (2018), VS Code since 2025.2.
    """
    # also empty: the kernel shouldn't get the environment in which Jupyter itself runs
    variables = {KERNEL_VENV: venv}
    if user_software:
        variables[KERNEL_USER_SOFTWARE] = user_software
    about = {'module': module, 'newest': newest} if newest else {'module': module}
    return json.dumps({'argv': [python, '-m', 'ipykernel_launcher', '-f', '{connection_file}'], 'env': variables,
                       'display_name': title, 'language': 'python', 'interrupt_mode': 'signal',
                       'metadata': {'debugger': True, 'ebsif': about}}, indent=2) + '\n'


def install_kernel(installdir: str, module: str) -> None:
    """Install the kernel of a module (J-01)."""
    folder = os.path.join(installdir, JUPYTER, 'kernels', kernel_name(module))
    python = os.path.join('{resource_dir}', os.path.relpath(os.path.join(installdir, INTERPRETER), folder))
    write_readable(os.path.join(folder, 'kernel.json'), kernel_spec(python, kernel_title(module), module))
    copy_readable(LOGO, os.path.join(folder, os.path.basename(LOGO)))
