##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
EasyBuild support for installing a container image with Python packages on top, implemented as an easyblock.
"""
import glob
import hashlib
import json
import os
import re
import time

from easybuild.easyblocks.generic.containerdiagnosis import ContainerDiagnosis
from easybuild.easyblocks.generic.containerinstall import INIT_NONE, ContainerInstall
from easybuild.easyblocks.generic.containerinstall import container_files, module_container_variable
from easybuild.easyblocks.generic.containerpackages import USER_SOFTWARE, ContainerPackages, check_pip, normal_name
from easybuild.easyblocks.generic.containerruntime import RUNTIME_PREFIXES, escape_bind, escape_value, run_program
from easybuild.easyblocks.generic.containerstage import TEXTS, ContainerStage, is_of_kind
from easybuild.framework.easyconfig.default import CUSTOM
from easybuild.tools.build_log import EasyBuildError, EasyBuildExit, dry_run_msg, print_msg
from easybuild.tools.config import build_option
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, copy_dir, mkdir, remove_dir, which
from easybuild.tools.filetools import write_file
from easybuild.tools.run import RunShellCmdError
from easybuild.tools.utilities import nub, trace_msg

DIRECTORY = 'user-software'
SQUASHFS = 'user-software.squashfs'
PROTECT_ALL = 'all'
# of all files in user software, so that the same installation gives the same bytes (1980-01-01, what zip files allow)
FILE_TIME = 315532800


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
            'keep_user_software': [True, "When the module is installed again, set aside user software that was changed "
                                         "by hand since", CUSTOM],
            'protect': [PROTECT_ALL, "Packages of the image that requirements may not replace: '%s', or a list of "
                                     "names" % PROTECT_ALL, CUSTOM],
            'requirements': [None, "Python packages to install: the text of a requirements.txt, a list of its lines, "
                                   "or a list of stages (dictionaries)", CUSTOM],
            'venv_name': [None, "Name of the venv in /user-software/venv (default: name in lower case)", CUSTOM],
        })
        return extra_vars

    def __init__(self, *args, **kwargs):
        """Check the parameters that can be checked without looking at the machine."""
        super().__init__(*args, **kwargs)
        if self.cfg['init'] == INIT_NONE:
            raise EasyBuildError("Easyconfig parameter 'init' is '%s': an image without Python can't have a venv. Use "
                                 "the easyblock ContainerInstall for it.", INIT_NONE)
        # values that hold templates can be checked, they only can't be used yet
        ContainerStage.from_parameter(self.cfg.get_ref('requirements'))
        protect = self.cfg.get_ref('protect')
        if protect != PROTECT_ALL and not is_of_kind(protect, TEXTS):
            raise EasyBuildError("Easyconfig parameter 'protect' should be '%s' or a list of names of packages, "
                                 "found: %s", PROTECT_ALL, protect)
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
    def stages(self):
        """The stages of user software (list of ContainerStage), in the order of installation."""
        return ContainerStage.from_parameter(self.cfg['requirements'])

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
            dry_run_msg("Making the venv %s in the container\n" % self.venv)
            for stage in self.stages:
                dry_run_msg("Installing stage '%s' with pip:\n%s" % (stage.name, stage.requirements))
            return
        mkdir(self.user_software, parents=True)
        image_packages = self.packages('python3', venv=False)
        trace_msg("making the venv %s in the container" % self.venv)
        self.run_with_user_software(['python3', '-m', 'venv', '--system-site-packages', self.venv])
        packages = self.show_image_packages(image_packages)
        # what the venv brought along itself (pip, on old Pythons setuptools) hides the image's and is free to change
        protected = image_packages.select(
            lambda name: packages[name] == image_packages[name] and self.is_protected(name))
        for stage in self.stages:
            packages = self.install_stage(stage, protected)
            self.check_nothing_replaced(stage, protected, packages)
        self.lock['stages'] = [stage.record for stage in self.stages]
        self.lock['image_packages'] = image_packages.pins
        self.lock['venv_packages'] = packages.select(packages.in_user_software).pins
        self.lock['local_files'] = {
            path: compute_checksum(path, CHECKSUM_TYPE_SHA256)
            for stage in self.stages for path in stage.local_paths if os.path.isfile(path)}

    def is_protected(self, name):
        """Whether a package of the image may not be replaced (easyconfig parameter 'protect')."""
        protect = self.cfg['protect']
        return protect == PROTECT_ALL or name in [normal_name(item) for item in protect]

    def run_with_user_software(self, command, user_software=None, binds=(), **kwargs):
        """Run a command in the image with user software bound; by default the directory that is being made."""
        bind = escape_bind(user_software or self.user_software) + ':' + USER_SOFTWARE
        if user_software and os.path.isfile(user_software):
            bind += ':image-src=/,ro'
        return self.run_in_container(command, image=self.source_image, binds=[bind] + list(binds), **kwargs)

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
        ContainerPackages
        """
        program = os.path.join(container_files(), 'share', 'ebsif', 'installed-packages.py')
        # through stdin: the image sees the build directory, not the place where EasyBuild keeps its easyblocks
        with open(program) as text:
            options = {'stdin': text.read(), 'split_stderr': True, 'hidden': True}
        if venv:
            result = self.run_with_user_software([python, '-'], user_software=user_software, **options)
        else:
            result = self.run_in_container([python, '-'], image=self.source_image, **options)
        return ContainerPackages.from_output(result.output)

    def show_image_packages(self, image_packages):
        """
        Make sure that the venv sees every package of the image.

        Otherwise pip would fetch gigabytes of what the image has, built for other hardware, and call it a success.
        A venv made from a Python that is in a venv itself does not see that one's packages; a .pth file shows them,
        after the venv's own (PYTHONPATH would put them before).

        Parameters
        ----------
        image_packages : ContainerPackages
            The packages of the image.

        Returns
        -------
        ContainerPackages
            The packages the venv sees.

        Raises
        ------
        EasyBuildError
            If it still does not see all.
        """
        packages = self.packages(self.venv_python)
        unseen = [name for name in image_packages if name not in packages]
        if unseen:
            lines = nub(image_packages[name][2] for name in unseen)
            (folder,) = glob.glob(os.path.join(
                self.user_software, 'venv', self.venv_name, 'lib', 'python3*', 'site-packages'))
            write_file(os.path.join(folder, 'image-packages.pth'), ''.join(line + '\n' for line in lines))
            packages = self.packages(self.venv_python)
            unseen = sorted(name for name in image_packages if name not in packages)
        if unseen:
            raise EasyBuildError("The venv does not see %d of the %d packages of the image (%s%s), so pip would "
                                 "install them again. Nothing was installed.", len(unseen), len(image_packages),
                                 ', '.join(unseen[:5]), ', ...' if len(unseen) > 5 else '')
        trace_msg("the venv sees all %d packages of the image" % len(image_packages))
        return packages

    def install_stage(self, stage, protected):
        """
        Install one stage: its commands before, pip, its commands after, its checks.

        Parameters
        ----------
        stage : ContainerStage
        protected : ContainerPackages
            Packages of the image that pip may not replace.

        Returns
        -------
        ContainerPackages
            The packages there are now.
        """
        trace_msg("stage '%s'" % stage.name)
        where = {'environment': self.stage_environment(stage), 'binds': self.stage_binds(stage)}
        for command in stage.pre:
            self.run_stage_command(stage, 'pre', command, **where)
        pip = [self.venv_python, '-m', 'pip']
        if stage.upgrade_pip:
            self.run_pip(stage, pip + ['install', '--upgrade', 'pip'] + stage.pip_options, **where)
        if stage.requirements:
            version = self.run_with_user_software(pip + ['--version'], hidden=True).output
            check_pip(version)
            trace_msg("installing %d requirement lines with %s" % (
                len(stage.requirements.strip().splitlines()), ' '.join(version.split()[:2])))
            requirements, constraints = self.write_pip_files(stage, protected)
            # bytecode is made once, for all stages, when it's known what is there
            install = ['install', '--no-compile', '-r', requirements, '-c', constraints]
            self.run_pip(stage, pip + install + stage.pip_options, **where)
        for step in ('post', 'verify'):
            for command in getattr(stage, step):
                self.run_stage_command(stage, step, command, **where)
        return self.packages(self.venv_python)

    def write_pip_files(self, stage, protected):
        """Write requirements and constraints of a stage; return their paths."""
        folder = os.path.join(self.builddir, 'stages', re.sub(r'[^A-Za-z0-9_.-]', '_', stage.name))
        replaced = [normal_name(name) for name in stage.allow_replace]
        texts = {
            'requirements.txt': stage.requirements,
            'constraints.txt': ''.join(
                line + '\n' for line in protected.select(lambda name: name not in replaced).pins),
        }
        for name, text in texts.items():
            write_file(os.path.join(folder, name), text)
        return [os.path.join(folder, name) for name in texts]

    def stage_environment(self, stage):
        """Variables of a stage, which reach the container only: the runtime itself must not see them."""
        environment = {'PIP_CACHE_DIR': os.environ.get('PIP_CACHE_DIR') or os.path.join(self.builddir, 'pip-cache')}
        for name, value in stage.env.items():
            for prefix in RUNTIME_PREFIXES:
                environment['%sENV_%s' % (prefix, name)] = escape_value(value)
        return environment

    def stage_binds(self, stage):
        """Binds of a stage: the files and directories of this machine that its requirements name."""
        folders = []
        for path in stage.local_paths:
            folder = path if os.path.isdir(path) else os.path.dirname(path)
            # a path that is not here is one in the image, or pip will say that it is missing
            if os.path.exists(path) and folder not in folders:
                folders.append(folder)
        return [escape_bind(folder) for folder in folders]

    def run_pip(self, stage, command, **kwargs):
        """Run pip for a stage; when it fails, say what went wrong and what to do."""
        try:
            self.run_with_user_software(command + ['--no-input', '--progress-bar', 'off'], **kwargs)
        except RunShellCmdError as err:
            diagnosis = ContainerDiagnosis((err.output or '') + (err.stderr or ''))
            if not diagnosis.text:
                raise
            package = " (while it was busy with %s)" % diagnosis.package if diagnosis.package else ''
            raise EasyBuildError("pip failed in stage '%s'%s: %s. The output of pip is above and in the log.",
                                 stage.name, package, diagnosis.text, exit_code=EasyBuildExit.FAIL_BUILD_STEP)

    def run_stage_command(self, stage, step, command, **kwargs):
        """Run a command of a stage in the container; a text is a program for bash."""
        arguments = ['bash', '-c', command] if isinstance(command, str) else list(command)
        kwargs['environment'] = dict(kwargs['environment'], **self.venv_environment())
        try:
            self.run_with_user_software(arguments, **kwargs)
        except RunShellCmdError as err:
            raise EasyBuildError("Stage '%s': the command of '%s' failed with exit status %s: %s. Its output is above "
                                 "and in the log.", stage.name, step, err.exit_code, command,
                                 exit_code=EasyBuildExit.FAIL_BUILD_STEP)

    def venv_environment(self):
        """Variables that make the venv the active one at install time, as it is when the module is loaded."""
        path = ':'.join([os.path.join(self.venv, 'bin')] + self.image_search_path())
        return {'%sENV_%s' % (prefix, name): value for prefix in RUNTIME_PREFIXES
                for name, value in (('PREPEND_PATH', path), ('VIRTUAL_ENV', self.venv))}

    def check_nothing_replaced(self, stage, protected, packages):
        """
        Stop if a protected package of the image is hidden by one in user software, and remember what was allowed.

        Constraints keep pip from another version; they do not keep it from installing the same one again.
        """
        for name in sorted(protected):
            if not packages.in_user_software(name):
                continue
            if name not in [normal_name(item) for item in stage.allow_replace]:
                raise EasyBuildError("Stage '%s' installed %s==%s, which hides the one of the image (%s). Leave it "
                                     "out, or allow it for this stage with 'allow_replace': ['%s']", stage.name,
                                     packages[name][0], packages[name][1], protected[name][1], name,
                                     exit_code=EasyBuildExit.FAIL_BUILD_STEP)
            trace_msg("%s of the image was replaced: %s -> %s" % (name, protected[name][1], packages[name][1]))
            # later stages build on this one
            del protected[name]

    def make_installdir(self, *args, **kwargs):
        """Set what a user added by hand aside before EasyBuild erases the earlier installation."""
        if self.cfg['keep_user_software'] and not self.dry_run and os.path.exists(self.lock_path):
            self.set_changed_user_software_aside()
        super().make_installdir(*args, **kwargs)

    def set_changed_user_software_aside(self):
        """Move directory or SquashFS file out of the earlier installation unless it is as it was installed."""
        with open(self.lock_path) as lock:
            installed = json.load(lock).get('user_software', {})
        stamp = time.strftime('%Y%m%d-%H%M%S')
        for name in (DIRECTORY, SQUASHFS):
            path = os.path.join(self.installdir, name)
            if os.path.lexists(path) and fingerprint(path) != installed.get(name):
                # beside the installation: on the same file system, a rename can't fail half-way
                aside = '%s.%s.%s' % (self.installdir, stamp, name)
                os.rename(path, aside)
                print_msg("user software of the earlier installation was changed by hand since; it is kept at %s",
                          aside, log=self.log)

    def install_step(self):
        """Install the image, then user software: as one SquashFS file if there are requirements, else a directory."""
        super().install_step()
        target = os.path.join(self.installdir, DIRECTORY)
        if self.dry_run:
            dry_run_msg("Installing user software as %s\n" % (
                target + '.squashfs' if self.stages else target))
            return
        if self.stages:
            self.squash(target + '.squashfs')
        else:
            copy_dir(self.user_software, target, symlinks=True)
        self.lock['user_software'] = {
            name: fingerprint(os.path.join(self.installdir, name)) for name in (DIRECTORY, SQUASHFS)
            if os.path.exists(os.path.join(self.installdir, name))}
        self.write_lock()

    def squash(self, squashfs):
        """Pack user software, then check that the container sees in the SquashFS file what it saw in the directory."""
        made = self.packages(self.venv_python)
        self.compile_bytecode()
        run_program([os.path.join(self.installdir, 'bin', 'make-squashfs'),
                     '-d', self.user_software, '-p', str(self.cfg.parallel)],
                    env=dict(os.environ, SOURCE_DATE_EPOCH=str(FILE_TIME)))
        packed = self.packages(self.venv_python, user_software=squashfs)
        if packed != made:
            raise EasyBuildError("The container does not see in %s what was installed: %d packages instead of %d",
                                 squashfs, len(packed), len(made))
        trace_msg("user software is %.1f MB in one file" % (os.path.getsize(squashfs) / 1e6))

    def compile_bytecode(self):
        """
        Compile the venv's Python files, with the same result for the same files.

        Bytecode names the time of its source file, so that is fixed first; what pip and venv have compiled goes.
        """
        for folder, folders, _ in os.walk(self.user_software):
            if '__pycache__' in folders:
                folders.remove('__pycache__')
                remove_dir(os.path.join(folder, '__pycache__'))
        set_file_times(self.user_software)
        # some packages hold files for another Python, or templates, which don't compile: they are not imported either
        self.run_with_user_software(
            [self.venv_python, '-m', 'compileall', '-qq', '-j', str(self.cfg.parallel), os.path.join(self.venv, 'lib')],
            fail_on_error=False, hidden=True)
        set_file_times(self.user_software)

    # --- module

    def module_more_binds(self, module):
        """User software, as it is found: the SquashFS file wins over the directory."""
        directory = os.path.join(self.installdir, DIRECTORY)
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


def set_file_times(path):
    """Give everything below a directory, itself and links included, the same time of last change."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files + folders:
            os.utime(os.path.join(folder, name), (FILE_TIME, FILE_TIME), follow_symlinks=False)
    os.utime(path, (FILE_TIME, FILE_TIME))


def fingerprint(path):
    """
    Return what changes when a user changes user software: SHA256 of a file, or of a list of what is in a directory.

    For a directory names, kinds, sizes and link targets count, not contents: reading tens of thousands of small files
    takes minutes on a parallel file system. Bytecode does not count, Python writes it when it likes.
    """
    if os.path.isfile(path):
        return compute_checksum(path, CHECKSUM_TYPE_SHA256)
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name != '__pycache__')
        for name in sorted(files + folders):
            entry = os.path.join(folder, name)
            what = os.readlink(entry) if os.path.islink(entry) else os.path.isdir(entry) or os.path.getsize(entry)
            digest.update(repr((os.path.relpath(entry, path), what)).encode('utf-8', 'surrogateescape'))
    return digest.hexdigest()
