##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The wrappers of an installation: commands in bin/ that run programs of the container.
"""
import os

from easybuild.tools.build_log import EasyBuildError

from .readable import copy_readable
from .runtimes import RUNTIMES
from .scripts import FILES

# Names that wrappers can't have: host scripts with `#!/usr/bin/env bash`, and programs that eb runs, would run in the
# container.
NEEDED_ON_HOST = ('bash', 'env', 'sh') + RUNTIMES


class Wrappers:
    """
    Commands that run the program of the same name in the container.

    Parameters
    ----------
    names : list of str
    load : bool
        Whether they work without the loaded module.
    """

    def __init__(self, names, load):
        """Take what ``install`` needs."""
        self.names = sorted(set(names))
        self.script = 'loading-wrapper' if load else 'wrapper'

    def programs(self, scripts):
        """
        Return the programs of the container that they start (list of str).

        Parameters
        ----------
        scripts : collection of str
            Paths of the scripts in the installation. Its run scripts are not on PATH in the container yet.

        Raises
        ------
        EasyBuildError
            If the module has a command of its own by the name of a wrapper.
        """
        for name in self.names:
            if os.path.join('bin', name) in scripts:
                raise EasyBuildError("Easyconfig parameter 'wrappers': '%s' is a command of the module itself", name)
        return [name for name in self.names if os.path.join('runscripts', name) not in scripts]

    def install(self, installdir):
        """Install the wrappers, executable for everybody regardless of the umask; return their names."""
        script = os.path.join(FILES, 'share', 'ebsif', self.script)
        for name in self.names:
            copy_readable(script, os.path.join(installdir, 'bin', name), 0o755)
        return self.names
