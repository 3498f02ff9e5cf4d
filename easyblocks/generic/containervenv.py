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
import functools
import os
import stat
from typing import Dict, Iterator, List, Optional, Tuple, cast

# first, because with --include-easyblocks it makes the package 'container' known
from .containerinstall import ContainerInstall

from .container.record import lockfile
from .container.build import VenvBuild
from .container.framework import EasyBuildExit
from .container.copying import copy_hashed
from .container.overlay import check_squashfs_tools
from .container.messages import ADDED, IMPORTING, STAYING
from .container.packages import InstalledPackages, gpu_of, pip_version
from .container.pip import Pip
from .container.permissions import set_mode, write_readable
from .container.scripts import NEEDED_ON_HOST, commands_of_host
from .container.probe import ImageProbe
from .container.record.installation import InstallRecord
from .container.requirements import lock_of, squashfs_of
from .container.runtime import host_variables
from .container.spec import CONSTRAINTS, OVERRIDES, VenvSpec
from .container.schedulers import SCHEDULERS
from .container.stages import PipStage, find_mistakes
from .container.smoketest import SmokeTest, try_out
from .container.usersoftware import UserSoftware
from .container.values import DIRECTORY, SQUASHFS
from .container.usersoftware import set_file_times, share_files
from .container.venv import Reuse, Venv
from easybuild.framework.easyconfig.easyconfig import EasyConfig
from easybuild.tools.build_log import EasyBuildError, dry_run_msg
from easybuild.tools.config import build_option
from easybuild.tools.environment import restore_env
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, copy_dir, mkdir, which
from easybuild.tools.utilities import trace_msg

HEAVY_HERE_VARIABLE = 'EBSIF_HEAVY_HERE'


class ContainerVenv(ContainerInstall):
    """
    Support for installing a container image with user software: a Python venv that sees the packages of the image.

    At installation, in addition to ContainerInstall: the venv is created in the container, in the build directory
    (which can be on a fast local file system), bound at /user-software. With 'requirements', pip installs them with
    those packages of the image as constraints that belong to the machine, and the result becomes one SquashFS file.
    Without, user-software is installed as a directory, to which users can add packages and which make-squashfs packs.

    At module load, on the node: user-software.squashfs is mounted read-only at /user-software; if there is none, the
    directory user-software is bound there read-write; if there is none either, the image is used as it is.
    """

    SPEC = VenvSpec
    BUILD = VenvBuild
    build: VenvBuild

    def __init__(self, ec: EasyConfig, logfile: Optional[str] = None) -> None:
        """Start without knowledge of the image."""
        super().__init__(ec, logfile)
        self.record_to_repeat: Optional[InstallRecord] = None
        self.current_pins: Optional[List[str]] = None

    @property
    def spec(self) -> VenvSpec:
        """What follows from the easyconfig in the current step, with user software."""
        return cast(VenvSpec, super().spec)

    def find_repeated(self) -> Optional[InstallRecord]:
        """Return the record of the installation to repeat, None if there is none."""
        lock = lock_of(self.spec.requirements)
        if lock and self.record_to_repeat is None:
            self.record_to_repeat = InstallRecord.read_repeatable(self.obtain_or_keep(lock, lockfile.RECORD))
        return self.record_to_repeat

    def obtain_or_keep(self, name: str, own_copy: str) -> str:
        """
        Find a file of the installation to repeat; return its path.

        ``name`` is next to the easyconfig (with --try-* that is in a temporary directory) or on the source path. If it
        is missing, the installation itself may have it as ``own_copy`` (relative path), where EasyBuild's copy of the
        easyconfig finds it.
        """
        path = os.path.join(self.reinstallation.place, own_copy)
        found = self.obtain_file(name, no_download=True, warning_only=True)
        if not found and not os.path.isfile(path):
            raise EasyBuildError("Couldn't find %s, which 'requirements' names: put it there, or on the source path.",
                                 os.path.join(os.path.dirname(self.cfg.path), name),
                                 exit_code=EasyBuildExit.MISSING_SOURCES)
        return found or path

    def stages(self) -> List[PipStage]:
        """The stages of user software, in the order of installation."""
        repeated = self.find_repeated()
        return PipStage.from_parameter(repeated.stages if repeated else self.spec.requirements)

    def stages_for_pip(self) -> List[PipStage]:
        """Return the stages that pip installs: none of them if user software is taken from a SquashFS file."""
        return [] if squashfs_of(self.spec.requirements) else self.stages()

    def find_record(self) -> InstallRecord:
        """Return the record; with --module-only that of the existing installation, with its current packages (E-08)."""
        record = super().find_record()
        if build_option('module_only') and record and not self.record:
            if self.current_pins is None:
                users = UserSoftware(self.installdir, record)
                self.current_pins = users.pins() if users.changed() else record.venv_packages
            record.venv_packages = self.current_pins
        return record

    # --- steps

    def fetch_step(self, skip_checksums: bool = False) -> None:
        """Also check for the local files that requirements name."""
        super().fetch_step(skip_checksums)
        self.fetch_squashfs()
        for stage in self.stages_for_pip():
            for path in stage.local_paths():
                if not os.path.exists(path):
                    self.warn("stage '%s' needs %s, which is not on this machine: it must be in the image, or an "
                              "earlier stage must create it" % (stage.name, path))

    def fetch_squashfs(self) -> None:
        """Find the SquashFS file that becomes user software, and compare it with the lock (R-03)."""
        name = squashfs_of(self.spec.requirements)
        if not name or build_option('module_only'):
            return
        self.build.squashfs = self.obtain_or_keep(name, SQUASHFS)
        self.check_squashfs(compute_checksum(self.build.squashfs, CHECKSUM_TYPE_SHA256))

    def check_squashfs(self, found: str) -> None:
        """Compare the SHA256 of the SquashFS file that becomes user software with the lock."""
        wanted = (self.find_repeated() or InstallRecord()).user_software.get(SQUASHFS)
        if found != wanted:
            raise EasyBuildError("%s is not the user software of the lock: its SHA256 is %s, in the lock it is %s. Get "
                                 "both files again.", self.build.squashfs, found, wanted,
                                 exit_code=EasyBuildExit.FAIL_CHECKSUM)

    def needed_files(self) -> List[str]:
        """Names of required files besides the image."""
        return super().needed_files() + [name for stage in self.stages_for_pip() for name in stage.patches]

    # no type hints of the arguments: easybuild-easyblocks has a test that looks for this text
    def prepare_step(self, *args, **kwargs) -> None:
        """Also check for the programs that patch sources, and pack and unpack user software."""
        super().prepare_step(*args, **kwargs)
        if self.dry_run or build_option('module_only'):
            return
        self.check_heavy_stages()
        has_patches = any(stage.patches for stage in self.stages_for_pip())
        if has_patches and not which('patch', log_ok=False, on_error='ignore'):
            raise EasyBuildError("patch not found on PATH, but a stage has 'patches': install it, or run eb on a node "
                                 "that has it.", exit_code=EasyBuildExit.MISSING_SYSTEM_DEPENDENCY)
        check_squashfs_tools(['mksquashfs', 'unsquashfs'])

    def private_variables(self) -> List[str]:
        """Return variables that may have secrets, those that stages name for pip included."""
        # what the easyconfig repeats may be gone when only the module is written again
        stages = PipStage.from_parameter(self.find_record().stages) if build_option('module_only') else \
            self.stages_for_pip()
        return super().private_variables() + [name for stage in stages for name in stage.variables()]

    def check_heavy_stages(self) -> None:
        """Refuse heavy stages on login nodes (S003-02): outside of jobs, on machines with a batch system."""
        heavy = [stage.name for stage in self.stages_for_pip() if stage.heavy]
        names = [job for one in SCHEDULERS.values() for job, _ in one.steps] + [HEAVY_HERE_VARIABLE]
        allowed = any(os.environ.get(name) for name in names)
        submit = any(which(one.submit[0], log_ok=False, on_error='ignore') for one in SCHEDULERS.values())
        if heavy and submit and not allowed:
            raise EasyBuildError("Stage '%s' is heavy, and this is not a batch job. Submit one: `eb --job "
                                 "--job-backend=Slurm ...`, or `ebsif job --install EASYCONFIG` with the settings of "
                                 "your site. (On your own machine: %s=1 eb ...)", heavy[0], HEAVY_HERE_VARIABLE)

    def inspect_image(self) -> ImageProbe:
        """Also create the venv, in the container in which the image is inspected."""
        # bound at /user-software during the installation
        folder = os.path.join(self.builddir, DIRECTORY)
        mkdir(folder, parents=True)
        venv = self.build.venv = Venv(self.build.container, folder, self.spec.venv)
        return ImageProbe.inspect(self.build.container, self.spec.image_name, venv.creation_command(), [venv.bind()])

    def only_checks_system(self) -> bool:
        """Return whether a check needs no packages of the system, on which stages may be built."""
        return super().only_checks_system() and not self.stages()

    def build_step(self) -> None:
        """Check that the venv sees the packages of the image, and install the requirements."""
        super().build_step()
        if self.dry_run:
            self.show_build()
            return
        image_packages, repeated = self.build.probe.packages, self.find_repeated()
        if repeated:
            repeated.check_repeatable(image_packages.pins, with_files=not self.build.squashfs)
        self.log.info("Creating the venv ended with exit status %s and this output:\n%s\n%s", *self.build.probe.other)
        packages = self.build.venv.make(image_packages, self.build.probe.other)
        # a venv may have a pip of its own; what ensurepip adds to it (with old Pythons setuptools) may change, too
        image = packages.select(lambda name: name != 'pip' and packages[name] == image_packages.get(name))
        pins = repeated.pins if repeated else lockfile.versions_in(self.spec.constraints)
        self.build.pip = pip = Pip(self.build.venv, self.builddir, image, pins, self.spec.keep_packages)
        for text in find_mistakes(self.stages_for_pip(), image_packages, pip_version(packages)):
            self.warn(text)
        packages, missing = self.start_user_software(pip, pins, packages)
        for stage in missing:
            packages = self.install_stage(pip, stage, packages, is_last=stage is missing[-1])
        self.build.packages = packages
        if set(packages.left_out) - set(image_packages.left_out):
            self.warn(packages.warning())
        self.build.asked_programs = self.commands_of_packages(packages)
        self.record_user_software(pip, packages)
        for text in self.record.replacements:
            self.warn(text)

    def commands_of_packages(self, packages: InstalledPackages) -> List[str]:
        """Return the programs of what was asked for that become commands; say which don't because the host has them."""
        found = self.build.venv.asked_programs(packages)
        left_out = [name for name in commands_of_host(found) if name not in self.spec.wrapped]
        if left_out:
            self.warn("These programs of packages don't become commands of the module, because this machine has "
                      "commands of these names: %s. Run them with `singularity exec $SIF NAME`, or add their names to "
                      "'wrappers' in the easyconfig." % ', '.join(left_out))
        return [name for name in found if name not in left_out]

    def show_build(self) -> None:
        """Show what ``build_step`` would do."""
        dry_run_msg("Making the venv %s in the container\n" % self.spec.venv)
        if self.build.squashfs:
            dry_run_msg("Taking user software from %s\n" % self.build.squashfs)
        for stage in self.stages_for_pip():
            dry_run_msg("Installing stage '%s' with pip:\n%s" % (stage.name, stage.requirements))

    def start_user_software(self, pip: Pip, pins: Dict[str, str],
                            packages: InstalledPackages) -> Tuple[InstalledPackages, List[PipStage]]:
        """
        Fill the venv with user software of the lock, or of an earlier installation.

        Return what is installed, and the stages that are left to pip. ``pins`` are versions that pip may install, by
        name; ``packages`` is what is installed in the empty venv.
        """
        taken, missing = self.build.squashfs, self.stages_for_pip()
        if taken:
            trace_msg("taking the user software of the lock from %s" % os.path.basename(taken))
            self.build.venv.unpack(taken)
            pip.artifacts.update((self.find_repeated() or InstallRecord()).artifacts)
            return self.build.venv.packages(), missing
        earlier = self.build.changed or self.build.base
        if pip.fill or not earlier:
            return packages, missing
        reuse = Reuse(earlier, self.stages(), pins, self.record.system_layer.requested)
        if not reuse.is_possible(self.build.container.image, self.spec.venv_name, pip.resolved):
            return packages, missing
        self.build.venv.unpack(reuse.squashfs)
        trace_msg(STAYING % (reuse.installed.module, len(reuse.packages)))
        pip.artifacts.update(reuse.artifacts)
        self.build.kept_packages = reuse.packages
        return self.build.venv.packages(), reuse.missing

    def record_user_software(self, pip: Pip, packages: InstalledPackages) -> None:
        """Record what was installed (InstalledPackages), and how."""
        self.record.versions.update(pip=pip_version(packages), python=self.build.probe.python['version'])
        self.record.artifacts = pip.artifacts
        self.record.venv_name = self.spec.venv_name
        self.record.venv_environment = self.build.venv.environment
        self.record.stages = [stage.record for stage in self.stages()]
        self.record.venv_packages = packages.select(packages.in_user_software).pins
        self.record.replaced = packages.replaced_in(pip.image)
        self.record.local_files = {
            path: compute_checksum(path, CHECKSUM_TYPE_SHA256)
            for stage in self.stages_for_pip() for path in stage.local_paths() + self.patch_files(stage)
            if os.path.isfile(path)}

    def install_stage(self, pip: Pip, stage: PipStage, before: InstalledPackages, is_last: bool) -> InstalledPackages:
        """Install a stage, with its modules and patches, and return the packages installed now (InstalledPackages)."""
        trace_msg("stage '%s'" % stage.name)
        with self.modules_loaded(stage.modules) as variables:
            packages = pip.install(stage, before, variables, self.patch_files(stage),
                                   self.cfg.parallel if is_last else None)
        added = packages.added_since(before)
        if added:
            trace_msg(ADDED % len(added))
        for text in added.for_other_gpu(packages):
            self.warn("stage '%s' installed %s" % (stage.name, text))
        return packages

    @contextlib.contextmanager
    def modules_loaded(self, modules: List[str]) -> Iterator[Dict[str, str]]:
        """Load modules of the host temporarily; yield the environment that they set."""
        before = dict(os.environ)
        if modules:
            self.modules_tool.load(modules)
        try:
            yield host_variables(before, os.environ, self.spec.image_search_path, self.build.container.library_path)
        finally:
            if modules:
                restore_env(before)

    def patch_files(self, stage: PipStage) -> List[str]:
        """Find the patches of a stage, next to the easyconfig or on EasyBuild's source path."""
        return [self.obtain_file(name) for name in stage.patches]

    def try_out(self, programs: List[str]) -> SmokeTest:
        """Also import what was asked for, in the same container."""
        packages = self.build.packages
        # those that stay as they are were imported when they were installed
        request = self.build.pip.asked_for(self.stages(), packages, self.build.kept_packages)
        if request.names:
            trace_msg(IMPORTING % ', '.join(request.names))
        run = functools.partial(self.build.pip.run_active, self.stages_for_pip())
        return try_out(run, programs, self.build.venv.python, request if request.names or request.older else None,
                       gpu_of(packages, self.spec.gpu) or '')

    def failed_imports(self, tried: SmokeTest) -> List[str]:
        """Return which packages can't be imported, why, and what to do."""
        return tried.failed_imports(self.stages())

    def install_additions(self) -> None:
        """Install user software: as a SquashFS file if there are requirements, else as a directory."""
        target = os.path.join(self.installdir, DIRECTORY)
        stages = self.stages()
        if self.dry_run:
            dry_run_msg("Installing user software as %s\n" % (target + '.squashfs' if stages else target))
            return
        group_writes = bool(build_option('group_writable_installdir'))
        if self.build.squashfs:
            # it may have changed meanwhile
            with open(self.build.squashfs, 'rb') as squashfs:
                self.check_squashfs(copy_hashed(squashfs, target + '.squashfs', self.spec.lustre_striping))
            set_mode(target + '.squashfs', 0o644)
        elif stages:
            self.build.venv.compile_bytecode(self.cfg.parallel)
            share_files(self.build.venv.folder, group_writes)
            self.squash()
        else:
            set_file_times(self.build.venv.folder)
            share_files(self.build.venv.folder, group_writes)
            copy_dir(self.build.venv.folder, target, symlinks=True)
            # copying the mode drops the set-gid bit inherited from the parent directory
            share_files(target, group_writes, set_gid=bool(os.stat(self.installdir).st_mode & stat.S_ISGID))
        constraints = self.build.pip.user_constraints()
        overrides = ["%s ; python_version < '0'" % line.split('==')[0] for line in constraints]
        for name, lines in ((CONSTRAINTS, constraints), (OVERRIDES, overrides)):
            write_readable(os.path.join(self.installdir, name), ''.join(line + '\n' for line in lines))
        repeated = self.find_repeated()
        if repeated:
            repeated.check_repeated(self.record)
        super().install_additions()

    def squash(self) -> None:
        """Pack user software with make-squashfs, as users do."""
        command = [os.path.join(self.installdir, 'bin', 'make-squashfs'), '-r', '-d', self.build.venv.folder,
                   '-p', str(self.cfg.parallel)]
        self.build.venv.squash(command, os.path.join(self.installdir, SQUASHFS))

    def added_wrappers(self) -> List[str]:
        """Return the names of the programs of what was asked for, which become commands of the module (V-06)."""
        return [name for name in self.build.asked_programs if name not in self.spec.commands]

    def programs(self) -> List[str]:
        """The programs of the venv, except programs that can't be wrappers."""
        return [name for name in self.build.venv.programs() if name not in NEEDED_ON_HOST]
