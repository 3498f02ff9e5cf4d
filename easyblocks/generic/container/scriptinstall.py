##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Install the commands, the run scripts and their settings.
"""
import os

from easybuild.easyblocks.generic.container.readable import copy_readable, write_readable
from easybuild.easyblocks.generic.container.scripts import FILES
from easybuild.easyblocks.generic.container.startenvironment import SET_ENVIRONMENT
from easybuild.easyblocks.generic.container.wholefile import write_whole
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import mkdir, read_file


def install_scripts(spec, installdir):
    """Install the scripts of a ContainerSpec, and what they read."""
    # every module binds it, even if it is empty
    mkdir(os.path.join(installdir, 'runscripts'), parents=True)
    for name, script in spec.scripts.items():
        copy_readable(os.path.join(FILES, script), os.path.join(installdir, name), 0o755)
    for name, text in spec.settings_files.items():
        write_readable(os.path.join(installdir, name), text)


def update_settings(spec, installdir):
    """
    Update what scripts read, for a module that is written again (--module-only) with other parameters.

    An installation of an earlier version also gets the script that sets variables in the container.

    Returns
    -------
    str
        A warning if it can't be written, because another account has installed; None otherwise.
    """
    if not os.path.isdir(os.path.join(installdir, 'runscripts')):
        return None
    files = dict({SET_ENVIRONMENT: read_file(os.path.join(FILES, SET_ENVIRONMENT))}, **spec.settings_files)
    for name, text in sorted(files.items()):
        path = os.path.join(installdir, name)
        # a container may be reading it
        try:
            if not os.path.exists(path) or read_file(path) != text:
                write_readable(path, text, write_whole)
        except EasyBuildError as err:
            return "Can't write %s: containers of the module start with the earlier settings (%s)" % (path, err)
    return None
