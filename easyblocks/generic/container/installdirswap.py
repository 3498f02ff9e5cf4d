##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Swapping an installation with a new one that was built next to it.
"""
import errno
import os
import shutil

from easybuild.easyblocks.generic.container.usersoftware import backup_path, exchange

# Marks an installation that is in place, but whose module has not been written yet.
UNPROVEN = os.path.join('share', 'ebsif', 'unproven')


class InstallDirSwap:
    """
    Swap an installation with a new one built next to it, in the same parent directory so that a rename is enough.

    Attributes
    ----------
    path : str
        The installation directory as EasyBuild names it.
    installdir : str
        The same with links resolved, so that an installation directory that is a link stays one.
    staging_dir : str
        Where the new installation is built; after ``exchange`` it holds the earlier one.
    backup_dir : str
        Holds the earlier installation during a swap that takes three renames instead of one atomic exchange.
    active : bool
        Whether the new installation is in the installation directory.
    """

    def __init__(self, path):
        """Derive the directories from the installation directory."""
        self.path = path
        self.installdir = os.path.realpath(path)
        self.staging_dir = self.installdir + '.replace'
        self.backup_dir = backup_path(self.installdir)
        self.active = False

    def recover(self):
        """Undo a swap that was killed half-way or before the module was written."""
        if not os.path.lexists(self.installdir) and os.path.lexists(self.backup_dir):
            os.rename(self.backup_dir, self.installdir)
        if os.path.exists(os.path.join(self.installdir, UNPROVEN)):
            if not os.path.lexists(self.staging_dir) and os.path.lexists(self.backup_dir):
                os.rename(self.backup_dir, self.staging_dir)
            if os.path.isdir(self.staging_dir):
                self.exchange()

    @property
    def leftovers(self):
        """Directories that killed attempts left next to the installation (list of str)."""
        return [path for path in (self.staging_dir, self.backup_dir) if os.path.lexists(path)]

    def problem(self):
        """
        Return why the directories can't be swapped (OSError), None if they can.

        Renaming a directory onto one that isn't empty fails, so trying it changes nothing.
        """
        try:
            os.makedirs(os.path.join(self.staging_dir, 'not empty'))
            os.rename(self.installdir, self.staging_dir)
        except OSError as err:
            shutil.rmtree(self.staging_dir, ignore_errors=True)
            return None if err.errno in (errno.ENOTEMPTY, errno.EEXIST) else err
        # this file system allows it
        os.rename(self.staging_dir, self.installdir)
        return None

    def activate(self):
        """Put the new installation in place, marked as not yet proven to work."""
        mark = os.path.join(self.staging_dir, UNPROVEN)
        os.makedirs(os.path.dirname(mark), exist_ok=True)
        with open(mark, 'w'):
            pass
        self.exchange()
        self.active = True

    def exchange(self):
        """Swap the two directories; swapping twice restores the original state."""
        exchange(self.installdir, self.staging_dir)
