##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
EasyBuild support for installing a container image with Python packages on top, implemented as an easyblock.
"""
import json
import os
import re

from easybuild.easyblocks.generic.containerinstall import INIT_NONE, ContainerInstall
from easybuild.easyblocks.generic.containerinstall import container_files, module_container_variable
from easybuild.easyblocks.generic.containerruntime import escape_bind, run_program
from easybuild.framework.easyconfig.default import CUSTOM
from easybuild.tools.build_log import EasyBuildError, dry_run_msg
from easybuild.tools.config import build_option
from easybuild.tools.filetools import copy_dir, mkdir, which, write_file
from easybuild.tools.utilities import trace_msg

USER_SOFTWARE = '/user-software'


class ContainerVenv(ContainerInstall):
    """
    Support for installing a container image with user software: a Python venv that sees the packages of the image.

    At install, besides what ContainerInstall does: the venv is made in the container, in the build directory (which
    a site can have on a fast local file system), bound at /user-software. With 'requirements' pip installs them, with
    the packages of the image as constraints, and the result becomes one SquashFS file; without, user-software is
    installed as a directory, to be extended by hand and packed with make-squashfs.

    At module load, on the node: user-software.squashfs is mounted at /user-software read-only, or else the directory
    user-software is bound there read-write, or else there is none and the image is used as it is.
    """

    SCRIPTS = ContainerInstall.SCRIPTS + ['bin/make-squashfs', 'bin/unmake-squashfs', 'share/ebsif/squashfs.bash']

    @staticmethod
    def extra_options(extra_vars=None):
        """Easyconfig parameters specific to container images with user software."""
        extra_vars = ContainerInstall.extra_options(extra_vars)
        extra_vars.update({
            'requirements': [None, "Python packages to install: the text of a requirements.txt, or a list of its "
                                   "lines", CUSTOM],
            'venv_name': [None, "Name of the venv in /user-software/venv (default: name in lower case)", CUSTOM],
        })
        return extra_vars

    def __init__(self, *args, **kwargs):
        """Check the parameters that can be checked without looking at the machine."""
        super().__init__(*args, **kwargs)
        if self.cfg['init'] == INIT_NONE:
            raise EasyBuildError("Easyconfig parameter 'init' is '%s': an image without Python can't have a venv. Use "
                                 "the easyblock ContainerInstall for it.", INIT_NONE)
        requirements = self.cfg.get_ref('requirements')
        lines = requirements if isinstance(requirements, (list, tuple)) else [requirements or '']
        if not all(isinstance(line, str) for line in lines):
            raise EasyBuildError("Easyconfig parameter 'requirements' should be a text or a list of texts, found: %s",
                                 requirements)
        if not re.match(r'[A-Za-z0-9_.+-]*[A-Za-z0-9_+-]\Z', self.venv_name):
            raise EasyBuildError("Easyconfig parameter 'venv_name': '%s' can't be the name of a venv (one directory: "
                                 "letters, digits, '_', '.', '+' and '-')", self.venv_name)

    # --- what follows from the easyconfig alone, also with --module-only

    @property
    def venv_name(self):
        """Name of the venv."""
        return self.cfg['venv_name'] or self.name.lower()

    @property
    def venv(self):
        """Path of the venv in the container."""
        return os.path.join(USER_SOFTWARE, 'venv', self.venv_name)

    @property
    def venv_python(self):
        """Path of the venv's Python in the container."""
        return os.path.join(self.venv, 'bin', 'python')

    @property
    def requirements_text(self):
        """The requirements as the bytes of a requirements.txt; empty if there are none."""
        requirements = self.cfg['requirements'] or ''
        if not isinstance(requirements, str):
            requirements = ''.join(line + '\n' for line in requirements)
        if not requirements.strip():
            return ''
        # the file pip reads ends in a newline whether or not the block did
        return requirements if requirements.endswith('\n') else requirements + '\n'

    def container_search_path(self):
        """The venv comes before the image; a directory that isn't there (no user software) does no harm on PATH."""
        path = super().container_search_path()
        return path[:1] + [os.path.join(self.venv, 'bin')] + path[1:]

    # --- steps

    def prepare_step(self, *args, **kwargs):
        """Check for the programs that pack and unpack user software."""
        super().prepare_step(*args, **kwargs)
        if self.dry_run or build_option('module_only'):
            return
        missing = [name for name in ('mksquashfs', 'unsquashfs') if not which(name, log_ok=False, on_error='ignore')]
        if missing:
            raise EasyBuildError("%s not found on PATH: install the package squashfs-tools, or run eb on a node that "
                                 "has it.", ' and '.join(missing))

    @property
    def user_software(self):
        """The directory that is /user-software while the installation goes on."""
        return os.path.join(self.builddir, 'user-software')

    def build_step(self):
        """Make the venv, check that it sees the packages of the image, install the requirements."""
        super().build_step()
        if self.dry_run:
            dry_run_msg("Making the venv %s in the container%s\n" % (
                self.venv, ', with these requirements:\n' + self.requirements_text if self.requirements_text else ''))
            return
        mkdir(self.user_software, parents=True)
        image_packages = self.packages('python3', venv=False)
        trace_msg("making the venv %s in the container" % self.venv)
        self.run_with_user_software(['python3', '-m', 'venv', '--system-site-packages', self.venv])
        venv_packages = self.packages(self.venv_python)
        self.check_image_is_seen(image_packages, venv_packages)
        if self.requirements_text:
            self.install_requirements(image_packages, venv_packages)
            venv_packages = self.packages(self.venv_python)
        self.lock['requirements'] = self.requirements_text
        self.lock['image_packages'] = pinned(image_packages)
        self.lock['venv_packages'] = pinned(
            {name: found for name, found in venv_packages.items() if found[2].startswith(USER_SOFTWARE + '/')})

    def run_with_user_software(self, command, user_software=None, **kwargs):
        """Run a command in the image with user software bound; by default the directory that is being made."""
        bind = escape_bind(user_software or self.user_software) + ':' + USER_SOFTWARE
        if user_software and os.path.isfile(user_software):
            bind += ':image-src=/,ro'
        return self.run_in_container(command, image=self.source_image, binds=[bind], **kwargs)

    def packages(self, python, venv=True, user_software=None):
        """
        Return the packages that a Python in the container sees.

        Parameters
        ----------
        python : str
            The interpreter, a name on PATH or a path in the container.
        venv : bool
            Whether /user-software has to be there.
        user_software : str, optional
            Directory or SquashFS file, see run_with_user_software.

        Returns
        -------
        dict
            Name in its normal form (PEP 503) to (name, version, directory in the container).
        """
        program = os.path.join(container_files(), 'share', 'ebsif', 'installed-packages.py')
        # through stdin: the image sees the build directory, not the place where EasyBuild keeps its easyblocks
        with open(program) as text:
            options = {'stdin': text.read(), 'split_stderr': True, 'hidden': True}
        if venv:
            result = self.run_with_user_software([python, '-'], user_software=user_software, **options)
        else:
            result = self.run_in_container([python, '-'], image=self.source_image, **options)
        found = {}
        for name, version, directory in json.loads(result.output):
            # the first on sys.path is the one that is imported
            found.setdefault(re.sub(r'[-_.]+', '-', name).lower(), (name, version, directory))
        return found

    def check_image_is_seen(self, image_packages, venv_packages):
        """
        Stop unless the venv sees every package of the image.

        Otherwise pip would fetch gigabytes of what the image has, built for other hardware, and call it a success.
        """
        unseen = sorted(name for name in image_packages if name not in venv_packages)
        if unseen:
            raise EasyBuildError(
                "The venv does not see %d of the %d packages of the image (%s%s). Its Python may be a venv itself "
                "(init = 'venv-in-image'), or set PYTHONPATH; nothing was installed.", len(unseen),
                len(image_packages), ', '.join(unseen[:5]), ', ...' if len(unseen) > 5 else '')
        trace_msg("the venv sees all %d packages of the image" % len(image_packages))

    def install_requirements(self, image_packages, venv_packages):
        """Install the requirements with the venv's own pip, which may not replace a package of the image."""
        requirements = os.path.join(self.builddir, 'requirements.txt')
        constraints = os.path.join(self.builddir, 'constraints.txt')
        write_file(requirements, self.requirements_text)
        # what the venv brought along itself (pip, on old Pythons setuptools) hides the image's and is free to change
        write_file(constraints, ''.join(line + '\n' for line in pinned(
            {name: found for name, found in image_packages.items() if venv_packages[name] == found})))

        pip = [self.venv_python, '-m', 'pip']
        version = self.run_with_user_software(pip + ['--version'], hidden=True).output
        if USER_SOFTWARE + '/' not in version:
            raise EasyBuildError("The pip of the venv is not in %s but here: %s", USER_SOFTWARE, version.strip())

        trace_msg("installing %d requirement lines with %s" % (
            len(self.requirements_text.strip().splitlines()), ' '.join(version.split()[:2])))
        self.run_with_user_software(
            pip + ['install', '--no-input', '--progress-bar', 'off', '-r', requirements, '-c', constraints],
            environment={'PIP_CACHE_DIR': os.environ.get('PIP_CACHE_DIR') or os.path.join(self.builddir, 'pip-cache')})

    def install_step(self):
        """Install the image, then user software: as one SquashFS file if there are requirements, else a directory."""
        super().install_step()
        target = os.path.join(self.installdir, 'user-software')
        if self.dry_run:
            dry_run_msg("Installing user software as %s\n" % (
                target + '.squashfs' if self.requirements_text else target))
        elif self.requirements_text:
            self.squash(target + '.squashfs')
        else:
            copy_dir(self.user_software, target, symlinks=True)

    def squash(self, squashfs):
        """Pack user software, then check that the container sees in the SquashFS file what it saw in the directory."""
        made = self.packages(self.venv_python)
        run_program([os.path.join(self.installdir, 'bin', 'make-squashfs'),
                     '-d', self.user_software, '-p', str(self.cfg.parallel)])
        packed = self.packages(self.venv_python, user_software=squashfs)
        if packed != made:
            raise EasyBuildError("The container does not see in %s what was installed: %d packages instead of %d",
                                 squashfs, len(packed), len(made))
        trace_msg("user software is %.1f MB in one file" % (os.path.getsize(squashfs) / 1e6))

    # --- module

    def module_more_binds(self, module):
        """User software, as it is found: the SquashFS file wins over the directory."""
        directory = os.path.join(self.installdir, 'user-software')
        squashfs = directory + '.squashfs'
        mount = ',%s:%s:image-src=/,ro' % (escape_bind(squashfs), USER_SOFTWARE)
        bind = ',%s:%s' % (escape_bind(directory), USER_SOFTWARE)
        return ''.join([
            module.comment('User software: the SquashFS file, read-only, else the directory, else none.'),
            module.declare('user_software', ''),
            module.when(module.is_file(squashfs), module.assign('user_software', mount), module.when(
                module.is_dir(directory), module.assign('user_software', bind))),
            module.when(module.is_set('user_software'), module.append_variable('container_binds', 'user_software')),
        ])

    def module_environment(self, module):
        """The environment of the image, and what activation of the venv would set where there is user software."""
        activated = ''.join(module_container_variable(module, name, value) for name, value in (
            ('VIRTUAL_ENV', self.venv), ('VIRTUAL_ENV_PROMPT', self.venv_name)))
        return super().module_environment(module) + \
            module.when_or_unloading(module.is_set('user_software'), activated)


def pinned(packages):
    """Return the packages found by ContainerVenv.packages as requirement lines, sorted."""
    return ['%s==%s' % packages[name][:2] for name in sorted(packages)]
