##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Files and directories that everybody can read, whatever the umask. An extended dry run only shows them.
"""
import os
from contextlib import contextmanager

from easybuild.tools.config import build_option
from easybuild.tools.filetools import adjust_permissions, copy_file, remove_file, write_file


def copy_readable(source, target, mode=0o644):
    """Copy a file, and give it a mode; its directory is created if necessary."""
    copy_file(source, target)
    set_mode(target, mode)


def write_readable(path, text, write=write_file):
    """Write a text file with EasyBuild's write_file, or a function like it."""
    write(path, text)
    set_mode(path, 0o644)


def set_mode(path, mode):
    """Set the mode of a file."""
    if not build_option('extended_dry_run'):
        adjust_permissions(path, mode, relative=False)


@contextmanager
def open_to_readers():
    """
    Let others read what is created meanwhile, whatever the umask, unless EasyBuild's option --umask is set.

    EasyBuild's last step does this with the installation directory only. Module files and the directories that lead to
    both should not be more restricted.
    """
    before = os.umask(0)
    os.umask(before if build_option('umask') else before & ~0o055)
    try:
        yield
    finally:
        os.umask(before)


@open_to_readers()
def write_whole(path, *args, **kwargs):
    """Write a file with EasyBuild's write_file under a temporary name first: readers get the earlier or the new one."""
    part = os.path.join(os.path.dirname(path), '.%s.unfinished' % os.path.basename(path))
    try:
        write_file(part, *args, **kwargs)
        os.rename(part, path)
    finally:
        remove_file(part)
