##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Owner of EasyBuild's lock on an installation directory, so that the lock of a killed eb doesn't block the next one.
"""
import glob
import json
import os
import socket
from contextlib import contextmanager, suppress

from easybuild.tools.build_log import EasyBuildError, print_msg
from easybuild.tools.config import build_option
from easybuild.tools.filetools import create_lock, det_lock_path, mkdir, remove_dir, remove_lock


ALIVE, GONE, UNKNOWN = 'alive', 'gone', 'unknown'


class LockOwner:
    """
    A note next to EasyBuild's lock that names the process holding it.

    EasyBuild's lock is a directory without information on its owner: after kill -9, or when a node goes down, every
    later attempt stops until somebody removes the lock. With the note, a lock whose owner is gone can be removed; where
    that can't be determined (another machine, another PID namespace), the lock stays.

    Attributes
    ----------
    name, lock : str
        Name and path of the lock.
    note : str
        Path of the note.
    """

    def __init__(self, installdir):
        """Derive the path of the lock, which is named as in EasyBlock.run_all_steps."""
        self.name = installdir.replace('/', '_')
        self.lock = det_lock_path(self.name)
        self.note = self.lock + '.owner'

    @contextmanager
    def held(self):
        """Context manager that keeps the note, unless locks are ignored. Failing to write it is not an error."""
        if build_option('ignore_locks'):
            yield
            return
        self.recover()
        if not os.path.lexists(self.lock):
            # before the lock is created, so that a kill never leaves a lock without a note
            self.write()
        try:
            yield
        finally:
            if self.owner == this_process():
                forget(self.note)
                # left by attempts that were killed while writing their note
                for path in glob.glob(glob.escape(self.note) + '.*'):
                    forget(path)

    @contextmanager
    def again(self):
        """
        Context manager that takes EasyBuild's lock again; its value is whether that succeeded.

        EasyBuild releases its lock before we can roll back; after SIGTERM that is the first thing it does. If another
        process has taken the lock since, that one finds the leftovers and rolls back, as after a kill.
        """
        if build_option('ignore_locks'):
            yield True
            return
        try:
            create_lock(self.name)
        except EasyBuildError:
            yield False
            return
        try:
            self.confirm()
            yield True
        finally:
            remove_lock(self.name)

    def confirm(self):
        """
        Replace the note of another process: the lock is ours now.

        The other process held the lock before us (eb --wait-on-lock), or started at the same time and didn't get it.
        """
        if not build_option('ignore_locks') and self.owner != this_process():
            self.write()

    def recover(self):
        """Remove the lock if its owner is gone."""
        owner = self.owner
        if owner is None or owner_state(owner) != GONE:
            return
        # if several processes get here at once, only one can rename the note
        mine = '%s.%d' % (self.note, os.getpid())
        try:
            os.rename(self.note, mine)
        except OSError:
            return
        if read_owner(mine) != owner:
            # another process has removed the lock in the meantime, and this is its note
            os.rename(mine, self.note)
            return
        if os.path.isdir(self.lock):
            print_msg("removing the lock of an attempt that was killed (process %s on %s)", owner['pid'], owner['host'])
            remove_dir(self.lock)
        forget(mine)

    @property
    def owner(self):
        """The process that wrote the note (dict), None if there is no readable note."""
        return read_owner(self.note)

    def write(self):
        """Write the note; return whether that succeeded."""
        new = '%s.%d' % (self.note, os.getpid())
        try:
            mkdir(os.path.dirname(self.note), parents=True)
            with open(new, 'w') as note:
                json.dump(this_process(), note)
            os.rename(new, self.note)
        except (OSError, EasyBuildError):
            forget(new)
            return False
        return True


def this_process():
    """Return what identifies this process uniquely (dict)."""
    return {'host': socket.gethostname(), 'machine': machine_id(), 'boot': boot_id(), 'pid_ns': pid_namespace(),
            'pid': os.getpid(), 'started': start_time(os.getpid())}


def machine_id():
    """Return the ID of this machine (str), see machine-id(5): host names such as "localhost" are not unique."""
    return identity_in('/etc/machine-id')


def boot_id():
    """Return the id of this boot of the machine (str)."""
    return identity_in('/proc/sys/kernel/random/boot_id')


def identity_in(path):
    """Return what a file says (str), empty if it can't be read."""
    try:
        with open(path) as identity:
            return identity.read().strip()
    except OSError:
        return ''


def pid_namespace():
    """Return the PID namespace (str): PIDs are unique only within one."""
    try:
        return os.readlink('/proc/self/ns/pid')
    except OSError:
        return ''


def start_time(pid):
    """Return the start time of a process (str, ticks since boot; proc(5), field 22), None if it doesn't exist."""
    try:
        with open('/proc/%d/stat' % pid) as stat:
            # the name of the program may contain spaces and brackets
            return stat.read().rpartition(')')[2].split()[19]
    except (OSError, IndexError):
        return None


def read_owner(path):
    """Return the process that wrote a note (dict), None if there is no readable note."""
    try:
        with open(path) as note:
            owner = json.load(note)
        return owner if isinstance(owner, dict) and set(owner) == set(this_process()) else None
    except (OSError, ValueError):
        return None


def owner_state(owner):
    """Return whether the process that wrote a note is ALIVE, GONE, or UNKNOWN if that can't be determined here."""
    here = this_process()
    if owner['host'] != here['host']:
        return UNKNOWN
    if owner['boot'] != here['boot']:
        # this machine has rebooted, or it's another machine of the same name
        return GONE if here['machine'] and owner['machine'] == here['machine'] else UNKNOWN
    if owner['pid_ns'] != here['pid_ns'] or not isinstance(owner['pid'], int):
        return UNKNOWN
    return ALIVE if start_time(owner['pid']) == owner['started'] else GONE


def forget(path):
    """Remove a file if it exists."""
    with suppress(OSError):
        os.remove(path)
