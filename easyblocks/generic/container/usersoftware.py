##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
User software of an installation as files: the directory, the SquashFS file, and what a user changed; scripts, too.
"""
import ctypes
import hashlib
import json
import os
import shlex
import shutil
import stat
import struct
import time

from easybuild.easyblocks.generic.container.record import RECORD
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, remove_dir, remove_file

DIRECTORY = 'user-software'
SQUASHFS = 'user-software.squashfs'
NAMES = (DIRECTORY, SQUASHFS)
# Where a user has user software of their own, for any container module.
PLACE_VARIABLE = 'EBSIF_USER_SOFTWARE'
# where people put scripts of their own
SCRIPT_FOLDERS = ('bin', 'runscripts')
# of all files in user software, so that the same installation gives the same bytes (1980-01-01, what zip files allow)
FILE_TIME = 315532800

RENAME_EXCHANGE = 2  # of renameat2(2)
AT_FDCWD = -100


class UserSoftware:
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
    def scripts(self):
        """What tells whether commands and run scripts were changed, by path in the installation (dict of str)."""
        return {os.path.relpath(os.path.join(folder, name), self.root): fingerprint(os.path.join(folder, name))
                for top in SCRIPT_FOLDERS for folder, _, names in os.walk(self.path(top)) for name in names}

    @property
    def record(self):
        """The record of the installation (dict), None if there is none."""
        try:
            with open(os.path.join(self.root, RECORD)) as lock:
                return json.load(lock)
        except (OSError, ValueError):
            return None

    @property
    def installed(self):
        """The fingerprints as they were when the module was installed; none if its record does not say."""
        return (self.record or {}).get('user_software', {})

    @property
    def changed(self):
        """Those that are not as they were installed (list of str)."""
        installed = self.installed
        return [name for name in self.present if fingerprint(self.path(name)) != installed.get(name)]

    @property
    def own_scripts(self):
        """Paths in the installation of the scripts that are not as they were installed (list of str)."""
        installed = (self.record or {}).get('scripts', {})
        return sorted(name for name, digest in self.scripts.items() if digest != installed.get(name))

    @property
    def prefix(self):
        """Start of the paths of what is set aside (str)."""
        return '%s.%s' % (os.path.realpath(self.root), time.strftime('%Y%m%d-%H%M%S'))

    def take_over(self, earlier):
        """
        Replace user software by what another installation has, the same choice of directory and SquashFS file.

        There is some all the time: the module can be loaded meanwhile.
        """
        taken = earlier.present
        for name in taken:
            if os.path.isdir(self.path(name)):
                exchange(self.path(name), earlier.path(name))
            else:
                os.rename(earlier.path(name), self.path(name))
        for name in self.present:
            if name not in taken:
                remove_dir(self.path(name)) if os.path.isdir(self.path(name)) else remove_file(self.path(name))

    def set_aside(self, names, beside):
        """
        Move user software out of the installation.

        Parameters
        ----------
        names : list of str
            Of the two, those to move.
        beside : UserSoftware
            Where it could be used; the new paths begin with the path of this installation.

        Returns
        -------
        list of str
            Where they are now.
        str
            The command that puts them in use, all at once: one for each would remove what the other put there.
        """
        paths = [free_path('%s.%s' % (beside.prefix, name)) for name in names]
        commands = [['rm', '-rf'] + [beside.path(name) for name in NAMES]]
        for name, path in zip(names, paths):
            move(self.path(name), path)
            commands.append(['mv', path, beside.path(name)])
        return paths, '; '.join(' '.join(shlex.quote(word) for word in command) for command in commands)

    def set_scripts_aside(self, names, beside):
        """Move scripts, by their paths in the installation, out of it; return the directory where they are (str)."""
        target = free_path(beside.prefix + '.scripts')
        for name in names:
            move(self.path(name), os.path.join(target, name))
        return target


def move(path, target):
    """
    Move what people made to a place beside the installation.

    Raises
    ------
    EasyBuildError
        If that is not possible; it is where it was.
    """
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.move(path, target)
    except (OSError, shutil.Error) as err:
        raise EasyBuildError("%s was changed by hand, and can't be kept at %s: %s. Move it to a place of yours, or set "
                             "'keep_user_software = False' to lose it.", path, target, err)


def exchange(path, other):
    """
    Let two directories change places.

    At once where kernel and file system can (renameat2 with RENAME_EXCHANGE), else with three renames, in between with
    one of them at ``spare_path(path)``; when one of these fails, everything is as it was.
    """
    renameat2 = getattr(ctypes.CDLL(None), 'renameat2', None)
    if renameat2 and renameat2(AT_FDCWD, os.fsencode(path), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return
    spare = spare_path(path)
    done = []
    try:
        for old, new in ((path, spare), (other, path), (spare, other)):
            os.rename(old, new)
            done.append((old, new))
    except BaseException:
        for old, new in reversed(done):
            os.rename(new, old)
        raise


def spare_path(path):
    """Return where a directory is while it changes places with another one (str)."""
    return path + '.replaced'


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

    For a directory names, kinds, sizes, times of files and link targets count, not contents: reading tens of thousands
    of small files takes minutes on a parallel file system. Bytecode does not count, Python writes it when it likes; nor
    do modes, EasyBuild sets them.
    """
    if os.path.islink(path):
        return os.readlink(path)
    if os.path.isfile(path):
        return compute_checksum(path, CHECKSUM_TYPE_SHA256)
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name != '__pycache__')
        for name in sorted(files + folders):
            entry = os.path.join(folder, name)
            status = os.lstat(entry)
            if stat.S_ISLNK(status.st_mode):
                what = os.readlink(entry)
            else:
                what = stat.S_ISDIR(status.st_mode) or (status.st_size, int(status.st_mtime))
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


def share_files(path, group_writes, set_gid=False):
    """
    Let everybody read what is below a directory, itself included, whatever the umask was when it was made.

    Who may read user software is decided by the installation directory around it.

    Parameters
    ----------
    path : str
        The directory.
    group_writes : bool
        Whether the group may change it as well.
    set_gid : bool
        Whether what is made in it belongs to its group.
    """
    for folder, _, files in os.walk(path):
        for entry in [folder] + [os.path.join(folder, name) for name in files]:
            if os.path.islink(entry):
                continue
            mode = stat.S_IMODE(os.stat(entry).st_mode)
            shared = mode | stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH
            if os.path.isdir(entry) or mode & stat.S_IXUSR:
                shared |= stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
            if os.path.isdir(entry) and set_gid:
                shared |= stat.S_ISGID
            shared = shared | stat.S_IWGRP if group_writes else shared & ~stat.S_IWGRP
            shared &= ~stat.S_IWOTH
            if shared != mode:
                os.chmod(entry, shared)
