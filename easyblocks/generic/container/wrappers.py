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

from easybuild.easyblocks.generic.container.readable import copy_readable
from easybuild.easyblocks.generic.container.runtimes import RUNTIMES
from easybuild.easyblocks.generic.container.scripts import FILES, sh_command
from easybuild.tools.build_log import EasyBuildError

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
        """Take what ``check`` and ``install`` need."""
        self.names = sorted(set(names))
        self.script = 'loading-wrapper' if load else 'wrapper'

    def check(self, scripts, run):
        """
        Check that the container has the programs.

        Parameters
        ----------
        scripts : collection of str
            Paths of the scripts in the installation.
        run : callable
            Runs a command in the container as the module will: ``run`` of a Container, or ``run_active`` of a Venv.

        Raises
        ------
        EasyBuildError
            If the container lacks a program, or if the module has a command of its own by that name.
        """
        for name in self.names:
            if os.path.join('bin', name) in scripts:
                raise EasyBuildError("Easyconfig parameter 'wrappers': '%s' is a command of the module itself", name)
        # run scripts are on PATH in the container once the module is loaded, not yet
        programs = [name for name in self.names if os.path.join('runscripts', name) not in scripts]
        missing = []
        if programs:
            missing = run(sh_command('missing-programs.sh', *programs), hidden=True, split_stderr=True).output.split()
        if missing:
            raise EasyBuildError("Easyconfig parameter 'wrappers': the container has no program named %s",
                                 ' or '.join("'%s'" % name for name in missing))

    def install(self, installdir):
        """Install the wrappers, executable for everybody regardless of the umask; return their names."""
        script = os.path.join(FILES, 'share', 'ebsif', self.script)
        for name in self.names:
            copy_readable(script, os.path.join(installdir, 'bin', name), 0o755)
        return self.names
