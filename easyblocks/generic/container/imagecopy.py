##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Copy an image of tens of gigabytes and compute its SHA256, reading it only once.
"""
import errno
import fcntl
import hashlib
import itertools
import os
import stat
from concurrent.futures import ThreadPoolExecutor

from easybuild.easyblocks.generic.container.lustre import MAKE_STRIPED
from easybuild.easyblocks.generic.container.progress import Progress
from easybuild.easyblocks.generic.container.runtime import run_program
from easybuild.easyblocks.generic.container.scripts import FILES
from easybuild.easyblocks.generic.container.texts import format_size
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_FUNCTIONS, CHECKSUM_TYPE_MD5, CHECKSUM_TYPE_SHA256
from easybuild.tools.utilities import trace_msg

BLOCK = 4 * 1024 * 1024  # bytes to read and hash at a time
# Bytes to write at a time, unless the file system names more, like cp (coreutils, ioblksize.h): for larger writes,
# Linux 6.16 and newer look for larger pieces of memory (folios), which takes four times the CPU time (ext4 of 6.18).
WRITE = 128 * 1024
FICLONE = 0x40049409  # ioctl_ficlonerange(2): _IOW(0x94, 9, int), the same on all but a few old architectures


def copy_image(source, target, striping=()):
    """
    Copy an image and compute its SHA256.

    The target appears complete or not at all: the copy is written to a temporary file, then renamed. If the file system
    can share blocks between files (Btrfs, XFS), no data is copied.

    Parameters
    ----------
    source, target : str
        Paths.
    striping : list of str
        How the copy is spread over the servers of Lustre (options of ``lfs setstripe``).

    Returns
    -------
    str
        The SHA256 of the data, in hexadecimal.

    Raises
    ------
    EasyBuildError
        If reading or writing fails; the message names both files.
    """
    partial = target + '.partial'
    make_striped(partial, striping)
    try:
        with open(source, 'rb', buffering=0) as image, open(partial, 'wb', buffering=0, opener=private) as copy:
            digest, size = transfer(image, None if is_cloned(image, copy) else copy)
            wanted = os.fstat(image.fileno()).st_size
            if size != wanted or os.fstat(copy.fileno()).st_size != wanted:
                raise OSError(errno.EIO, "%d of %d bytes could be copied" % (size, wanted))
            # the permissions of the source, without write permission for others
            os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(image.fileno()).st_mode) & 0o775 | 0o600)
            os.fsync(copy.fileno())
        os.rename(partial, target)
    except OSError as err:
        if os.path.exists(partial):
            os.remove(partial)
        raise EasyBuildError("Copying the image %s to %s failed: %s", source, target, err)
    return digest


def make_striped(path, options):
    """
    Create an empty file with stripes if it is on Lustre; a failure is only reported.

    Parameters
    ----------
    path : str
        The file; or an existing directory, whose new files get them (lfs-setstripe(1)).
    options : list of str
        Options of ``lfs setstripe``; empty: leave it to the file system.
    """
    if options:
        result = run_program(['bash', '-p', os.path.join(FILES, MAKE_STRIPED), path] + list(options), hidden=True)
        if result.output.strip():
            trace_msg(result.output.strip())


def transfer(image, copy):
    """Hash an image with progress, and write the copy, unless that is None (a clone); return (sha256, bytes read)."""
    digest, size, hashed = hashlib.sha256(), 0, None
    total = format_size(os.fstat(image.fileno()).st_size)
    # hashing takes longest, so do it in parallel: with writing the same block, and reading the next one
    with ThreadPoolExecutor(1) as beside, Progress(
            os.path.basename(image.name), lambda: "%s of %s" % (format_size(image.tell()), total)):
        for memory in itertools.cycle([memoryview(bytearray(BLOCK)), memoryview(bytearray(BLOCK))]):
            number = image.readinto(memory)
            if hashed:
                hashed.result()
            if not number:
                return digest.hexdigest(), size
            hashed = beside.submit(digest.update, memory[:number])
            size += number
            if copy:
                write(copy, memory[:number])
                # Linux starts writing this part to disk now, instead of everything at the end, and drops what it has
                # written from memory (fs/fadvise.c), which can take longer to find than the data to copy
                os.posix_fadvise(copy.fileno(), 0, size, os.POSIX_FADV_DONTNEED)


def write(copy, block):
    """Write a whole block in parts; an unbuffered file may accept only some of a part at a time."""
    most = max(WRITE, os.fstat(copy.fileno()).st_blksize)
    while block:
        block = block[copy.write(block[:most]):]


def private(path, flags):
    """Open a file that only its owner can read, because the image may have restricted access."""
    number = os.open(path, flags, 0o600)
    os.fchmod(number, 0o600)
    return number


def is_cloned(image, copy):
    """Clone a file by sharing its blocks; return whether the file system supports that."""
    try:
        fcntl.ioctl(copy.fileno(), FICLONE, image.fileno())
    except OSError:
        return False
    return True


def is_verified(checksum, name, compute):
    """
    Return whether a file matches the checksum in an easyconfig, in any form that EasyBuild supports (verify_checksum).

    Parameters
    ----------
    checksum : str, tuple, list, dict or None
        A value (its length determines the type); type and value; alternatives (tuple); several that must all match
        (list); by file name (dict); None.
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
