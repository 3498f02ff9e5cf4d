##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
A lock for processes on several nodes, which ends with its owner wherever that was.
"""
import json
import os
import threading
import time
from contextlib import contextmanager, suppress

from easybuild.easyblocks.generic.container.lockowner import GONE, forget, owner_state, read_owner, this_process

# Seconds between signs of life, and without one until a lock counts as left behind. File systems of several nodes may
# show the time of a file with a delay: nfs(5), acregmax.
BEAT = 10
LEFT = 150


class LostLease(Exception):
    """Another process has the lock, or nobody: this one has given no sign of life for too long."""


class Lease:
    """
    A lock: a file that names its owner, who touches it as long as it is needed.

    The clocks of nodes differ, so whoever waits measures how long the file has not changed. An owner on the same
    machine that no longer exists needs no wait. An owner that was suspended may have lost its lock: it has to check
    that before each step that others would notice.

    Attributes
    ----------
    path : str
        The file, in an existing directory.
    left : float
        Seconds without a sign of life after which a lock counts as left behind.
    """

    def __init__(self, path, left=LEFT):
        """Nothing is locked yet."""
        self.path = path
        self.left = left

    @contextmanager
    def held(self, waiting):
        """
        Context manager that holds the lock.

        Parameters
        ----------
        waiting : callable
            Called about once per second while another process has the lock, with its note (dict, None if unknown).

        Raises
        ------
        OSError
            If the file can't be written, or not be removed because it is that of another account.
        """
        self.acquire(waiting)
        stop = threading.Event()
        beats = threading.Thread(target=self.beat, args=(stop,), daemon=True)
        beats.start()
        try:
            yield
        finally:
            stop.set()
            beats.join()
            if self.is_held:
                forget(self.path)

    @property
    def is_held(self):
        """Whether this process has the lock (bool)."""
        return read_owner(self.path) == this_process()

    def check(self):
        """Raise LostLease if this process no longer has the lock."""
        if not self.is_held:
            raise LostLease

    def acquire(self, waiting):
        """Wait for the lock; see ``held``."""
        seen, since = None, time.monotonic()
        while not self.create():
            owner, sign = read_owner(self.path), self.sign
            if sign != seen:
                seen, since = sign, time.monotonic()
            elif owner and owner_state(owner) == GONE or time.monotonic() - since > self.left:
                self.remove(sign)
                continue
            waiting(owner)
            time.sleep(min(1, self.left / 4))

    def create(self):
        """Create the file; return whether it wasn't there (bool)."""
        try:
            number = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        try:
            with os.fdopen(number, 'w') as note:
                json.dump(this_process(), note)
        except OSError:
            # nobody would know whose it is
            forget(self.path)
            raise
        return True

    @property
    def sign(self):
        """What changes with every sign of life, and with the owner (tuple), None without a lock."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def remove(self, sign):
        """Remove a lock that was left behind, unless another process was faster; raises OSError if it may not."""
        mine = '%s.%s.%d' % (self.path, this_process()['host'], os.getpid())
        try:
            # only one process can do that
            os.rename(self.path, mine)
        except FileNotFoundError:
            return
        status = os.stat(mine)
        if (status.st_ino, status.st_mtime_ns) != sign:
            # that of a process which removed the old one just before; a third one, if it was faster, notices the loss
            os.rename(mine, self.path)
        forget(mine)

    def beat(self, stop):
        """Give signs of life until the event is set."""
        while not stop.wait(min(BEAT, self.left / 4)):
            with suppress(OSError):
                # if the file system doesn't answer, the work itself notices that
                if self.is_held:
                    os.utime(self.path)
