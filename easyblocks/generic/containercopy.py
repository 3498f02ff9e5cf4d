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
import threading

from easybuild.tools.build_log import EasyBuildError

BLOCK = 8 * 1024 * 1024  # bytes
BLOCKS = 3  # in memory at a time
FICLONE = 0x40049409  # of ioctl_ficlonerange(2): _IOW(0x94, 9, int), the number of all but a few old architectures


def copy_with_sha256(source, target):
    """
    Copy a file while its SHA256 is taken.

    The target appears whole or not at all: a new file is written beside it, then renamed. Where the file system can
    share the blocks of both (Btrfs, XFS), nothing is copied; otherwise they are written past the cache of the system
    where that is possible: filling it takes longer than the disk, and takes memory from others.

    Parameters
    ----------
    source, target : str
        Paths.

    Returns
    -------
    str
        The SHA256 of what was read, in hexadecimal.

    Raises
    ------
    EasyBuildError
        If reading or writing fails; the message names both files.
    """
    partial = target + '.partial'
    try:
        with open(source, 'rb', buffering=0) as image, create(partial) as copy:
            digest, copied = transfer(image, copy, is_cloned(image, copy))
            size = os.fstat(image.fileno()).st_size
            if copied != size or os.fstat(copy.fileno()).st_size != size:
                raise OSError(errno.EIO, "%d of %d bytes could be copied" % (copied, size))
            os.fsync(copy.fileno())
        os.rename(partial, target)
    except OSError as err:
        if os.path.exists(partial):
            os.remove(partial)
        raise EasyBuildError("Copying the image %s to %s failed: %s", source, target, err)
    return digest


def create(path):
    """Open a new file for writing past the cache where the file system can do that (file object, not buffered)."""
    def opener(name, flags):
        try:
            return os.open(name, flags | getattr(os, 'O_DIRECT', 0), 0o666)
        except OSError as err:
            if err.errno != errno.EINVAL:
                raise
            return os.open(name, flags, 0o666)

    return open(path, 'wb', buffering=0, opener=opener)


def is_cloned(image, copy):
    """Let a new file share the blocks of another; tell whether these file systems can (bool)."""
    try:
        fcntl.ioctl(copy.fileno(), FICLONE, image.fileno())
    except OSError:
        return False
    return True


def transfer(image, copy, cloned):
    """
    Read a file, take its SHA256 and meanwhile write what was read to another, unless that is a clone already.

    Returns
    -------
    tuple
        The SHA256 in hexadecimal, and how much was read (int, bytes).

    Raises
    ------
    OSError
        If reading or writing fails.
    """
    digest, copied, problems = hashlib.sha256(), 0, []
    free, blocks = queue.Queue(), queue.Queue()
    for _ in range(BLOCKS):
        # memory that begins with a page, as writing past the cache needs it
        free.put(mmap.mmap(-1, BLOCK))
    writer = threading.Thread(target=write_blocks, args=(copy.fileno(), blocks, free, problems))
    writer.start()
    try:
        while not problems:
            buffer = free.get()
            block = memoryview(buffer)[:image.readinto(buffer)]
            if not block:
                break
            if cloned:
                free.put(buffer)
            else:
                blocks.put((buffer, block))
            digest.update(block)
            copied += len(block)
    finally:
        blocks.put(None)
        writer.join()
    if problems:
        raise problems[0]
    return digest.hexdigest(), copied


def write_blocks(descriptor, blocks, free, problems):
    """Write blocks as they come (None: no more), and give their memory back; note what goes wrong."""
    for buffer, block in iter(blocks.get, None):
        if not problems:
            try:
                write_block(descriptor, block)
            except OSError as err:
                problems.append(err)
        free.put(buffer)


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
