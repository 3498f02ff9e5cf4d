##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The door for what others wrote: an image, a wheel, an artifact, a lock, a directory that others may change.

Here is what a name, a version, a path and a file of theirs may be, before it becomes code of a module, a path, a
command, a file, or text on a terminal. What doesn't fit is refused (UnfitError), or left out and named.

Doesn't import EasyBuild, so that commands can use it too: importing EasyBuild takes longer than running them.
"""
import os
import re
import stat
from contextlib import suppress
from typing import BinaryIO, Optional

from .values import format_size


class UnfitError(ValueError):
    """Something that others wrote can't be used; the message says what it is, and what to do."""


class ReplacedError(UnfitError):
    """A program in the container has put something else in the place of a file that it and eb use."""

    def __init__(self, path: str) -> None:
        """Say what, and what to do."""
        super().__init__("A program in the container has put something else in the place of the file %s, which eb "
                         "uses. Don't use this image, or the package that was being installed." % escape(path))


# --- names and versions

# Of packages for pip: names (PEP 508) and versions (PEP 440, appendix B). Linux distributions give some of their Python
# packages other versions, like '2.22.1ubuntu1'.
PIP_NAME = re.compile(r'[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?\Z', re.IGNORECASE | re.ASCII)
PIP_VERSION = re.compile(r"""
    v?(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*                              # epoch, release
    (?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview)[-_.]?[0-9]*)?     # pre-release
    (?:-[0-9]+|[-_.]?(?:post|rev|r)[-_.]?[0-9]*)?                  # post-release
    (?:[-_.]?dev[-_.]?[0-9]*)?                                     # development release
    (?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?\Z                          # local version
    """, re.IGNORECASE | re.VERBOSE | re.ASCII)

# Of packages of any kind (Python, a Linux distribution, Conda). No character has a meaning in Lua, Tcl or a shell.
PACKAGE_NAME = re.compile(r'[A-Za-z0-9_.][A-Za-z0-9_.+:@-]*\Z')
PACKAGE_VERSION = re.compile(r'[A-Za-z0-9_][A-Za-z0-9_.+:!^~-]*\Z')

# Of programs that may become commands.
COMMAND = re.compile(r'[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z')

# Of modules of the host. A path instead would be a program that the modules tool runs.
MODULE = re.compile(r'[A-Za-z0-9_][A-Za-z0-9_.+:@~-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+:@~-]*)*\Z')


def is_for_pip(name: str, version: Optional[str]) -> bool:
    """Return whether pip can parse a package and its version."""
    return bool(PIP_NAME.match(name) and PIP_VERSION.match(version or ''))


def is_package(name: object, version: object) -> bool:
    """Return whether these may be name and version of a package; EasyBuild writes them into module files unquoted."""
    return isinstance(name, str) and isinstance(version, str) and bool(
        PACKAGE_NAME.match(name) and PACKAGE_VERSION.match(version))


def is_module(name: str) -> bool:
    """Return whether a text may be the name of a module of the host that is to be loaded."""
    return bool(MODULE.match(name))


def is_command(name: str) -> bool:
    """Return whether a program of this name may become a command."""
    return bool(COMMAND.match(name))


def is_file_name(name: str) -> bool:
    """Return whether a text is the name of a file in a directory, not a path."""
    return name.isprintable() and '/' not in name and name not in ('', '.', '..')


def path_problem(path: str) -> Optional[str]:
    """Return why a text can't be the full path of a file in the container, or None if it can."""
    if not path.startswith('/') or os.path.normpath(path) != path or path == '/':
        return "it should be a full path, without '..' and without a trailing slash"
    if re.search(r'[\x00-\x1f\x7f]', path):
        return "it contains a control character"
    return None


# --- text to be printed

def escape(text: object) -> str:
    r"""Return untrusted text that is safe to print: one line, control characters escaped, as in \x1b."""
    return ''.join(one if one.isprintable() else one.encode('unicode_escape').decode() for one in str(text))


def printable(text: object) -> str:
    """Return a text, in which foreign ones may be, without control characters besides those for lines and columns."""
    return ''.join(one if one in '\n\t' else escape(one) for one in str(text))


# --- files

# Largest file, and longest output of a program, that is read: lists of packages have a few MB.
MOST_WRITTEN = 256 * 10 ** 6
# the same for `ulimit -f` of sh
BLOCKS = str(MOST_WRITTEN // 512)
# bytes of an easyconfig or a script
MOST_TEXT = 10 ** 6
ANY_SIZE = float('inf')


def open_regular(path: str, most: float = MOST_WRITTEN, links: bool = False) -> BinaryIO:
    """
    Open a file that others may have put there; UnfitError if it isn't a regular file of at most ``most`` bytes.

    What counts is what was opened: the name may get another file at any time. A pipe or a device has no end, and
    opening it doesn't wait. ``links``: whether a link is followed. OSError: it can't be opened, or it is a link.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    number = os.open(path, flags if links else flags | os.O_NOFOLLOW)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise UnfitError("%s is not a regular file" % escape(path))
        if status.st_size > most:
            raise UnfitError("%s is larger than %s" % (escape(path), format_size(most)))
    except UnfitError:
        os.close(number)
        raise
    return os.fdopen(number, 'rb')


def read_regular(path: str, most: int = MOST_WRITTEN, links: bool = False) -> bytes:
    """Return the content of a file that others may have put there; see `open_regular`."""
    with open_regular(path, most, links) as file:
        # it may grow meanwhile
        return file.read(most)


def is_private(status: os.stat_result) -> bool:
    """Return whether this is a directory of this account that nobody else can enter."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def open_written(path: str, folder: str, most: float = MOST_WRITTEN) -> BinaryIO:
    """
    Open a file that programs in a container write to a folder that they see, for the host to read it.

    One of them may still run. A link out of the folder would lead to files of the installing account (P-03): UnfitError
    refuses it, anything but a regular file, and files of more than ``most`` bytes. OSError: there is none.
    """
    try:
        file = open_regular(path, most, links=True)
    except UnfitError:
        raise ReplacedError(path)
    if not is_in(folder, file.fileno()):
        file.close()
        raise ReplacedError(path)
    return file


def read_written(path: str, folder: str) -> str:
    """Return the text of a file that programs in a container write to a folder; '' if there is none."""
    if not os.path.exists(path):
        return ''
    with open_written(path, folder) as file:
        # programs may print any bytes, and write more of them meanwhile
        return file.read(MOST_WRITTEN).decode('utf-8', 'replace')


def write_seen(path: str, text: str, folder: str) -> None:
    """Write a file for programs in a container to a folder in which they may have put links, which aren't followed."""
    place = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        if not is_in(folder, place):
            raise ReplacedError(path)
        with suppress(FileNotFoundError):
            os.remove(os.path.basename(path), dir_fd=place)
        number = os.open(os.path.basename(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=place)
        with open(number, 'w', encoding='utf-8') as file:
            file.write(text)
    finally:
        os.close(place)


def is_in(folder: str, number: int) -> bool:
    """Return whether an open file or directory is in a folder."""
    return os.readlink('/proc/self/fd/%d' % number).startswith(os.path.realpath(folder) + os.sep)
