##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
User software of an installation on disk: the directory, the SquashFS file, and the users' changes to it and to scripts.
"""
import glob
import hashlib
import os
import shlex
import shutil
import stat
import tempfile
import time
from email.parser import HeaderParser
from typing import Dict, List, Optional, Tuple

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum

from .image.installed import recorded
from .record.lockfile import Record
from .runtime import run_program
from .values import DIRECTORY, SQUASHFS
from .written import is_package

NAMES = (DIRECTORY, SQUASHFS)
# where an earlier installation has the new one's user software while it has the earlier one's, and while it gets it
EXCHANGED = '.exchanged'
EXCHANGED_IN_PART = EXCHANGED + '.part'
# where users put their own scripts
SCRIPT_FOLDERS = ('bin', 'runscripts')
# Fixed mtime of all files, for reproducible SquashFS images (1980-01-01, the earliest time that zip files allow).
FILE_TIME = 315532800

# Metadata of packages, relative to user software.
METADATA = tuple('venv/*/lib/python3.*/site-packages/*.' + end for end in ('dist-info/METADATA', 'egg-info/PKG-INFO'))


class UserSoftware:
    """
    User software in one installation directory, `root`.

    `record` is the record of the installation, empty if there is none; `installed` are the fingerprints in it.
    """

    def __init__(self, root: str, record: Optional[Record] = None) -> None:
        """Read the record of an installation, unless it is given; there may be none, as of other easyblocks."""
        self.root = root
        self.record = recorded(root) if record is None else record
        self.installed = self.record.user_software

    def path(self, name: str) -> str:
        """Return the path of a file or directory of the installation."""
        return os.path.join(self.root, name)

    def present(self) -> List[str]:
        """Return which forms exist: directory, SquashFS file."""
        return forms_in(self.root)

    def dead_links(self) -> List[str]:
        """Return which forms are links to what was removed, if no other form is left."""
        return [] if any(os.path.exists(self.path(name)) for name in NAMES) else self.present()

    def renamed(self) -> List[str]:
        """Return the names of what users have put aside, as our commands advise: user-software.old, for example."""
        paths = glob.glob(os.path.join(glob.escape(self.root), DIRECTORY + '*'))
        return sorted(set(map(os.path.basename, paths)) - set(NAMES))

    def fingerprints(self, known: Dict[str, str]) -> Dict[str, str]:
        """Return fingerprints of the forms that exist, by name; the fingerprint of the SquashFS file may be known."""
        return {name: known[name] if name == SQUASHFS and name in known else fingerprint(self.path(name))
                for name in self.present()}

    def file_status(self) -> Dict[str, int]:
        """Return size and time of the SquashFS file, by which it is known to be unchanged without reading it."""
        path = self.path(SQUASHFS)
        if not os.path.isfile(path):
            return {}
        return {'size': os.path.getsize(path), 'mtime_ns': os.stat(path).st_mtime_ns}

    def is_file_as_recorded(self) -> bool:
        """Return whether the SquashFS file has the size and time in the record."""
        status = self.file_status()
        return bool(status) and self.record.user_software_file == status

    def scripts(self) -> Dict[str, str]:
        """Return fingerprints of commands and run scripts, by path relative to the installation."""
        paths = [os.path.join(folder, name) for top in SCRIPT_FOLDERS
                 for folder, folders, names in os.walk(self.path(top))
                 for name in names + [name for name in folders if os.path.islink(os.path.join(folder, name))]]
        return {os.path.relpath(path, self.root): fingerprint(path) for path in paths}

    def changed(self) -> List[str]:
        """Return which forms have changed since the installation, or may have: without a record, all of them."""
        return [name for name in self.present() if fingerprint(self.path(name)) != self.installed.get(name)]

    def own_files(self) -> Dict[str, str]:
        """
        Return fingerprints of what users have added, changed or renamed beside user software, by relative path.

        Without a record, that may be all scripts. Renamed user software has none: it is nobody else's.
        """
        installed = self.record.scripts
        own = {name: digest for name, digest in sorted(self.scripts().items()) if digest != installed.get(name)}
        return dict(own, **dict.fromkeys(self.renamed(), ''))

    def move_files(self, target: 'UserSoftware') -> List[str]:
        """Move users' files to another installation, unless it has files of these names; return their names."""
        # the programs of another software in bin would come before the host's
        moved = [name for name in self.own_files() if not os.path.lexists(target.path(name))
                 and (self.record or not name.startswith('bin/'))]
        for name in moved:
            os.makedirs(os.path.dirname(target.path(name)), exist_ok=True)
            os.rename(self.path(name), target.path(name))
        return moved

    def pins(self) -> List[str]:
        """
        Return the packages in user software as a module mounts it, as ``name==version``.

        They are read from their metadata, because --module-only doesn't need a container.
        """
        squashfs, directory = self.path(SQUASHFS), self.path(DIRECTORY)
        with tempfile.TemporaryDirectory() as unpacked:
            if os.path.exists(squashfs):
                directory = os.path.join(unpacked, 'files')
                run_program(['unsquashfs', '-no-xattrs', '-no-progress', '-dest', directory, squashfs]
                            + list(METADATA))
            paths = [path for pattern in METADATA
                     for path in glob.glob(os.path.join(glob.escape(directory), pattern)) if os.path.isfile(path)]
            return sorted(filter(None, map(pin_in, paths)))

    @property
    def prefix(self) -> str:
        """Prefix of the paths to which things are set aside."""
        return '%s.%s' % (os.path.realpath(self.root), time.strftime('%Y%m%d-%H%M%S'))

    def take_over(self, earlier: 'UserSoftware') -> None:
        """
        Exchange user software with an earlier installation: directory, SquashFS file, or both.

        The earlier installation has this one's in EXCHANGED. Until it is removed, `give_back` undoes this, also if eb
        was killed in between.
        """
        unfinished = earlier.path(EXCHANGED_IN_PART)
        os.mkdir(unfinished)
        move_forms(self.root, unfinished)
        # from here on, user software in this installation is the earlier one's
        os.rename(unfinished, earlier.path(EXCHANGED))
        move_forms(earlier.root, self.root)

    def give_back(self, earlier: 'UserSoftware') -> None:
        """Undo `take_over`, as far as it has come."""
        unfinished = earlier.path(EXCHANGED_IN_PART)
        if os.path.lexists(earlier.path(EXCHANGED)):
            move_forms(self.root, earlier.root)
            os.rename(earlier.path(EXCHANGED), unfinished)
        if os.path.lexists(unfinished):
            move_forms(unfinished, self.root)
            os.rmdir(unfinished)

    def keep_exchanged(self) -> None:
        """Use what this installation got for its user software, which another one has taken over."""
        if os.path.lexists(self.path(EXCHANGED)):
            move_forms(self.path(EXCHANGED), self.root)
            os.rmdir(self.path(EXCHANGED))

    def set_aside(self, names: List[str], beside: 'UserSoftware') -> Tuple[List[str], str]:
        """
        Move forms of user software out of the installation, next to the installation `beside` that could use them.

        Returns their new paths, and one command that puts all of them to use there: separate commands would remove each
        other's result.
        """
        paths = [free_path('%s.%s' % (beside.prefix, name)) for name in names]
        commands = [['rm', '-rf'] + [beside.path(name) for name in NAMES]]
        for name, path in zip(names, paths):
            move(self.path(name), path)
            commands.append(['mv', path, beside.path(name)])
        return paths, '; '.join(' '.join(shlex.quote(word) for word in command) for command in commands)

    def set_files_aside(self, names: List[str], beside: 'UserSoftware') -> str:
        """Move users' files, given by their relative paths, out of the installation; return their new directory."""
        target = free_path(beside.prefix + '.files')
        for name in names:
            move(self.path(name), os.path.join(target, name))
        return target


def forms_in(root: str) -> List[str]:
    """Return which forms of user software an installation has: directory, SquashFS file."""
    return [name for name in NAMES if os.path.lexists(os.path.join(root, name))]


def move_forms(root: str, target: str) -> None:
    """Move user software from one directory to another one on the same file system."""
    for name in forms_in(root):
        os.rename(os.path.join(root, name), os.path.join(target, name))


def move(path: str, target: str) -> None:
    """Move a user's files to a path next to the installation; if that fails, they stay, and EasyBuildError says why."""
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.move(path, target)
    except (OSError, shutil.Error) as err:
        raise EasyBuildError("%s was changed by hand and can't be moved to %s: %s. Move or remove it yourself, "
                             "then install again.", path, target, err)


def free_path(path: str) -> str:
    """Return this path, with a number added if it already exists."""
    number = 1
    free = path
    while os.path.lexists(free):
        number += 1
        free = '%s.%d' % (path, number)
    return free


def pin_in(path: str) -> Optional[str]:
    """Return the package whose metadata is in a file, as ``name==version``; None if it has none that fit."""
    with open(path, encoding='utf-8', errors='replace') as text:
        metadata = HeaderParser().parse(text)
    name, version = metadata['Name'], metadata['Version']
    return '%s==%s' % (name, version) if is_package(name, version) else None


def fingerprint(path: str) -> str:
    """
    Return a fingerprint that changes with user software: the SHA256 of a file, or of the listing of a directory.

    The listing has names, types, sizes, mtimes and link targets, not contents: reading tens of thousands of small files
    takes minutes on a parallel file system. Bytecode is left out, because Python writes it at any time, and so are
    modes, because EasyBuild sets them.
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
            what: object = None
            if stat.S_ISLNK(status.st_mode):
                what = os.readlink(entry)
            else:
                what = stat.S_ISDIR(status.st_mode) or (status.st_size, int(status.st_mtime))
            digest.update(repr((os.path.relpath(entry, path), what)).encode('utf-8', 'surrogateescape'))
    return digest.hexdigest()


def has_new_files(path: str) -> bool:
    """Return whether a Python file below a directory doesn't have the fixed mtime, which compile-bytecode.py sets."""
    return any(name.endswith('.py') and os.lstat(os.path.join(folder, name)).st_mtime != FILE_TIME
               for folder, _, files in os.walk(path) for name in files)


def set_file_times(path: str) -> None:
    """Set the fixed mtime on a directory and everything below it, links included."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files + folders:
            os.utime(os.path.join(folder, name), (FILE_TIME, FILE_TIME), follow_symlinks=False)
    os.utime(path, (FILE_TIME, FILE_TIME))


def share_files(path: str, group_writes: bool, set_gid: bool = False) -> None:
    """
    Make a directory and everything below it readable by everybody, regardless of the umask when it was created.

    With `group_writes` the group gets write permission; with `set_gid` new files inherit the group of their directory.
    Access to user software is controlled by the permissions of the installation directory above it.
    """
    # from open directories: a process in a container may still run, and put links there at any time
    for _, _, files, folder in os.fwalk(path):
        for entry in ['.'] + files:
            kind = os.lstat(entry, dir_fd=folder).st_mode
            if stat.S_ISLNK(kind):
                continue
            mode = stat.S_IMODE(kind)
            shared = mode | stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH
            if stat.S_ISDIR(kind) or mode & stat.S_IXUSR:
                shared |= stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
            if stat.S_ISDIR(kind) and set_gid:
                shared |= stat.S_ISGID
            shared = shared | stat.S_IWGRP if group_writes else shared & ~stat.S_IWGRP
            # whoever runs it would become the account that has installed it
            shared &= ~(stat.S_IWOTH | stat.S_ISUID)
            if shared != mode:
                number = os.open(entry, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    os.chmod('/proc/self/fd/%d' % number, shared)
                finally:
                    os.close(number)
