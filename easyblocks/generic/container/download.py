##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Download a file of tens of gigabytes: going on after cuts, and what to say if the disk is full.

Doesn't import EasyBuild, so that commands can use it too.
"""
import errno
import os
import shutil
import time

from easybuild.easyblocks.generic.container.connection import BROKEN, TransferError, size_of, start_of
from easybuild.easyblocks.generic.container.texts import format_size

NOTHING_MORE = 416  # status if no part of the file is left (RFC 9110, 15.5.17)
BLOCK = 256 * 1024  # bytes: what is lost at most if the process is killed
WAITS = (1, 2, 5, 10, 20)  # seconds before each further attempt that gets nothing new


class DownloadError(Exception):
    """A file can't be downloaded; the message says why and what to do."""


class Download:
    """
    A download into a file of which a part may be there from before.

    Attributes
    ----------
    open_at : callable
        Takes a position and returns an answer of the server (http.client.HTTPResponse) that begins there, or at the
        start of the file.
    path : str
        The file.
    size : int
        Its size in bytes, None until it is known.
    can_go_on : bool
        Whether the next attempt of the command may use what is there.
    is_open, problem : bool, Exception or str
        Whether the server has answered; why the last attempt ended.
    """

    def __init__(self, open_at, path, size=None, can_go_on=True):
        """Nothing is opened yet."""
        self.open_at = open_at
        self.path = path
        self.size = size
        self.can_go_on = can_go_on

    @property
    def have(self):
        """How many bytes are there (int)."""
        try:
            return os.path.getsize(self.path)
        except FileNotFoundError:
            return 0

    def run(self, name, reach, say):
        """
        Download the file, and go on after cuts as long as anything arrives.

        Parameters
        ----------
        name : str
            What to call the file.
        reach : callable
            Takes how many bytes are there, and how many there will be (int), None if that is unknown.
        say : callable
            Takes a line for the person.

        Raises
        ------
        DownloadError
            If the server refuses or can't be reached (what is there stays), or if the disk is full.
        """
        if self.size is not None and self.have > self.size:
            os.remove(self.path)
        if self.have:
            say("%s: going on after %s" % (name, format_size(self.have)))
        most, failures = self.have, 0
        while not self.is_complete(reach):
            most, failures = (self.have, 0) if self.have > most else (most, failures + 1)
            if failures > len(WAITS):
                raise self.cut(name)
            time.sleep(WAITS[failures - 1] if failures else 0)

    def is_complete(self, reach):
        """Transfer once; return whether the file is complete (bool). The reason why not is in ``problem``."""
        try:
            return self.transfer(reach)
        except TransferError as err:
            # without an answer so far there is no network, or no such server
            if not err.is_temporary or not (err.status or self.is_open):
                raise DownloadError(str(err))
            self.problem = err
        except BROKEN as err:
            self.problem = err
        except OSError as err:
            if err.errno in (errno.ENOSPC, errno.EDQUOT):
                self.stop_for_space()
            raise DownloadError("Writing %s failed: %s" % (self.path, err))
        return False

    is_open = False
    problem = "the connection was closed"

    def transfer(self, reach):
        """Get what is missing, in one connection; return whether the file is complete (bool)."""
        have = self.have
        if self.size is not None and have == self.size and os.path.exists(self.path):
            return True
        try:
            opened = self.open_at(have)
        except TransferError as err:
            if err.status == NOTHING_MORE and have and self.size is None:
                # the file is complete, or longer than that of the server: its digest tells
                return True
            raise
        with opened as answer:
            self.is_open = True
            start = start_of(answer)
            if start not in (0, have):
                raise TransferError("the server sends another part than the one asked for")
            if self.size is None:
                self.size = size_of(answer)
            self.check_space(start)
            with open(self.path, 'r+b' if os.path.exists(self.path) else 'wb') as target:
                target.truncate(start)
                target.seek(start)
                done = self.copy(answer, target, start, reach)
            # without a known size, the end of the connection is that of the file, or a cut: its content tells
            return self.size is None or done == self.size

    def copy(self, answer, target, done, reach):
        """Write what arrives; return the size of the file (int)."""
        for block in iter(lambda: answer.read(BLOCK), b''):
            done += len(block)
            if self.size is not None and done > self.size:
                # that of another file
                os.remove(self.path)
                raise TransferError("the server sends more than the %d bytes of the file" % self.size)
            target.write(block)
            target.flush()
            reach(done, self.size)
        os.fsync(target.fileno())
        return done

    def check_space(self, start):
        """Stop before the download if there isn't enough space for the rest of the file."""
        folder = os.path.dirname(self.path)
        free = shutil.disk_usage(folder).free + (self.have - start)
        if self.size is not None and free < self.size - start:
            raise DownloadError("Not enough space in %s: %s are needed, %s are free. Make room, or choose another "
                                "directory." % (folder, format_size(self.size - start), format_size(free)))

    def stop_for_space(self):
        """Remove what is there, and raise the error for a full disk, or a quota."""
        done = self.have
        os.remove(self.path)
        raise DownloadError("The disk or the quota is full: no more than %s%s could be written to %s, and are removed "
                            "again. Make room, or choose another directory." % (
                                format_size(done), self.of_size, os.path.dirname(self.path)))

    @property
    def of_size(self):
        """What follows a number of bytes (str): how many there will be, if that is known."""
        return ' of %s' % format_size(self.size) if self.size else ''

    def cut(self, name):
        """Return the error for a connection that was cut too often (DownloadError)."""
        remedy = "What has arrived is kept in %s: the same command goes on from there." % self.path if self.can_go_on \
            else "The same command starts again, because the file may be another one then: add #sha256=DIGEST to the " \
            "URL to be able to continue."
        return DownloadError("Fetching %s ended after %s%s: %s. %s" % (
            name, format_size(self.have), self.of_size, self.problem, remedy))


class FilePart:
    """The rest of a file (binary, open) from a position on, in the shape of a server's answer."""

    status = 206

    def __init__(self, file, start, size):
        """Go to the position."""
        self.file = file
        self.read = file.read
        self.headers = {'Content-Range': 'bytes %d-' % start, 'Content-Length': str(size - start)}
        file.seek(start)

    def __enter__(self):
        """Return itself."""
        return self

    def __exit__(self, *error):
        """Close the file."""
        self.file.close()
