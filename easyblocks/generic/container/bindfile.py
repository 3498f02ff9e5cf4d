##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The file with the binds of a whole site: one per line, '?' before optional ones, '#' before comments.

Modules read it when they are loaded, so that an edit reaches all of them.
"""
import os
import re

from easybuild.tools.filetools import read_file


def parse_binds(lines):
    """Return the required and the optional binds (two lists of str) in lines of such a file (list of str)."""
    required, optional = [], []
    for line in lines:
        mark, bind = re.match(r'\s*(\??)\s*(.*?)\s*\Z', line).groups()
        if bind and not bind.startswith('#'):
            (optional if mark else required).append(bind)
    return required, optional


def current_binds(path, default):
    """
    Return the required and the optional binds of the site (two lists of str) on this node.

    Parameters
    ----------
    path : str
        The file; None if there is none.
    default : list of str
        Lines to use where the file doesn't exist.
    """
    if path and os.path.isfile(path) and os.access(path, os.R_OK):
        return parse_binds(read_file(path).splitlines())
    return parse_binds(default)
