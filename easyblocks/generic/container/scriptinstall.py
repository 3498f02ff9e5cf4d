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
from easybuild.tools.filetools import mkdir


def install_scripts(spec, installdir):
    """Install the scripts of a ContainerSpec, and what they read."""
    # every module binds it, even if it is empty
    mkdir(os.path.join(installdir, 'runscripts'), parents=True)
    for name, script in spec.scripts.items():
        copy_readable(os.path.join(FILES, script), os.path.join(installdir, name), 0o755)
    for name, text in spec.settings_files.items():
        write_readable(os.path.join(installdir, name), text)
