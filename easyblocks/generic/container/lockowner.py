##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Who holds EasyBuild's lock of an installation directory, so that the lock of a killed eb is no obstacle for the next.
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
    A note beside EasyBuild's lock that says which process holds it.

    EasyBuild's lock is a directory that says nothing of its owner: after kill -9, or when a node goes down, every later
    attempt stops at it until a person removes it. The note makes it possible to tell that the owner is gone; where that
    can't be told (another machine, another container of processes), the lock stays.

    Attributes
    ----------
    name, lock : str
        Name and path of the lock.
    note : str
        Path of the note.
    """

    def __init__(self, installdir):
        """Find where the lock is; its name is that of EasyBlock.run_all_steps."""
        self.name = installdir.replace('/', '_')
        self.lock = det_lock_path(self.name)
        self.note = self.lock + '.owner'

    @contextmanager
    def held(self):
        """Keep the note; nothing is done where locks are ignored. What can't be written stops nobody."""
        if build_option('ignore_locks'):
            yield
            return
        self.recover()
        if not os.path.lexists(self.lock):
            # before there is a lock: a kill never leaves one without a note
            self.write()
        try:
            yield
        finally:
            if self.owner == this_process():
                forget(self.note)
                # of attempts that were killed while they wrote theirs
                for path in glob.glob(glob.escape(self.note) + '.*'):
                    forget(path)

    @contextmanager
    def again(self):
        """
        Hold EasyBuild's lock once more; the value is whether that is possible.

        EasyBuild gives its lock back before what it did can be undone, after SIGTERM before anything else. Whoever has
        taken it meanwhile finds the rest of a killed attempt, and undoes that.
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
        Write the note where another process has: the lock is ours now.

        That one was there before us (eb --wait-on-lock), or it began at the same time and did not get the lock.
        """
        if not build_option('ignore_locks') and self.owner != this_process():
            self.write()

    def recover(self):
        """Remove the lock of an owner that is gone."""
        owner = self.owner
        if owner is None or owner_state(owner) != GONE:
            return
        # of several that find this at once only one can rename the note
        mine = '%s.%d' % (self.note, os.getpid())
        try:
            os.rename(self.note, mine)
        except OSError:
            return
        if read_owner(mine) != owner:
            # another one has removed the lock meanwhile, and this is its note
            os.rename(mine, self.note)
            return
        if os.path.isdir(self.lock):
            print_msg("removing the lock of an attempt that was killed (process %s on %s)", owner['pid'], owner['host'])
            remove_dir(self.lock)
        forget(mine)

    @property
    def owner(self):
        """Who wrote the note (dict), None if there is none that can be read."""
        return read_owner(self.note)

    def write(self):
        """Write the note; return whether that was possible."""
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
    """Return what tells this process from all others (dict)."""
    return {'host': socket.gethostname(), 'machine': machine_id(), 'boot': boot_id(), 'pid_ns': pid_namespace(),
            'pid': os.getpid(), 'started': start_time(os.getpid())}


def machine_id():
    """Return the id of this machine (str): others may have its name, "localhost" for instance; machine-id(5)."""
    try:
        with open('/etc/machine-id') as identity:
            return identity.read().strip()
    except OSError:
        return ''


def boot_id():
    """Return the id of this boot of the machine (str)."""
    try:
        with open('/proc/sys/kernel/random/boot_id') as identity:
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
    """Return when a process was started (str, ticks since boot; proc(5), field 22), None if there is none."""
    try:
        with open('/proc/%d/stat' % pid) as stat:
            # the name of the program may hold blanks and brackets
            return stat.read().rpartition(')')[2].split()[19]
    except (OSError, IndexError):
        return None


def read_owner(path):
    """Return who wrote a note (dict), None if there is none that can be read."""
    try:
        with open(path) as note:
            owner = json.load(note)
        return owner if isinstance(owner, dict) and set(owner) == set(this_process()) else None
    except (OSError, ValueError):
        return None


def owner_state(owner):
    """Return whether the process that wrote a note still runs: ALIVE, GONE, or UNKNOWN if that can't be told here."""
    here = this_process()
    if owner['host'] != here['host']:
        return UNKNOWN
    if owner['boot'] != here['boot']:
        # another start of this machine, or another machine of its name
        return GONE if here['machine'] and owner['machine'] == here['machine'] else UNKNOWN
    if owner['pid_ns'] != here['pid_ns'] or not isinstance(owner['pid'], int):
        return UNKNOWN
    return ALIVE if start_time(owner['pid']) == owner['started'] else GONE


def forget(path):
    """Remove a file that may be gone already."""
    with suppress(OSError):
        os.remove(path)
