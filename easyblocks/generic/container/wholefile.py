##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Writing files atomically: a concurrent reader gets either the earlier file or the new one.
"""
import os
from contextlib import contextmanager

from easybuild.easyblocks.generic.container.readable import open_to_readers
from easybuild.framework import easyblock
from easybuild.tools.filetools import remove_file, write_file


@contextmanager
def whole_files():
    """
    Context manager in which EasyBuild writes a module's files atomically.

    Otherwise a kill half-way leaves a partial module file, which EasyBuild takes for an installation. Patching
    write_file puts the rename between the hook for the module text and the update of the modules tool's cache, so both
    see the final path.
    """
    easyblock.write_file = write_whole
    try:
        yield
    finally:
        easyblock.write_file = write_file


@open_to_readers()
def write_whole(path, *args, **kwargs):
    """Write a file with EasyBuild's write_file, under a temporary name first."""
    part = hidden_path(path, 'unfinished')
    try:
        write_file(part, *args, **kwargs)
        os.rename(part, path)
    finally:
        remove_file(part)


def hidden_path(path, what):
    """Return a hidden path next to a file, which modules tools don't list (str)."""
    return os.path.join(os.path.dirname(path), '.%s.%s' % (os.path.basename(path), what))
