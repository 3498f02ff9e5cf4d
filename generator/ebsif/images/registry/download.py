"""
Download a file of tens of gigabytes: going on after cuts, and what to say if the disk is full.
"""
import errno
import os
import shutil
import stat
import time

from easybuild.easyblocks.generic.container.texts import format_size

from ebsif.images.registry.connection import BROKEN, TransferError, size_of, start_of

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
    path : Path
        The file.
    size : int
        Its size in bytes, None until it is known.
    is_open, problem : bool, Exception or str
        Whether the server has answered; why the last attempt ended.
    """

    def __init__(self, open_at, path, size=None):
        """Nothing is opened yet."""
        self.open_at = open_at
        self.path = path
        self.size = size

    @property
    def have(self):
        """How many bytes are there (int)."""
        try:
            return os.lstat(self.path).st_size
        except FileNotFoundError:
            return 0

    @property
    def is_foreign(self):
        """Whether the name is that of a link, or of another account's file."""
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return False
        return not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid()

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
        # what others have put there is never continued (P-02)
        if self.is_foreign or self.size is not None and self.have > self.size:
            self.path.unlink()
        if self.have:
            say(f"{name}: going on after {format_size(self.have)}")
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
                raise DownloadError(str(err)) from None
            self.problem = err
        except BROKEN as err:
            self.problem = err
        except OSError as err:
            if err.errno in (errno.ENOSPC, errno.EDQUOT):
                self.stop_for_space()
            raise DownloadError(f"Writing {self.path} failed: {err}") from None
        return False

    is_open = False
    problem = "the connection was closed"

    def transfer(self, reach):
        """Get what is missing, in one connection; return whether the file is complete (bool)."""
        have = self.have
        if self.size is not None and have == self.size and self.path.exists():
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
            number = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            with os.fdopen(number, 'r+b') as target:
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
                self.path.unlink()
                raise TransferError(f"the server sends more than the {self.size} bytes of the file")
            target.write(block)
            target.flush()
            reach(done, self.size)
        os.fsync(target.fileno())
        return done

    def check_space(self, start):
        """Stop before the download if there isn't enough space for the rest of the file."""
        folder = self.path.parent
        free = shutil.disk_usage(folder).free + (self.have - start)
        if self.size is not None and free < self.size - start:
            raise DownloadError(f"Not enough space in {folder}: {format_size(self.size - start)} are needed, "
                                f"{format_size(free)} are free. Make room, or choose another directory.")

    def stop_for_space(self):
        """Remove what is there, and raise the error for a full disk, or a quota."""
        done = self.have
        self.path.unlink()
        raise DownloadError(f"The disk or the quota is full: no more than {format_size(done)}{self.of_size} could be "
                            f"written to {self.path.parent}, and are removed again. Make room, or choose another "
                            "directory.")

    @property
    def of_size(self):
        """What follows a number of bytes (str): how many there will be, if that is known."""
        return f' of {format_size(self.size)}' if self.size else ''

    def cut(self, name):
        """Return the error for a connection that was cut too often (DownloadError)."""
        return DownloadError(f"Fetching {name} ended after {format_size(self.have)}{self.of_size}: {self.problem}. "
                             f"What has arrived is kept in {self.path}: the same command goes on from there.")


class FilePart:
    """The rest of a file (binary, open) from a position on, in the shape of a server's answer."""

    status = 206

    def __init__(self, file, start, size):
        """Go to the position."""
        self.file = file
        self.read = file.read
        self.headers = {'Content-Range': f'bytes {start}-', 'Content-Length': str(size - start)}
        file.seek(start)

    def __enter__(self):
        """Return itself."""
        return self

    def __exit__(self, *error):
        """Close the file."""
        self.file.close()
