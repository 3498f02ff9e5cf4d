##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Write files that everybody can read, whatever the umask.
"""
import os
from contextlib import contextmanager, suppress
from typing import Callable, Iterator

from easybuild.tools.config import build_option
from easybuild.tools.filetools import adjust_permissions, copy_file, write_file


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
