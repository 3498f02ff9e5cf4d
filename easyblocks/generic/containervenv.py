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
import glob
import os
import stat
from easybuild.easyblocks import generic
# Where --include-easyblocks links this file, what it needs is beside the file itself; an installed copy comes after it.
if os.path.dirname(os.path.realpath(__file__)) not in list(generic.__path__)[:2]:
    generic.__path__ = [os.path.dirname(__file__), os.path.dirname(os.path.realpath(__file__))] + list(generic.__path__)

from easybuild.easyblocks.generic.container.diagnosis import Diagnosis
from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.containerinstall import ContainerInstall
from easybuild.easyblocks.generic.container.lint import Lint
from easybuild.easyblocks.generic.container.modulefile import CONSTRAINTS, PLACE_VARIABLE, VenvModuleFile
from easybuild.easyblocks.generic.container.record import InstallRecord
from easybuild.easyblocks.generic.container.packages import USER_SOFTWARE, Packages, normal_name, pip_version
from easybuild.easyblocks.generic.container.pip import Pip
from easybuild.easyblocks.generic.container.runtime import RUNTIME_PREFIXES, escape_bind, escape_value, host_variables
from easybuild.easyblocks.generic.container.runtime import run_program
from easybuild.easyblocks.generic.container.scripts import FILES, NO_PIP_TO_COPY, PACKED
from easybuild.easyblocks.generic.container.scripts import program_for_image, sh_command
from easybuild.easyblocks.generic.container.spec import NEEDED_ON_HOST, PROTECT_ALL, VenvSpec
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from easybuild.easyblocks.generic.container.stages import Stage
from easybuild.easyblocks.generic.container.usersoftware import DIRECTORY, FILE_TIME, SQUASHFS, remove_bytecode
from easybuild.easyblocks.generic.container.usersoftware import set_file_times, share_files
from easybuild.framework.easyconfig.default import CUSTOM
from easybuild.tools.build_log import EasyBuildError, dry_run_msg
from easybuild.tools.config import ERROR, build_option
from easybuild.tools.environment import restore_env
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, copy_dir, copy_file, mkdir
from easybuild.tools.filetools import adjust_permissions, apply_regex_substitutions, which, write_file
from easybuild.tools.utilities import nub, trace_msg

HEAVY_HERE_VARIABLE = 'EBSIF_HEAVY_HERE'

ENSUREPIP = ['-Im', 'ensurepip', '--upgrade', '--default-pip']


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
        self.image_packages = None
        self.installed_packages = None
        self.constraints = []

    # --- what follows from the easyconfig, and from what it names

    @property
    def venv(self):
        """Path of the venv in the container."""
        return self.spec.venv

    @property
    def venv_python(self):
        """Path of the venv's Python in the container."""
        return os.path.join(self.venv, 'bin', 'python')

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

    @property
    def user_software(self):
        """The directory that is /user-software while the installation goes on."""
        return os.path.join(self.builddir, 'user-software')

    def build_step(self):
        """Make the venv, check that it sees the packages of the image, install the requirements."""
        super().build_step()
        stages, repeated = self.stages, self.repeated
        if self.dry_run:
            dry_run_msg("Making the venv %s in the container\n" % self.venv)
            for stage in stages:
                dry_run_msg("Installing stage '%s' with pip:\n%s" % (stage.name, stage.requirements))
            return
        mkdir(self.user_software, parents=True)
        image_packages = self.image_packages
        if repeated:
            repeated.check_before(image_packages.pins)
        packages = self.make_venv(image_packages)
        # what the venv brought along itself (pip, on old Pythons setuptools) hides the image's and is free to change
        protected = image_packages.select(
            lambda name: packages[name] == image_packages[name] and self.is_protected(name))
        pip = Pip(self, protected, repeated.pins if repeated else {}, self.spec.wheelhouse)
        for text in Lint(stages, image_packages, pip_version(packages)).findings:
            self.warn(text)
        for stage in stages:
            packages = pip.install(stage, packages)
        self.installed_packages = packages
        self.constraints = pip.kept
        self.record['versions']['pip'] = pip_version(packages)
        self.record['artifacts'] = pip.artifacts
        self.record.setdefault('venv_environment', {})
        self.record['stages'] = [stage.record for stage in stages]
        self.record['venv_packages'] = packages.select(packages.in_user_software).pins
        self.record['local_files'] = {
            path: compute_checksum(path, CHECKSUM_TYPE_SHA256)
            for stage in stages for path in stage.local_paths + self.patch_files(stage) if os.path.isfile(path)}

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

    def is_protected(self, name):
        """Whether a package of the image may not be replaced (easyconfig parameter 'protect')."""
        protect = self.spec.protect
        return protect == PROTECT_ALL or name in [normal_name(item) for item in protect]

    # --- the venv

    def make_venv(self, image_packages):
        """
        Make the venv in the container, and make sure that it sees every package of the image.

        Otherwise pip would fetch gigabytes of what the image has, built for other hardware, and call it a success.
        A venv made from a Python that is in a venv itself does not see that one's packages; a .pth file shows them,
        after the venv's own (PYTHONPATH would put them before).

        Parameters
        ----------
        image_packages : Packages
            The packages of the image.

        Returns
        -------
        Packages
            The packages the venv sees.

        Raises
        ------
        EasyBuildError
            If it still does not see all.
        """
        trace_msg("making the venv %s in the container" % self.venv)
        result = self.run_with_user_software(sh_command('make-venv.sh', self.venv, str(FILE_TIME)),
                                             stdin=program_for_image('copy-pip.py'), fail_on_error=False, hidden=True)
        if result.exit_code == NO_PIP_TO_COPY:
            for pip in self.ways_to_pip():
                result = self.run_with_user_software(sh_command('make-venv-with.sh', self.venv, *pip),
                                                     fail_on_error=False)
                if result.exit_code == 0:
                    break
            if result.exit_code == 0:
                configuration = os.path.join(self.user_software, 'venv', self.spec.venv_name, 'pyvenv.cfg')
                apply_regex_substitutions(
                    configuration, [(r'^(include-system-site-packages) = false$', r'\1 = true')],
                    backup=False, on_missing_match=ERROR)
        if result.exit_code:
            diagnosis = Diagnosis(result.output, '')
            raise EasyBuildError("The venv can't be made in the container%s. It said: %s",
                                 ': ' + diagnosis.text if diagnosis.text else '', result.output[-1000:])
        packages = self.packages(self.venv_python)
        # where this Python looks, whatever it is called there (lib64, python3.14t)
        folder = os.path.join(self.user_software, os.path.relpath(packages.purelib, USER_SOFTWARE))
        for path in sorted(glob.glob(os.path.join(glob.escape(FILES), 'site-packages', 'ebsif_*'))):
            copy_file(path, os.path.join(folder, os.path.basename(path)))
        if image_packages.python_path:
            # Python looks there before it looks into the venv; an upgrade in the venv would not be used
            self.record['venv_environment'] = {
                'PYTHONPATH': ':'.join([packages.purelib, image_packages.python_path])}
            packages = self.packages(self.venv_python)

        unseen = [name for name in image_packages if name not in packages]
        if unseen:
            lines = nub(image_packages[name][2] for name in unseen)
            write_file(os.path.join(folder, 'image-packages.pth'), ''.join(line + '\n' for line in lines))
            packages = self.packages(self.venv_python)
            unseen = sorted(name for name in image_packages if name not in packages)
        if unseen:
            raise EasyBuildError("The venv does not see %d of the %d packages of the image (%s%s), so pip would "
                                 "install them again. Nothing was installed.", len(unseen), len(image_packages),
                                 ', '.join(unseen[:5]), ', ...' if len(unseen) > 5 else '')
        trace_msg("the venv sees all %d packages of the image" % len(image_packages))
        programs = self.run_with_user_software([self.venv_python, '-'], stdin=program_for_image('image-programs.py'),
                                               hidden=True, split_stderr=True).output.split()
        trace_msg("programs of the image that run in the venv: %d" % len(programs))
        return packages

    def activated(self, environment):
        """Return variables of a command (dict) and those that make the venv active, as when the module is loaded."""
        variables = dict(environment)
        for prefix in RUNTIME_PREFIXES:
            path = environment.get(prefix + 'ENV_PREPEND_PATH') or escape_value(':'.join(self.spec.image_search_path))
            variables[prefix + 'ENV_PREPEND_PATH'] = ':'.join(filter(None, [os.path.join(self.venv, 'bin'), path]))
            variables[prefix + 'ENV_VIRTUAL_ENV'] = self.venv
        return variables

    def ways_to_pip(self):
        """
        Return how a venv can get a pip other than the image's: arguments for its Python, the best first.

        The image's ensurepip; or, where a distribution has that in a package of its own, or a Python was made without,
        a wheel of pip that is on this machine.

        Returns
        -------
        list of list of str

        Raises
        ------
        EasyBuildError
            If there is none.
        """
        ways = [] if 'ensurepip' in self.probe.python['missing'] else [ENSUREPIP]
        if self.probe.pip_wheel:
            wheel = os.path.join(self.builddir, os.path.basename(self.probe.pip_wheel))
            copy_file(self.probe.pip_wheel, wheel)
            ways.append(['-I', os.path.join(wheel, 'pip'), 'install', '--no-index', '--ignore-installed', wheel])
        if not ways:
            raise EasyBuildError("The image %s can't have a venv: %s.", self.spec.image_name, self.probe.no_pip)
        return ways

    def run_with_user_software(self, command, user_software=None, binds=(), environment=None, **kwargs):
        """Run a command in the image with user software bound; by default the directory that is being made."""
        bind = escape_bind(user_software or self.user_software) + ':' + USER_SOFTWARE
        if user_software and os.path.isfile(user_software):
            bind += ':image-src=/,ro'
        variables = {'%sENV_%s' % (prefix, name): escape_value(value) for prefix in RUNTIME_PREFIXES
                     for name, value in self.record.get('venv_environment', {}).items()}
        variables.update(environment or {})
        return self.run_in_container(command, image=self.source_image, binds=[bind] + list(binds),
                                     environment=variables, **kwargs)

    def packages(self, python, user_software=None):
        """
        Return the packages that a Python in the container sees.

        Parameters
        ----------
        python : str
            The interpreter, a name on PATH or a path in the container.
        user_software : str, optional
            Directory or SquashFS file, see run_with_user_software.

        Returns
        -------
        Packages
        """
        result = self.run_with_user_software([python, '-'], user_software=user_software, split_stderr=True, hidden=True,
                                             stdin=program_for_image('installed-packages.py'))
        return Packages.from_output(result.output)

    # --- what stages need of the host

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

    # --- installation

    def install_additions(self):
        """Install user software: as one SquashFS file if there are requirements, else a directory."""
        target = os.path.join(self.installdir, DIRECTORY)
        if self.dry_run:
            dry_run_msg("Installing user software as %s\n" % (
                target + '.squashfs' if self.stages else target))
            return
        group_writes = bool(build_option('group_writable_installdir'))
        if self.stages:
            self.compile_bytecode()
        else:
            self.fix_times()
        share_files(self.user_software, group_writes)
        if self.stages:
            self.squash(os.path.join(self.installdir, SQUASHFS))
        else:
            copy_dir(self.user_software, target, symlinks=True)
            # copying a directory's mode takes away what it had from the one around it
            share_files(target, group_writes, set_gid=bool(os.stat(self.installdir).st_mode & stat.S_ISGID))
        path = os.path.join(self.installdir, CONSTRAINTS)
        write_file(path, ''.join(line + '\n' for line in self.constraints))
        adjust_permissions(path, 0o644, relative=False)
        if self.repeated:
            self.repeated.check_after(self.record)
        super().install_additions()

    def programs(self):
        """
        The programs of the venv, with those of the image that run in it (list of str).

        Those for activating it by hand are left out, and what can't be a wrapper. The container tells which files are
        programs: on the host the links to the image's Python lead nowhere.
        """
        names = self.run_with_user_software(sh_command('list-programs.sh', os.path.join(self.venv, 'bin')),
                                            hidden=True, split_stderr=True).output.splitlines()
        return [name for name in names if not name.lower().startswith('activate') and name not in NEEDED_ON_HOST]

    def run_installed(self, command, **kwargs):
        """Run a command in the container with the venv active."""
        return self.run_with_user_software(command, environment=self.activated({}), **kwargs)

    def squash(self, squashfs):
        """Pack user software, then check that the container sees in the SquashFS file what it saw in the directory."""
        made = self.installed_packages
        command = [os.path.join(self.installdir, 'bin', 'make-squashfs'), '-r', '-d', self.user_software,
                   '-p', str(self.cfg.parallel)]
        if self.spec.squashfs_options:
            command += ['--'] + list(self.spec.squashfs_options)
        # the image: to try whether the runtime here can mount what is made
        environment = dict(self.install_environment(), SOURCE_DATE_EPOCH=str(FILE_TIME), SIF=self.source_image)
        environment.pop(PLACE_VARIABLE, None)
        result = run_program(command, env=environment)
        for line in result.output.splitlines():
            if line.startswith(PACKED):
                trace_msg(line.replace(self.installdir + os.sep, '').split(': ', 1)[1])
        packed = self.packages(self.venv_python, user_software=squashfs)
        if packed != made:
            raise EasyBuildError("The container does not see in %s what was installed: %d packages instead of %d",
                                 squashfs, len(packed), len(made))
        trace_msg("user software is %.1f MB in one file" % (os.path.getsize(squashfs) / 1e6))

    def fix_times(self):
        """Give all files one time, so that a later change shows; bytecode that was made for another time goes."""
        remove_bytecode(self.user_software)
        set_file_times(self.user_software)

    def compile_bytecode(self):
        """
        Compile the venv's Python files, with the same result for the same files.

        Bytecode names the time of its source file, so that is fixed first. What was compiled meanwhile goes; that of
        the image's pip came with it and stays.
        """
        self.fix_times()
        self.run_with_user_software(
            [self.venv_python, '-', str(self.cfg.parallel), os.path.join(self.venv, 'lib')],
            stdin=program_for_image('compile-bytecode.py'), fail_on_error=False, hidden=True)
        set_file_times(self.user_software)
