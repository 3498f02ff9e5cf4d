##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
EasyBuild support for installing a container image with Python packages on top, implemented as an easyblock.
"""
import contextlib
import os
import stat
from easybuild.easyblocks import generic
# Where --include-easyblocks links this file, what it needs is beside the file itself; an installed copy comes after it.
if os.path.dirname(os.path.realpath(__file__)) not in list(generic.__path__)[:2]:
    generic.__path__ = [os.path.dirname(__file__), os.path.dirname(os.path.realpath(__file__))] + list(generic.__path__)

from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.container.lint import Lint
from easybuild.easyblocks.generic.container.modulefile import CONSTRAINTS, VenvModuleFile
from easybuild.easyblocks.generic.container.packages import pip_version
from easybuild.easyblocks.generic.container.pip import Pip
from easybuild.easyblocks.generic.container.record import InstallRecord
from easybuild.easyblocks.generic.container.runtime import host_variables
from easybuild.easyblocks.generic.container.spec import NEEDED_ON_HOST, PROTECT_ALL, VenvSpec
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from easybuild.easyblocks.generic.container.stages import Stage
from easybuild.easyblocks.generic.container.texts import normal_name
from easybuild.easyblocks.generic.container.usersoftware import DIRECTORY, SQUASHFS, share_files
from easybuild.easyblocks.generic.container.venv import Venv
from easybuild.easyblocks.generic.containerinstall import ContainerInstall
from easybuild.framework.easyconfig.default import CUSTOM
from easybuild.tools.build_log import EasyBuildError, dry_run_msg
from easybuild.tools.config import build_option
from easybuild.tools.environment import restore_env
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, adjust_permissions, compute_checksum, copy_dir, mkdir
from easybuild.tools.filetools import which, write_file
from easybuild.tools.utilities import trace_msg

HEAVY_HERE_VARIABLE = 'EBSIF_HEAVY_HERE'


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

    HAS_USER_SOFTWARE = True
    SPEC = VenvSpec
    MODULE_FILE = VenvModuleFile

    @staticmethod
    def extra_options(extra_vars=None):
        """Easyconfig parameters specific to container images with user software."""
        extra_vars = ContainerInstall.extra_options(extra_vars)
        extra_vars.update({
            'image_packages': [{}, "Packages that the image should have, each with its exact version", CUSTOM],
            'protect': [PROTECT_ALL, "Packages of the image that requirements may not replace: '%s', or a list of "
                                     "names" % PROTECT_ALL, CUSTOM],
            'requirements': [None, "Python packages to install: the text of a requirements.txt, a list of its lines, "
                                   "a list of stages (dictionaries), or {'lock': FILE} to repeat an installation",
                             CUSTOM],
            'squashfs_options': [[], "Options for mksquashfs instead of those for the compression", CUSTOM],
            'venv_name': [None, "Name of the venv in /user-software/venv (default: name in lower case)", CUSTOM],
            'wheelhouse': [None, "Directory with all packages that are needed, to install without an index", CUSTOM],
        })
        return extra_vars

    def __init__(self, *args, **kwargs):
        """Nothing is known of the image yet."""
        super().__init__(*args, **kwargs)
        self.record_to_repeat = None
        self.venv = None
        self.image_packages = None
        self.installed_packages = None
        self.constraints = []

    @property
    def repeated(self):
        """The record of the installation that should be repeated, None if there is none (InstallRecord)."""
        requirements = self.spec.requirements
        if isinstance(requirements, dict) and self.record_to_repeat is None:
            # beside the easyconfig first; of one that --try-* has changed, EasyBuild knows a temporary directory only
            self.record_to_repeat = InstallRecord.to_repeat(self.obtain_file(requirements['lock'], no_download=True))
        return self.record_to_repeat

    @property
    def stages(self):
        """The stages of user software (list of Stage), in the order of installation."""
        return Stage.from_parameter(self.repeated['stages'] if self.repeated else self.spec.requirements)

    # --- steps

    def fetch_step(self, *args, **kwargs):
        """Find what requirements name as well."""
        super().fetch_step(*args, **kwargs)
        if self.spec.wheelhouse and not os.path.isdir(self.spec.wheelhouse):
            raise EasyBuildError("Easyconfig parameter 'wheelhouse': there is no directory %s. `ebsif wheelhouse` "
                                 "makes it, on a node with network.", self.spec.wheelhouse,
                                 exit_code=EasyBuildExit.MISSING_SOURCES)
        for stage in self.stages:
            for path in stage.local_paths:
                if not os.path.exists(path):
                    self.warn("stage '%s' needs %s, which is not on this machine: it has to be in the image, or one of "
                              "the stages makes it" % (stage.name, path))

    def needed_files(self):
        """Names of files that are needed besides the image (list of str)."""
        return super().needed_files() + [name for stage in self.stages for name in stage.patches]

    def prepare_step(self, *args, **kwargs):
        """Check for the programs that pack and unpack user software."""
        super().prepare_step(*args, **kwargs)
        if self.dry_run or build_option('module_only'):
            return
        self.keep_out_of_report([name for stage in self.stages for name in stage.variables])
        self.check_heavy_stages()
        if any(stage.patches for stage in self.stages) and not which('patch', log_ok=False, on_error='ignore'):
            raise EasyBuildError("patch not found on PATH, a stage has 'patches': install it, or run eb on a node that "
                                 "has it.", exit_code=EasyBuildExit.MISSING_SYSTEM_DEPENDENCY)
        missing = [name for name in ('mksquashfs', 'unsquashfs') if not which(name, log_ok=False, on_error='ignore')]
        if missing:
            raise EasyBuildError("%s not found on PATH: install the package squashfs-tools, or run eb on a node that "
                                 "has it.", ' and '.join(missing), exit_code=EasyBuildExit.MISSING_SYSTEM_DEPENDENCY)

    def check_heavy_stages(self):
        """Stop on a login node if there are heavy stages (S003-02): where jobs can be submitted, outside of one."""
        heavy = [stage.name for stage in self.stages if stage.heavy]
        names = [one.job_variable for one in SCHEDULERS.values()] + [HEAVY_HERE_VARIABLE]
        allowed = any(os.environ.get(name) for name in names)
        submit = any(which(one.submit[0], log_ok=False, on_error='ignore') for one in SCHEDULERS.values())
        if heavy and submit and not allowed:
            raise EasyBuildError("Stage '%s' is heavy, and this is no batch job. Submit one: `eb --job "
                                 "--job-backend=Slurm ...`, or `ebsif job --install EASYCONFIG`, which knows the "
                                 "site. (On a machine of your own: %s=1 eb ...)", heavy[0], HEAVY_HERE_VARIABLE)

    def start_image(self):
        """See which packages are in the image."""
        super().start_image()
        self.image_packages = self.probe.packages
        self.check_image_packages(self.image_packages)

    def check_image_packages(self, packages):
        """
        Stop if the image is not what the easyconfig says is in it (parameter 'image_packages').

        Versions are compared as a whole: 2.7.10 is not 2.7.1. A local label (+rocm6.2) counts only if one is named.
        """
        for name, wanted in sorted(self.spec.image_packages.items()):
            found = packages[normal_name(name)][1] if normal_name(name) in packages else None
            if found is None or wanted not in (found, found.split('+')[0]):
                raise EasyBuildError("Easyconfig parameter 'image_packages': the image %s has %s, not %s %s. Is it the "
                                     "image that is meant?", self.spec.image_name,
                                     '%s %s' % (name, found) if found else 'no %s' % name, name, wanted)

    def build_step(self):
        """Make the venv, check that it sees the packages of the image, install the requirements."""
        super().build_step()
        stages, repeated = self.stages, self.repeated
        if self.dry_run:
            dry_run_msg("Making the venv %s in the container\n" % self.spec.venv)
            for stage in stages:
                dry_run_msg("Installing stage '%s' with pip:\n%s" % (stage.name, stage.requirements))
            return
        image_packages = self.image_packages
        if repeated:
            repeated.check_before(image_packages.pins)
        # while the installation goes on, this is /user-software
        folder = os.path.join(self.builddir, 'user-software')
        mkdir(folder, parents=True)
        self.venv = Venv(self.container, folder, self.spec.venv)
        packages = self.venv.make(self.probe)
        # what the venv brought along itself (pip, on old Pythons setuptools) hides the image's and is free to change
        protected = image_packages.select(
            lambda name: packages[name] == image_packages[name] and self.is_protected(name))
        pip = Pip(self.venv, self.builddir, protected, repeated.pins if repeated else {}, self.spec.wheelhouse)
        for text in Lint(stages, image_packages, pip_version(packages)).findings:
            self.warn(text)
        for stage in stages:
            packages = self.install_stage(pip, stage, packages)
        self.installed_packages = packages
        self.constraints = pip.kept
        self.record['versions']['pip'] = pip_version(packages)
        self.record['artifacts'] = pip.artifacts
        self.record['venv_environment'] = self.venv.environment
        self.record['stages'] = [stage.record for stage in stages]
        self.record['venv_packages'] = packages.select(packages.in_user_software).pins
        self.record['local_files'] = {
            path: compute_checksum(path, CHECKSUM_TYPE_SHA256)
            for stage in stages for path in stage.local_paths + self.patch_files(stage) if os.path.isfile(path)}

    def install_stage(self, pip, stage, before):
        """Install a stage with what it needs of the host, and return the packages there are now (Packages)."""
        trace_msg("stage '%s'" % stage.name)
        with self.modules_loaded(stage.modules) as variables:
            packages = pip.install(stage, before, variables, self.patch_files(stage))
        for text in packages.added_since(before).for_other_gpu(packages):
            self.warn("stage '%s' installed %s" % (stage.name, text))
        return packages

    @contextlib.contextmanager
    def modules_loaded(self, modules):
        """Load environment modules of the host; the value is what they set, for a command in the container."""
        before = dict(os.environ)
        if modules:
            self.modules_tool.load(modules)
        try:
            yield host_variables(before, os.environ, self.spec.image_search_path)
        finally:
            if modules:
                restore_env(before)

    def patch_files(self, stage):
        """Find the patches of a stage, beside the easyconfig or where EasyBuild looks for sources (list of str)."""
        return [self.obtain_file(name) for name in stage.patches]

    def is_protected(self, name):
        """Whether a package of the image may not be replaced (easyconfig parameter 'protect')."""
        protect = self.spec.protect
        return protect == PROTECT_ALL or name in [normal_name(item) for item in protect]

    def install_additions(self):
        """Install user software: as one SquashFS file if there are requirements, else a directory."""
        target = os.path.join(self.installdir, DIRECTORY)
        stages = self.stages
        if self.dry_run:
            dry_run_msg("Installing user software as %s\n" % (target + '.squashfs' if stages else target))
            return
        group_writes = bool(build_option('group_writable_installdir'))
        if stages:
            self.venv.compile_bytecode(self.cfg.parallel)
        else:
            self.venv.fix_times()
        share_files(self.venv.folder, group_writes)
        if stages:
            self.squash()
        else:
            copy_dir(self.venv.folder, target, symlinks=True)
            # copying a directory's mode takes away what it had from the one around it
            share_files(target, group_writes, set_gid=bool(os.stat(self.installdir).st_mode & stat.S_ISGID))
        path = os.path.join(self.installdir, CONSTRAINTS)
        write_file(path, ''.join(line + '\n' for line in self.constraints))
        adjust_permissions(path, 0o644, relative=False)
        if self.repeated:
            self.repeated.check_after(self.record)
        super().install_additions()

    def squash(self):
        """Pack user software with the command that people have for it, too."""
        command = [os.path.join(self.installdir, 'bin', 'make-squashfs'), '-r', '-d', self.venv.folder,
                   '-p', str(self.cfg.parallel)]
        if self.spec.squashfs_options:
            command += ['--'] + list(self.spec.squashfs_options)
        self.venv.squash(command, os.path.join(self.installdir, SQUASHFS), self.installed_packages)

    def programs(self):
        """The programs of the venv, without what can't be a wrapper (list of str)."""
        return [name for name in self.venv.programs() if name not in NEEDED_ON_HOST]

    def run_installed(self, command, **kwargs):
        """Run a command in the container with the venv active."""
        return self.venv.run(command, environment=self.venv.activated({}), **kwargs)
