##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Access to the image of an installation, while EasyBuild sets the permissions of everything in it.
"""
import os
import stat
from contextlib import contextmanager

from easybuild.easyblocks.generic.container.sharedimage import InstalledImage
from easybuild.framework import easyblock
from easybuild.tools.filetools import adjust_permissions


@contextmanager
def kept_access(image, is_link, group_may_read):
    """
    Context manager in which EasyBuild may set permissions, but extends no access to a restricted image.

    Parameters
    ----------
    image : str
        Path of the copy or link in the installation, which may be missing.
    is_link : bool
        Whether it is a hard link, which isn't changed at all.
    group_may_read : bool
        Whether the group gets the access that EasyBuild gives it.
    """
    if is_link:
        easyblock.adjust_permissions = recursively_except(image, adjust_permissions)
        try:
            yield
        finally:
            easyblock.adjust_permissions = adjust_permissions
        return
    before = stat.S_IMODE(os.stat(image).st_mode) if os.path.exists(image) else 0o777
    yield
    group = stat.S_IRWXG if group_may_read else 0
    closed = (stat.S_IRWXG | stat.S_IRWXO) & ~(before | group)
    if closed and os.path.exists(image):
        adjust_permissions(image, closed, add=False, recursive=False, ignore_errors=True)


def recursively_except(path, adjust):
    """
    Return EasyBuild's adjust_permissions for an installation directory, but for one file that it leaves alone.

    The mode and the group of a hard link are those of the file that belongs to another installation.

    Parameters
    ----------
    path : str
        A file directly in the installation directory.
    adjust : callable
        EasyBuild's adjust_permissions.

    Returns
    -------
    callable
        It has the same arguments.
    """
    def adjust_others(folder, bits, onlydirs=False, **options):
        for name in os.listdir(folder):
            entry = os.path.join(folder, name)
            if stat.S_ISDIR(os.lstat(entry).st_mode):
                adjust(entry, bits, onlydirs=onlydirs, **options)
            elif entry != path and not onlydirs:
                adjust(entry, bits, **dict(options, recursive=False))
        adjust(folder, bits, **dict(options, recursive=False))

    return adjust_others


def restore_link_mode(installdir, mode):
    """Take back what EasyBuild has done to a hard link in an installation (--read-only-installdir)."""
    installed = InstalledImage(installdir)
    if installed.link_mode != mode:
        os.chmod(installed.own_path, mode)
