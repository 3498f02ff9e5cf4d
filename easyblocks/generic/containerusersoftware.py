##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
User software of an installation as files: the directory, the SquashFS file, and what a user changed in them.
"""
import hashlib
import json
import os
import stat
import struct
import time

from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, remove_dir, remove_file

DIRECTORY = 'user-software'
SQUASHFS = 'user-software.squashfs'
NAMES = (DIRECTORY, SQUASHFS)
# of all files in user software, so that the same installation gives the same bytes (1980-01-01, what zip files allow)
FILE_TIME = 315532800


class ContainerUserSoftware(object):
    """
    User software in one installation directory.

    Attributes
    ----------
    root : str
        The installation directory.
    """

    def __init__(self, root):
        """Keep where the installation is."""
        self.root = root

    def path(self, name):
        """Return the path of the directory or of the SquashFS file."""
        return os.path.join(self.root, name)

    @property
    def present(self):
        """Those of the two that are there (list of str)."""
        return [name for name in NAMES if os.path.lexists(self.path(name))]

    @property
    def fingerprints(self):
        """What tells whether they were changed, by name (dict of str)."""
        return {name: fingerprint(self.path(name)) for name in self.present}

    @property
    def installed(self):
        """The fingerprints as they were when the module was installed; none if its lock file does not say."""
        try:
            with open(os.path.join(self.root, 'share', 'ebsif', 'lock.json')) as lock:
                return json.load(lock).get('user_software', {})
        except (OSError, ValueError):
            return {}

    @property
    def changed(self):
        """Those that are not as they were installed (list of str)."""
        installed = self.installed
        return [name for name in self.present if fingerprint(self.path(name)) != installed.get(name)]

    def take_over(self, earlier):
        """Replace user software by what another installation has, the same choice of directory and SquashFS file."""
        for name in self.present:
            remove_dir(self.path(name)) if os.path.isdir(self.path(name)) else remove_file(self.path(name))
        for name in earlier.present:
            os.rename(earlier.path(name), self.path(name))

    def set_aside(self, names, prefix):
        """
        Move user software out of the installation.

        Parameters
        ----------
        names : list of str
            Of the two, those to move.
        prefix : str
            Start of the new paths, on the same file system: a rename can't fail half-way.

        Returns
        -------
        list of str
            Where they are now.
        """
        stamp = time.strftime('%Y%m%d-%H%M%S')
        paths = []
        for name in names:
            paths.append(free_path('%s.%s.%s' % (prefix, stamp, name)))
            os.rename(self.path(name), paths[-1])
        return paths


def free_path(path):
    """Return this path, or if there is something already one with a number added."""
    number = 1
    free = path
    while os.path.lexists(free):
        number += 1
        free = '%s.%d' % (path, number)
    return free


def fingerprint(path):
    """
    Return what changes when a user changes user software: SHA256 of a file, or of a list of what is in a directory.

    For a directory names, kinds, sizes and link targets count, not contents: reading tens of thousands of small files
    takes minutes on a parallel file system. Bytecode does not count, Python writes it when it likes.
    """
    if os.path.isfile(path):
        return compute_checksum(path, CHECKSUM_TYPE_SHA256)
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name != '__pycache__')
        for name in sorted(files + folders):
            entry = os.path.join(folder, name)
            what = os.readlink(entry) if os.path.islink(entry) else os.path.isdir(entry) or os.path.getsize(entry)
            digest.update(repr((os.path.relpath(entry, path), what)).encode('utf-8', 'surrogateescape'))
    return digest.hexdigest()


def remove_bytecode(path):
    """Remove the bytecode below a directory, apart from that of source files with the time that all are given."""
    for folder, _, files in os.walk(path):
        if os.path.basename(folder) == '__pycache__':
            for name in files:
                if not is_of_file_time(os.path.join(folder, name)):
                    os.remove(os.path.join(folder, name))
            if not os.listdir(folder):
                os.rmdir(folder)


def is_of_file_time(bytecode):
    """Tell whether bytecode is that of a source file with the time that all are given (PEP 552: flags, then time)."""
    try:
        with open(bytecode, 'rb') as text:
            return text.read(12)[4:] == struct.pack('<LL', 0, FILE_TIME)
    except OSError:
        # a link to nowhere
        return False


def set_file_times(path):
    """Give everything below a directory, itself and links included, the same time of last change."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files + folders:
            os.utime(os.path.join(folder, name), (FILE_TIME, FILE_TIME), follow_symlinks=False)
    os.utime(path, (FILE_TIME, FILE_TIME))


def share_files(path, group_writes):
    """
    Let everybody read what is below a directory, itself included, whatever the umask was when it was made.

    Who may read user software is decided by the installation directory around it.

    Parameters
    ----------
    path : str
        The directory.
    group_writes : bool
        Whether the group may change it as well.
    """
    for folder, _, files in os.walk(path):
        for entry in [folder] + [os.path.join(folder, name) for name in files]:
            if os.path.islink(entry):
                continue
            mode = stat.S_IMODE(os.stat(entry).st_mode)
            shared = mode | stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH
            if os.path.isdir(entry) or mode & stat.S_IXUSR:
                shared |= stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
            shared = shared | stat.S_IWGRP if group_writes else shared & ~stat.S_IWGRP
            shared &= ~stat.S_IWOTH
            if shared != mode:
                os.chmod(entry, shared)
