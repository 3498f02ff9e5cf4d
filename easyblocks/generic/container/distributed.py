##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What distributed runs need of a site: its network, its scheduler, which GPU a rank sees, MPI that knows of GPUs.

It's data in the easyconfig. The module sets it, and the run script conda-python-distributed reads it from a file beside
it, for runs without the module.
"""
import os
import re

from easybuild.easyblocks.generic.container.gpus import GPU_KINDS
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from easybuild.easyblocks.generic.container.texts import variable_problem
from easybuild.tools.build_log import EasyBuildError

# Which GPUs a rank sees: its own, or all of the node.
GPU_VISIBILITY = ('local_rank', 'all')

GPU_AWARE_VARIABLE = 'MPICH_GPU_SUPPORT_ENABLED'

# Unsets variables at each start of a container, and what it is in the container: after the variables of the image
# (10-docker*.sh, 90-environment.sh ...), before those for the container (APPTAINERENV_*), which 99-base.sh takes.
UNSET_SCRIPT = os.path.join('share', 'ebsif', 'unset-variables.sh')
UNSET_SCRIPT_INSIDE = '/.singularity.d/env/98-ebsif.sh'

# Beside the run scripts.
SETTINGS_FILE = os.path.join('runscripts', 'distributed.conf')


class Distributed:
    """
    What distributed runs need, of one easyconfig.

    Parameters
    ----------
    spec : ContainerSpec
        With the parameters network_env, scheduler, gpu, gpu_visibility, gpu_mpi_library, container_env.
    """

    def __init__(self, spec):
        """Nothing is checked yet."""
        self.spec = spec

    def check(self):
        """
        Validate the parameters. Values may still contain unresolved templates.

        Raises
        ------
        EasyBuildError
            For a value that can't be.
        """
        for param, known in (('scheduler', tuple(SCHEDULERS)), ('gpu_visibility', GPU_VISIBILITY)):
            if getattr(self.spec, param) not in (None,) + known:
                raise EasyBuildError("Unknown value for easyconfig parameter '%s': '%s' (known: %s)", param,
                                     getattr(self.spec, param), ', '.join(known))
        for name, value in self.spec.network_env.items():
            if variable_problem(name):
                raise EasyBuildError("Easyconfig parameter 'network_env': '%s' %s", name, variable_problem(name))
            if value is not None and not re.match(r'\S(.*\S)?\Z', str(value)):
                raise EasyBuildError("Easyconfig parameter 'network_env': the value of %s should be one line, without "
                                     "blanks at its ends, or None to unset it, found: %r", name, value)
        self.check_gpu_mpi_library()

    def check_gpu_mpi_library(self):
        """MPI that knows of GPUs needs the library for the GPUs that are there."""
        library, gpu = self.spec.gpu_mpi_library, self.spec.gpu
        if not library:
            return
        if gpu not in GPU_KINDS:
            raise EasyBuildError("Easyconfig parameter 'gpu_mpi_library' is set, so 'gpu' should say which kind of GPU "
                                 "(%s)", ', '.join(sorted(GPU_KINDS)))
        if not library.startswith('/') or not os.path.basename(library).startswith(GPU_KINDS[gpu].mpi_library):
            raise EasyBuildError("Easyconfig parameter 'gpu_mpi_library': for the GPU kind '%s' it should be the full "
                                 "path of a %s, found: %s", gpu, GPU_KINDS[gpu].mpi_library, library)
        if 'LD_PRELOAD' in self.spec.container_env:
            raise EasyBuildError("Easyconfig parameter 'gpu_mpi_library' is loaded with LD_PRELOAD, and "
                                 "'container_env' has a value for that: name the library there instead")

    @property
    def settings(self):
        """Text of the file beside the run scripts; a word, a name and a value in each line."""
        lines = ['# Written at installation, from the easyconfig; read by conda-python-distributed and %s.' %
                 os.path.basename(UNSET_SCRIPT)]
        for param in ('scheduler', 'gpu', 'gpu_visibility'):
            if getattr(self.spec, param):
                lines.append('%s %s' % (param, getattr(self.spec, param)))
        lines += ['unset %s' % name for name in self.spec.unset_variables]
        lines += ['set %s %s' % (name, value) for name, value in sorted(self.spec.network_env.items())
                  if value is not None]
        return ''.join(line + '\n' for line in lines)

    def module(self, module):
        """
        Return statements of a module that set what the network needs, as defaults (str).

        Plain variables: they reach the container as they are, and a person can change them. Variables to unset are
        unset when a container starts (UNSET_SCRIPT): on the host they are the caller's.

        Parameters
        ----------
        module : ModuleSyntax
            For the syntax of module files.
        """
        variables = sorted((name, str(value)) for name, value in self.spec.network_env.items() if value is not None)
        text = ''.join(module.default_env(name, value) for name, value in variables)
        return ('\n' + module.comment('What the network of this site needs.') + text) if text else ''
