##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Copy large files: with their SHA256, complete or not at all, with stripes on Lustre.
"""
import hashlib
import os
import stat
from contextlib import suppress
from typing import BinaryIO, Sequence, Tuple

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.utilities import trace_msg

from .imageprograms import FILES
from .runtime import run_program
from .sitevalues import MAKE_STRIPED

BLOCK = 4 * 1024 * 1024  # bytes that are read at once


def sha256_of(source: BinaryIO) -> str:
    """Return the SHA256 of the rest of an open file, in hexadecimal."""
    digest = hashlib.sha256()
    for block in iter(lambda: source.read(BLOCK), b''):
        digest.update(block)
    return digest.hexdigest()


def copy_hashed(source: BinaryIO, target: str, striping: Sequence[str] = ()) -> str:
    """
    Copy an open file, and return the SHA256 of the copy, in hexadecimal.

    The copy gets its name when it is complete, with the permissions of the source, but no write permission for others.
    """
    partial = target + '.partial'
    make_striped(partial, striping)
    digest = hashlib.sha256()
    try:
        with open(partial, 'wb', opener=open_private) as copy:
            for block in iter(lambda: source.read(BLOCK), b''):
                digest.update(block)
                copy.write(block)
            os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(source.fileno()).st_mode) & 0o775 | 0o600)
            copy.flush()
            os.fsync(copy.fileno())
        os.rename(partial, target)
    except OSError as err:
        with suppress(OSError):
            os.remove(partial)
        raise EasyBuildError("Copying the image %s to %s failed: %s", source.name, target, err)
    return digest.hexdigest()


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, because the image may have restricted access; follow no link."""
    number = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    os.fchmod(number, 0o600)
    return number


def make_striped(path: str, options: Sequence[str]) -> None:
    """
    Create an empty file with stripes if it is on Lustre; a failure is only reported.

    If the path is a directory, its new files get the stripes (lfs-setstripe(1)). Without options, the file system
    decides.
    """
    if options:
        result = run_program(['bash', '-p', os.path.join(FILES, MAKE_STRIPED), path] + list(options))
        if result.output.strip():
            trace_msg(result.output.strip())


def file_identity(status: os.stat_result) -> Tuple[int, ...]:
    """Return values that change if a file is replaced or written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
