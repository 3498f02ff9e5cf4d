##
# Copyright 2026 The authors of ebsif
#
# This file is proposed for EasyBuild,
# https://github.com/easybuilders/easybuild
#
# EasyBuild is free software: you can redistribute it and/or modify
# it under the terms of the GNU General Public License as published by
# the Free Software Foundation v2.
#
# EasyBuild is distributed in the hope that it will be useful,
# but WITHOUT ANY WARRANTY; without even the implied warranty of
# MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.  See the
# GNU General Public License for more details.
#
# You should have received a copy of the GNU General Public License
# along with EasyBuild.  If not, see <http://www.gnu.org/licenses/>.
##
"""
EasyBuild support for installing a container image as a module, implemented as an easyblock
"""
import os
import re
import stat

from easybuild.framework.easyblock import EasyBlock
from easybuild.framework.easyconfig import CUSTOM
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import adjust_permissions, copy_file, which, write_file
from easybuild.tools.utilities import trace_msg

RUNTIMES = ['apptainer', 'singularity']

WRAPPER = """#!/bin/sh
# runs %(program)s in the container image of %(module)s
exec %(runtime)s exec "$(dirname "$(readlink -f "$0")")/../%(image)s" %(program)s "$@"
"""


class ContainerImage(EasyBlock):
    """
    Support for installing a container image (a SIF file) as a module.

    At install time, the image, which is the only source, is copied into the installation directory.
    At load time, the module sets $SIF to the path of the image, adds bind mounts and environment variables for the
    container, and puts wrappers for programs in the image on $PATH; the user's own settings stay in use.
    """

    @staticmethod
    def extra_options(extra_vars=None):
        """Extra easyconfig parameters specific to ContainerImage easyblock."""
        extra_vars = EasyBlock.extra_options(extra_vars)
        extra_vars.update({
            'binds': [[], "Bind mounts for the container, source[:target[:options]] with full paths", CUSTOM],
            'container_env': [{}, "Environment variables to set in the container", CUSTOM],
            'wrappers': [[], "Names of programs in the image for which to install a wrapper", CUSTOM],
        })
        return extra_vars

    def __init__(self, *args, **kwargs):
        """Initialize ContainerImage-specific variables, and check custom easyconfig parameters."""
        super().__init__(*args, **kwargs)

        self.image = '%s-%s%s.sif' % (self.name, self.version, self.cfg['versionsuffix'])

        if len(self.cfg['sources']) > 1:
            raise EasyBuildError("ContainerImage installs a single image, found %d sources", len(self.cfg['sources']))
        for bind in self.cfg['binds']:
            if not bind.startswith('/') or ',' in bind:
                raise EasyBuildError("Bind mount must start with a full path, and can't contain a comma: %s", bind)
        for wrapper in self.cfg['wrappers']:
            if not re.match(r'^[\w.+-]+$', wrapper):
                raise EasyBuildError("Wrapper must be the name of a program, without directory: %s", wrapper)

    @property
    def runtime(self):
        """Name of the container runtime."""
        for runtime in RUNTIMES:
            if which(runtime, log_ok=False, on_error='ignore'):
                return runtime
        raise EasyBuildError("No container runtime found in $PATH: %s", ' or '.join(RUNTIMES))

    def extract_step(self):
        """No extraction, the image is installed as it is."""
        for src in self.src:
            src['finalpath'] = self.builddir

    def configure_step(self):
        """Find the container runtime before anything is copied."""
        trace_msg("container runtime: %s" % self.runtime)

    def build_step(self):
        """No build, the image is installed as it is."""
        pass

    def install_step(self):
        """Copy the image, and write wrappers."""
        if not self.src:
            raise EasyBuildError("No container image specified in 'sources'")
        copy_file(self.src[0]['path'], os.path.join(self.installdir, self.image))

        for program in self.cfg['wrappers']:
            wrapper = os.path.join(self.installdir, 'bin', program)
            write_file(wrapper, WRAPPER % {
                'image': self.image,
                'module': self.full_mod_name,
                'program': program,
                'runtime': self.runtime,
            })
            adjust_permissions(wrapper, stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)

    def sanity_check_step(self, *args, **kwargs):
        """Custom sanity check: the runtime can read the image, which has the programs with wrappers."""
        kwargs.setdefault('custom_paths', {
            'files': [self.image] + [os.path.join('bin', program) for program in self.cfg['wrappers']],
            'dirs': [],
        })
        commands = ['%s inspect "$SIF"' % self.runtime]
        commands += ['%s exec "$SIF" sh -c "command -v %s"' % (self.runtime, prog) for prog in self.cfg['wrappers']]
        kwargs.setdefault('custom_commands', commands)
        super().sanity_check_step(*args, **kwargs)

    def sanity_check_rpath(self, *args, **kwargs):
        """Skip the RPATH sanity check, nothing in an image uses libraries installed with EasyBuild."""
        self.log.info("RPATH sanity check is skipped when using %s easyblock", self.__class__.__name__)

    def make_module_extra(self, *args, **kwargs):
        """Add the location of the image, bind mounts and environment variables for the container to the module."""
        txt = super().make_module_extra(*args, **kwargs)

        txt += self.module_generator.set_environment('SIF', self.image, relpath=True)
        for runtime in [name.upper() for name in RUNTIMES]:
            # $..._BINDPATH is merged with $..._BIND, which is left to the user
            txt += self.module_generator.append_paths('%s_BINDPATH' % runtime, self.cfg['binds'], allow_abs=True,
                                                      delim=',')
            for key, value in sorted(self.cfg['container_env'].items()):
                txt += self.module_generator.set_environment('%sENV_%s' % (runtime, key), value)
        return txt
