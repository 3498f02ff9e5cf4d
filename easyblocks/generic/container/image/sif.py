##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Read the table of contents of a SIF file: for its signatures, and whether it is complete.

Doesn't import EasyBuild, so that commands can use it too.
"""
import os
import struct
from typing import List, Tuple

# https://github.com/apptainer/sif/blob/main/pkg/sif/sif.go: the header after the line that starts the runtime, and the
# descriptors of objects.
HEADER = struct.Struct('<32s10s6s16s2q4q2q')
DESCRIPTOR = struct.Struct('<i?3I7q128s384s')
SIGNATURE = 0x4005
MOST = 4096  # descriptors; runtimes make 48


def is_sif(path: str) -> bool:
    """Return whether a file begins like a SIF file."""
    with open(path, 'rb') as image:
        return image.read(HEADER.size)[32:41] == b'SIF_MAGIC'


def signers(path: str) -> List[str]:
    """
    Return the fingerprints of the keys that signed an image, without verifying the signatures.

    The string is empty for a signature without a fingerprint. A file that is not a SIF file has no signatures.
    """
    fingerprints = [extra[4:24] for kind, _, extra in objects(path) if kind == SIGNATURE]
    return list(dict.fromkeys(one.hex().upper() if any(one) else '' for one in fingerprints))


def is_whole(path: str) -> bool:
    """Return whether a file has everything that its table of contents lists, and so was not cut."""
    ends = [end for _, end, _ in objects(path)]
    return bool(ends) and max(ends) <= os.path.getsize(path)


def damage(path: str, printed: str = '') -> str:
    """Return what is wrong with an image that the runtime can't start, given what it printed; '' if it isn't known."""
    if not os.access(path, os.R_OK):
        return "doesn't exist, or can't be read: put it back, or ask its owner for permission"
    if os.path.isfile(path) and is_sif(path) and not is_whole(path):
        return "is an incomplete SIF file: copy or fetch it again"
    # SingularityCE 4.1 knows gzip, but not zstd, with which Apptainer can build images
    if 'unknown compression algorithm' in printed:
        return "is compressed in a way that the container runtime here can't read: build it again, compressed with gzip"
    return ""


def objects(path: str) -> List[Tuple[int, int, bytes]]:
    """Return kind, end (in bytes from the start) and further data of each object in a SIF file."""
    with open(path, 'rb') as image:
        header = image.read(HEADER.size)
        if len(header) < HEADER.size or header[32:41] != b'SIF_MAGIC':
            return []
        _, _, _, _, _, _, _, number, start, _, _, _ = HEADER.unpack(header)
        if not 0 <= start <= os.path.getsize(path) or number < 0:
            return []
        image.seek(start)
        table = image.read(min(number, MOST) * DESCRIPTOR.size)
    found = []
    for place in range(0, len(table) - DESCRIPTOR.size + 1, DESCRIPTOR.size):
        kind, used, _, _, _, begin, size, *_, extra = DESCRIPTOR.unpack_from(table, place)
        if used:
            found.append((kind, begin + size, extra))
    return found
