##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Settings for distributed runs: network, scheduler, visible GPUs, GPU-aware MPI.

They come from the easyconfig. The module sets the network's as defaults (settings.py): ordinary variables, which are
passed to the container, and which users can change. Variables to unset are unset when a container starts
(UNSET_SCRIPT), because on the host they belong to the user. conda-python-distributed reads all of them, from a file in
the same directory, for runs without the module.
"""
import os
import re

from easybuild.tools.build_log import EasyBuildError

from .gpus import GPU_KINDS
from .texts import variable_problem

# The GPUs that a rank sees: its own, or all GPUs of the node.
GPU_VISIBILITY = ('local_rank', 'all')

GPU_AWARE_VARIABLE = 'MPICH_GPU_SUPPORT_ENABLED'

# Script that unsets variables whenever a container starts, and its path in the container. The name makes it run after
# the scripts that set the image's variables (10-docker*.sh, 90-environment.sh ...), and before 99-base.sh, which sets
# the variables from APPTAINERENV_*.
UNSET_SCRIPT = os.path.join('share', 'ebsif', 'unset-variables.sh')
UNSET_SCRIPT_INSIDE = '/.singularity.d/env/98-ebsif.sh'

# Next to the run scripts.
SETTINGS_FILE = os.path.join('runscripts', 'distributed.conf')


class Distributed:
    """
    Settings for distributed runs from an easyconfig.

    Parameters
    ----------
    spec : ContainerSpec
        With the parameters network_env, scheduler, gpu, gpu_visibility, gpu_mpi_library, container_env.
    """

    def __init__(self, spec):
        """Keep the specification; ``check`` validates it."""
        self.spec = spec

    @property
    def unset_variables(self):
        """Names of the variables that are unset in the container, even where the caller has them (list of str)."""
        settings = dict(self.spec.container_env, **self.spec.network_env)
        return sorted(name for name, value in settings.items() if value is None)

    def check(self):
        """
        Validate the parameters. Values may still contain unresolved templates.

        Raises
        ------
        EasyBuildError
            For an invalid value.
        """
        for name, value in self.spec.network_env.items():
            if variable_problem(name):
                raise EasyBuildError("Easyconfig parameter 'network_env': '%s' %s", name, variable_problem(name))
            if value is not None and not re.match(r'\S(.*\S)?\Z', str(value)):
                raise EasyBuildError("Easyconfig parameter 'network_env': the value of %s should be one line, without "
                                     "blanks at its ends, or None to unset it, found: %r", name, value)
        self.check_gpu_mpi_library()

    def check_gpu_mpi_library(self):
        """Check that the library for GPU-aware MPI matches the kind of GPU."""
        library, gpu = self.spec.gpu_mpi_library, self.spec.gpu
        if not library:
            return
        if gpu not in GPU_KINDS:
            raise EasyBuildError("Easyconfig parameter 'gpu_mpi_library' needs the parameter 'gpu' (known: %s)",
                                 ', '.join(sorted(GPU_KINDS)))
        if not library.startswith('/') or not os.path.basename(library).startswith(GPU_KINDS[gpu].mpi_library):
            raise EasyBuildError("Easyconfig parameter 'gpu_mpi_library': for the GPU kind '%s' it should be the full "
                                 "path of a %s, found: %s", gpu, GPU_KINDS[gpu].mpi_library, library)
        if 'LD_PRELOAD' in self.spec.container_env:
            raise EasyBuildError("Easyconfig parameter 'gpu_mpi_library' is loaded with LD_PRELOAD, and "
                                 "'container_env' has a value for that: name the library there instead")

    @property
    def settings_text(self):
        """Content of the file next to the run scripts: a keyword, a name and a value in each line."""
        lines = ['# Written at installation, from the easyconfig; read by conda-python-distributed and %s.' %
                 os.path.basename(UNSET_SCRIPT)]
        for param in ('scheduler', 'gpu', 'gpu_visibility'):
            if getattr(self.spec, param):
                lines.append('%s %s' % (param, getattr(self.spec, param)))
        lines += ['unset %s' % name for name in self.unset_variables]
        lines += ['set %s %s' % (name, value) for name, value in sorted(self.spec.network_env.items())
                  if value is not None]
        return ''.join(line + '\n' for line in lines)
