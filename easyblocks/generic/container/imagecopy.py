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
import os
import stat
from concurrent.futures import ThreadPoolExecutor

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_FUNCTIONS, CHECKSUM_TYPE_MD5, CHECKSUM_TYPE_SHA256

BLOCK = 8 * 1024 * 1024  # bytes
FICLONE = 0x40049409  # of ioctl_ficlonerange(2): _IOW(0x94, 9, int), the number of all but a few old architectures


def copy_image(source, target):
    """
    Copy an image and take its SHA256 meanwhile.

    The target appears whole or not at all: a new file is written beside it, then renamed. Where the file system can
    share the blocks of both (Btrfs, XFS), nothing is copied.

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
        with open(source, 'rb', buffering=0) as image, open(partial, 'wb', buffering=0, opener=private) as copy:
            digest, size = transfer(image, None if is_cloned(image, copy) else copy)
            wanted = os.fstat(image.fileno()).st_size
            if size != wanted or os.fstat(copy.fileno()).st_size != wanted:
                raise OSError(errno.EIO, "%d of %d bytes could be copied" % (size, wanted))
            # as private, and as executable, as the source is; nobody else may write it
            os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(image.fileno()).st_mode) & 0o775 | 0o600)
            os.fsync(copy.fileno())
        os.rename(partial, target)
    except OSError as err:
        if os.path.exists(partial):
            os.remove(partial)
        raise EasyBuildError("Copying the image %s to %s failed: %s", source, target, err)
    return digest


def transfer(image, copy):
    """Hash an image and write the copy, unless that is None (a clone); return (sha256, bytes read)."""
    digest, size = hashlib.sha256(), 0
    memory = memoryview(bytearray(BLOCK))
    # taking the SHA256 is as long as writing, and needs another processor
    with ThreadPoolExecutor(1) as beside:
        for number in iter(lambda: image.readinto(memory), 0):
            hashed = beside.submit(digest.update, memory[:number])
            if copy:
                write(copy, memory[:number])
                # Linux begins to write it out now, not all of it at the end (fs/fadvise.c)
                os.posix_fadvise(copy.fileno(), size, number, os.POSIX_FADV_DONTNEED)
            hashed.result()
            size += number
    return digest.hexdigest(), size


def write(copy, block):
    """Write all of a block: a file that is not buffered may take less at a time."""
    while block:
        block = block[copy.write(block):]


def private(path, flags):
    """Open a new file that only its owner may read: it may be the copy of an image that not everybody may."""
    return os.open(path, flags, 0o600)


def is_cloned(image, copy):
    """Let a new file share the blocks of another; return whether these file systems can."""
    try:
        fcntl.ioctl(copy.fileno(), FICLONE, image.fileno())
    except OSError:
        return False
    return True


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
