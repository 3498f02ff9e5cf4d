##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Directories in which an installation has to write, and what to do if this account can't.

Doesn't import EasyBuild, so that commands can use it too.
"""
import os

# where EasyBuild installs by default
DEFAULT = '.local/easybuild'


def closed_part(directory):
    """Return the part of a path, or all of it, that keeps this account from writing there (str); None if it can."""
    there = os.path.abspath(directory)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    return None if os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK) else there


def closed_place(prefixes, others, how):
    """
    Return why an installation can't write where it has to, and what to do (str); None if it can.

    Parameters
    ----------
    prefixes : iterable of pairs of str
        EasyBuild's directories of installations and of modules, and where in them it writes.
    others : dict of str
        Other directories by the option of eb that names them.
    how : str
        What comes before an option of eb.
    """
    for directory, place in prefixes:
        closed = closed_part(place)
        if closed:
            home = os.environ.get('HOME')
            own = '$HOME/' + DEFAULT if home and not closed_part(os.path.join(home, DEFAULT)) else 'DIRECTORY'
            return ("nothing can be installed in %s, EasyBuild's directory here, because you can't write to %s: choose "
                    "one of your own (export EASYBUILD_PREFIX=%s, or %s--prefix=DIRECTORY)" % (
                        directory, closed, own, how))
    for option, directory in others.items():
        closed = closed_part(directory)
        if closed:
            return ("EasyBuild can't write to %s, its %s, because you can't write to %s: choose a directory of your "
                    "own (export EASYBUILD_%s=DIRECTORY, or %s--%s=DIRECTORY)" % (
                        directory, option, closed, option.upper().replace('-', '_'), how, option))
    return None
