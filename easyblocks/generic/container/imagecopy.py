##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Copying an image of tens of gigabytes, and taking its SHA256, with one read of it.
"""
import errno
import fcntl
import hashlib
import mmap
import os
import queue
import stat
import threading

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_FUNCTIONS, CHECKSUM_TYPE_MD5, CHECKSUM_TYPE_SHA256

BLOCK = 8 * 1024 * 1024  # bytes
BLOCKS = 3  # in memory at a time
FICLONE = 0x40049409  # of ioctl_ficlonerange(2): _IOW(0x94, 9, int), the number of all but a few old architectures


class ImageCopy:
    """
    A copy of an image, whose SHA256 is taken while it is made.

    The target appears whole or not at all: a new file is written beside it, then renamed. Where the file system can
    share the blocks of both (Btrfs, XFS), nothing is copied; otherwise they are written past the cache of the system
    where that is possible: filling it takes longer than the disk, and takes memory from others.

    Attributes
    ----------
    source, target : str
        Paths.
    partial : str
        Where it is made.
    """

    def __init__(self, source, target):
        """Keep what is copied where; memory is taken when it's done."""
        self.source = source
        self.target = target
        self.partial = target + '.partial'
        # (memory, how much of it) to be written, memory to be filled, what went wrong with writing
        self.blocks, self.free, self.problems = queue.Queue(), queue.Queue(), []

    def make(self):
        """
        Make the copy.

        Returns
        -------
        str
            The SHA256 of what was read, in hexadecimal.

        Raises
        ------
        EasyBuildError
            If reading or writing fails; the message names both files.
        """
        try:
            with open(self.source, 'rb', buffering=0) as image, create(self.partial) as copy:
                digest, copied = self.transfer(image, copy, is_cloned(image, copy))
                size = os.fstat(image.fileno()).st_size
                if copied != size or os.fstat(copy.fileno()).st_size != size:
                    raise OSError(errno.EIO, "%d of %d bytes could be copied" % (copied, size))
                # as private, and as executable, as the source is; nobody else may write it
                os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(image.fileno()).st_mode) & 0o775 | 0o600)
                os.fsync(copy.fileno())
            os.rename(self.partial, self.target)
        except OSError as err:
            if os.path.exists(self.partial):
                os.remove(self.partial)
            raise EasyBuildError("Copying the image %s to %s failed: %s", self.source, self.target, err)
        return digest

    def transfer(self, image, copy, cloned):
        """Read a file; take its SHA256 and how much it was (tuple of str, int), and write it unless it's cloned."""
        digest, copied = hashlib.sha256(), 0
        for _ in range(BLOCKS):
            # memory that begins with a page, as writing past the cache needs it
            self.free.put(mmap.mmap(-1, BLOCK))
        writer = threading.Thread(target=self.write_blocks, args=(copy.fileno(),))
        writer.start()
        try:
            while not self.problems:
                memory = self.free.get()
                block = memoryview(memory)[:image.readinto(memory)]
                if not block:
                    break
                if cloned:
                    self.free.put(memory)
                else:
                    self.blocks.put((memory, block))
                digest.update(block)
                copied += len(block)
        finally:
            self.blocks.put(None)
            writer.join()
        if self.problems:
            raise self.problems[0]
        return digest.hexdigest(), copied

    def write_blocks(self, descriptor):
        """Write blocks as they come (None: no more), and give their memory back; note what goes wrong."""
        for memory, block in iter(self.blocks.get, None):
            if not self.problems:
                try:
                    write_block(descriptor, block)
                except Exception as err:  # whatever it is: who fills the memory waits for it
                    self.problems.append(err)
            self.free.put(memory)


def is_verified(checksum, name, compute):
    """
    Tell whether a file has the checksum of an easyconfig, in each form that EasyBuild allows (verify_checksum).

    Parameters
    ----------
    checksum : str, tuple, list, dict or None
        Value (its length says which type); type and value; alternatives (tuple); several, all of which have to be right
        (list); by file name (dict); none.
    name : str
        Name of the file.
    compute : callable
        Returns the checksum of a type.

    Returns
    -------
    bool
    """
    if checksum is None:
        return True
    if isinstance(checksum, dict):
        return name in checksum and is_verified(checksum[name], name, compute)
    if isinstance(checksum, list):
        return all(is_verified(one, name, compute) for one in checksum)
    if isinstance(checksum, str):
        kind = CHECKSUM_TYPE_SHA256 if len(checksum) == 64 else CHECKSUM_TYPE_MD5
        return compute(kind) == checksum
    if len(checksum) == 2 and checksum[0] in CHECKSUM_FUNCTIONS:
        return compute(checksum[0]) == checksum[1]
    return any(is_verified(one, name, compute) for one in checksum)


def create(path):
    """Open a new file for writing past the cache where the file system can do that (file object, not buffered)."""
    def opener(name, flags):
        try:
            return os.open(name, flags | getattr(os, 'O_DIRECT', 0), 0o600)
        except OSError as err:
            if err.errno != errno.EINVAL:
                raise
            return os.open(name, flags, 0o600)

    return open(path, 'wb', buffering=0, opener=opener)


def is_cloned(image, copy):
    """Let a new file share the blocks of another; tell whether these file systems can (bool)."""
    try:
        fcntl.ioctl(copy.fileno(), FICLONE, image.fileno())
    except OSError:
        return False
    return True


def write_block(descriptor, block):
    """Write all of a block; from where that can't be done past the cache on, through it."""
    while block:
        try:
            block = block[os.write(descriptor, block):]
        except OSError as err:
            flags, direct = fcntl.fcntl(descriptor, fcntl.F_GETFL), getattr(os, 'O_DIRECT', 0)
            # the end of a file is no whole number of blocks of the disk; and some file systems only pretend
            if err.errno != errno.EINVAL or not flags & direct:
                raise
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~direct)
