##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Say which disk is full, and how to choose another one.
"""
import errno
import os
import re
import shutil
import tempfile
from typing import List

from easybuild.tools.config import build_path, install_path

from .values import ERRORS, format_size

# Less free space than this is none, in bytes.
LITTLE = 16 * 10 ** 6
# What programs say if there is none; a quota may also limit the number of files.
NO_SPACE = ((errno.ENOSPC, re.compile('No space left|enough free space', re.IGNORECASE)),
            (errno.EDQUOT, re.compile('Disk quota exceeded', re.IGNORECASE)))


def no_space(output: str) -> str:
    """Return that a disk is full or a quota used up, and where, if that is what a program says; else empty."""
    for number, pattern in NO_SPACE:
        if pattern.search(output) or ERRORS[number] in output:
            return ERRORS[number] + ''.join('\n    %s' % one for one in full_places())
    return ''


def full_places() -> List[str]:
    """
    Return which of the directories that an installation writes to have no free space, and how to choose another.

    If all have some, one had none until the program that failed has removed its files, or there is a quota: then it is
    perhaps any of them.
    """
    places = [(build_path(), 'EASYBUILD_BUILDPATH'), (install_path(), 'EASYBUILD_INSTALLPATH'),
              (tempfile.gettempdir(), 'TMPDIR'), (os.environ.get('PIP_CACHE_DIR'), 'PIP_CACHE_DIR')]
    there = [(path, variable) for path, variable in places if path and os.path.isdir(path)]
    full = [place for place in there if shutil.disk_usage(place[0]).free < LITTLE]
    return ['%s%s (to choose another: export %s=DIRECTORY)' % ('' if full else 'perhaps ', space_at(path), variable)
            for path, variable in full or there]


def space_at(path: str) -> str:
    """Return a path with the free space of its file system."""
    usage, mount = shutil.disk_usage(path), os.path.realpath(path)
    while not os.path.ismount(mount):
        mount = os.path.dirname(mount)
    return '%s: %s free of %s in the file system %s' % (path, format_size(usage.free), format_size(usage.total), mount)
