##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Install the commands and the run scripts.
"""
import os

from easybuild.tools.filetools import mkdir

from .readable import copy_readable
from .scripts import FILES


def install_scripts(spec, installdir):
    """Install the scripts of a ContainerSpec."""
    # every module binds it, even if it is empty
    mkdir(os.path.join(installdir, 'runscripts'), parents=True)
    for name, script in spec.scripts.items():
        copy_readable(os.path.join(FILES, script), os.path.join(installdir, name), 0o755)
