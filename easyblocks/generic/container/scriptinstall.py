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

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import mkdir, read_file, remove_file

from .readable import copy_readable, write_readable, write_whole
from .scripts import FILES
from .settings import SET_ENVIRONMENT
from .spec import SETTINGS_FILES


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
    Update the settings of an installation, for a module that is written again with other parameters (--module-only).

    Returns
    -------
    str
        A warning if they can't be written, because another account has installed it; None otherwise.

    Raises
    ------
    EasyBuildError
        If an earlier version has made the installation, whose scripts don't fit the new module.
    """
    if not os.path.isdir(os.path.join(installdir, 'runscripts')):
        return None
    script = os.path.join(installdir, SET_ENVIRONMENT)
    if not os.path.exists(script):
        raise EasyBuildError("The installation lacks %s, so an earlier version of ebsif has made it, or it is damaged: "
                             "reinstall it with `eb --rebuild` instead of writing its module only", script)
    for name in SETTINGS_FILES:
        path, text = os.path.join(installdir, name), spec.settings_files.get(name)
        try:
            if text is None:
                remove_file(path)
            elif not os.path.exists(path) or read_file(path) != text:
                # a container may be reading it
                write_readable(path, text, write_whole)
        except (EasyBuildError, OSError) as err:
            return "Can't update %s: containers of the module still start with earlier settings (%s)" % (path, err)
    return None
