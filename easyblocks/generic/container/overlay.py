##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Write overlays: SquashFS files that the runtime mounts over an image, with other files, or without some of its files.

In an overlay, a character device 0,0 hides the file of the same name (a whiteout, see overlayfs in the documentation
of Linux). Only root may create one, but mksquashfs can write it for everybody, as a pseudo file.
"""
import os
import re
from typing import Iterable, List, NamedTuple, Sequence, Tuple

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import which

from .framework import EasyBuildExit, RunShellCmdResult
from .runtime import run_program
from .usersoftware import FILE_TIME

# The first versions of squashfs-tools with what is needed, and with times of pseudo files.
OLDEST, WITH_TIMES = (4, 4), (4, 5)


class PseudoFile(NamedTuple):
    """A file that only the overlay has; `kind` and `values` are those of mksquashfs."""

    path: str
    kind: str
    values: str


def hidden(path: str) -> PseudoFile:
    """Return what hides a file of the image."""
    return PseudoFile(path, 'c', '000 0 0 0 0')


def folder(path: str, mode: str) -> PseudoFile:
    """Return a directory, which should have the octal mode that it has in the image."""
    return PseudoFile(path, 'd', '%s 0 0' % mode)


def link(path: str, target: str) -> PseudoFile:
    """Return a symbolic link."""
    return PseudoFile(path, 's', '777 0 0 %s' % target)


def check_squashfs_tools(names: Sequence[str], reason: str = '') -> None:
    """Refuse to go on if programs of squashfs-tools aren't on PATH; `reason` says what needs them, if not all does."""
    missing = [name for name in names if not which(name, log_ok=False, on_error='ignore')]
    if missing:
        raise tools_error("%s not found on PATH%s" % (' and '.join(missing), reason))


def check_mksquashfs(parameter: str) -> None:
    """Refuse an easyconfig parameter that needs an overlay if there is no mksquashfs that can write it."""
    check_squashfs_tools(['mksquashfs'], ", but '%s' needs it" % parameter)
    if version() < OLDEST:
        raise tools_error("mksquashfs is too old for '%s', which needs 4.4 or newer" % parameter)


def tools_error(problem: str) -> EasyBuildError:
    """Return the error that asks for squashfs-tools."""
    return EasyBuildError("%s: install the package squashfs-tools, or run eb on a node that has it.", problem,
                          exit_code=EasyBuildExit.MISSING_SYSTEM_DEPENDENCY)


def version() -> Tuple[int, ...]:
    """Return the version of squashfs-tools; the newest that matters if mksquashfs doesn't tell."""
    # older ones fail after printing it
    output = run_program(['mksquashfs', '-version'], fail_on_error=False).output
    found = re.search(r'^mksquashfs version (\d+)\.(\d+)', output, re.MULTILINE)
    return tuple(map(int, found.groups())) if found else WITH_TIMES


def write(source: str, target: str, files: Iterable[PseudoFile], options: List[str],
          fail_on_error: bool = True) -> RunShellCmdResult:
    """
    Write an overlay with the files of a directory and more, of root; return the result of mksquashfs.

    The same files make the same bytes, with mksquashfs 4.5 or newer.
    """
    for path, _, _ in os.walk(source):
        os.utime(path, (FILE_TIME, FILE_TIME))
    command = ['mksquashfs', source, target, '-noappend', '-all-root', '-no-xattrs', '-no-progress',
               '-mkfs-time', str(FILE_TIME)] + options
    has_times = version() >= WITH_TIMES
    for file in files:
        kind = '%s %d' % (file.kind.upper(), FILE_TIME) if has_times else file.kind
        command += ['-p', '%s %s %s' % (quote(file.path), kind, file.values)]
    return run_program(command, fail_on_error=fail_on_error)


def quote(path: str) -> str:
    """Return a path quoted for mksquashfs."""
    return '"%s"' % path.strip('/').replace('\\', '\\\\').replace('"', '\\"')
