##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Create, pack and inspect the venv of user software in a container; start from the user software of an earlier
installation.
"""
import csv
import glob
import os
import re
import tempfile
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import remove_dir
from easybuild.tools.utilities import trace_msg

from . import missing
from .diagnosis import Diagnosis
from .framework import RunShellCmdResult
from .messages import IN_ONE_FILE
from .packages import BUILD_TOOLS, InstalledPackages
from .probe import CommandResult
from .runtime import SHOWN_LINES, InstallContainer, Option, escape_bind, escape_value, inject_variables, run_program
from .imageprograms import FILES, ebsif_version, lines_after, read_program, sh_command
from .scripts import NEEDED_ON_HOST, PACKED
from .image.installed import InstalledImage
from .requirements import Properties, package_name, requirement_text
from .stages import PipStage
from .sitevalues import RUNTIME_PREFIXES
from .values import DIRECTORY, MOUNT_SQUASHFS, SQUASHFS, USER_SOFTWARE, USER_SOFTWARE_VARIABLE, format_size, normal_name
from .usersoftware import FILE_TIME, UserSoftware
from .usersoftware import has_new_files, set_file_times
from .written import is_command, read_written, write_seen

# Names the directory of the earlier installation whose user software a new one may start from (`Reuse`).
REUSE_VARIABLE = 'EBSIF_REUSE'
# Names the directory of the installation that a new one extends, for the same purpose.
BASE_VARIABLE = 'EBSIF_BASE'

Variables = Dict[str, str]
# Returns the files that pip would install for a stage, as they are recorded.
Resolve = Callable[[PipStage], Dict[str, Dict[str, str]]]


class Extra(NamedTuple):
    """Variables and binds for one command in a venv, besides those of every command."""

    environment: Variables = {}
    binds: Sequence[str] = ()


NOTHING = Extra()


class Venv:
    """A venv in a container, during an installation."""

    def __init__(self, container: InstallContainer, folder: str, path: str,
                 environment: Optional[Variables] = None) -> None:
        """
        Store the container, the directory or SquashFS file that is /user-software, and the venv's path there.

        `environment` has the variables that its Python needs in the container.
        """
        self.container = container
        self.folder = folder
        self.path = path
        self.python = os.path.join(path, 'bin', 'python')
        self.environment: Variables = environment or {}

    def bind(self) -> str:
        """Return the bind of user software."""
        bind = escape_bind(self.folder) + ':' + USER_SOFTWARE
        return bind + MOUNT_SQUASHFS if os.path.isfile(self.folder) else bind

    def run(self, command: List[str], extra: Extra = NOTHING, **options: Option) -> RunShellCmdResult:
        """Run a command in the container with user software bound."""
        variables = dict(inject_variables(self.environment), **extra.environment)
        return self.container.run(command, binds=[self.bind(), *extra.binds], environment=variables, **options)

    def activated(self, environment: Variables) -> Variables:
        """Return variables for a command, and also the variables by which the module activates the venv."""
        variables = dict(environment)
        for prefix in RUNTIME_PREFIXES:
            path = environment.get(prefix + 'ENV_PREPEND_PATH') or escape_value(':'.join(self.container.search_path))
            variables[prefix + 'ENV_PREPEND_PATH'] = ':'.join(filter(None, [os.path.join(self.path, 'bin'), path]))
            variables[prefix + 'ENV_VIRTUAL_ENV'] = self.path
        return variables

    def packages(self) -> InstalledPackages:
        """Return the packages that the venv's Python sees."""
        result = self.run([self.python, '-'], split_stderr=True,
                          stdin=read_program('installed-packages.py'))
        return InstalledPackages.from_output(result.output)

    def make(self, image_packages: InstalledPackages, creation: CommandResult) -> InstalledPackages:
        """
        Complete the venv that `creation_command` has created, and return the packages it sees.

        It has to see every package of the image, or this fails: pip would download gigabytes of packages that the image
        already has, built for other hardware.
        """
        packages = at_first = self.look_at_empty(creation)
        if image_packages.python_path:
            # PYTHONPATH comes before the venv, so upgrades in the venv would have no effect
            self.environment = {'PYTHONPATH': ':'.join([packages.purelib, image_packages.python_path])}
            packages = self.packages()
        unseen = sorted(name for name in image_packages if name not in packages)
        if unseen:
            raise EasyBuildError("The venv does not see %d of the %d packages of the image (%s%s), so pip would "
                                 "install them again. Nothing was installed.", len(unseen), len(image_packages),
                                 ', '.join(unseen[:5]), ', ...' if len(unseen) > 5 else '')
        trace_msg("the venv sees all %d packages of the image" % len(image_packages))
        self.add_hints(packages)
        if packages is not at_first:
            self.add_programs()
        return packages

    def site_packages(self, packages: InstalledPackages) -> str:
        """Return the venv's package directory on the host, as its Python names it (lib64, python3.14t ...)."""
        return os.path.join(self.folder, os.path.relpath(packages.purelib, USER_SOFTWARE))

    def add_hints(self, packages: InstalledPackages) -> None:
        """Add modules that explain pip's errors to a venv whose Python sees these packages."""
        folder = self.site_packages(packages)
        for path in sorted(glob.glob(os.path.join(glob.escape(FILES), 'site-packages', 'ebsif_*'))):
            with open(path) as text:
                write_seen(os.path.join(folder, os.path.basename(path)), text.read(), self.folder)
        with open(missing.__file__) as text:
            write_seen(os.path.join(folder, 'ebsif_missing.py'), text.read(), self.folder)

    def add_pip(self) -> None:
        """Replace the commands of the venv's own pip by commands that explain pip's errors."""
        self.run([self.python, '-', self.path, read_program('pip')], stdin=read_program('image-pip.py'),
                 split_stderr=True, fail_on_error=False)

    def add_programs(self) -> None:
        """Add programs that run the image's programs with the venv's Python."""
        self.run([self.python, '-'], stdin=read_program('image-programs.py'), split_stderr=True)

    def creation_command(self) -> List[str]:
        """Return the command that creates the venv with commands for the image's programs and pip."""
        make, image_pip, pip, *programs = [read_program(name) for name in (
            'make-venv.py', 'image-pip.py', 'pip', 'image-programs.py', 'installed-packages.py')]
        return ['python3', '-I', '-c', make, self.path, image_pip, pip, '\n'.join(programs)]

    def look_at_empty(self, creation: CommandResult) -> InstalledPackages:
        """Return what the Python of the venv that was created sees; if that failed, the error says what to do."""
        trace_msg("creating the venv %s in the container" % self.path)
        if creation.exit_code:
            output = (creation.output + creation.stderr).strip()
            raise EasyBuildError("The venv can't be created in the container: %s", Diagnosis(output).text() or (
                "its output ends with\n%s" % '\n'.join(output.splitlines()[-SHOWN_LINES:]) if output else
                "its Python ended with exit status %s, and without a message" % creation.exit_code))
        *programs, packages = creation.output.splitlines()
        trace_msg("programs of the image that run in the venv: %d" % len(programs))
        return InstalledPackages.from_output(packages)

    def programs(self) -> List[str]:
        """
        Return the programs of the venv, including programs of the image that run in it.

        Activation scripts are left out. They are listed in the container, because on the host the links to the image's
        Python are broken.
        """
        output = self.run(sh_command('list-programs.sh', os.path.join(self.path, 'bin')), split_stderr=True).output
        return [name for name in lines_after('program', output)
                if is_command(name) and not name.lower().startswith('activate')]

    def asked_programs(self, packages: InstalledPackages) -> List[str]:
        """Return the programs of the packages that pip was asked for, which it marks, from its lists of their files."""
        found: List[str] = []
        for mark in glob.glob(os.path.join(glob.escape(self.site_packages(packages)), '*.dist-info', 'REQUESTED')):
            package = normal_name(os.path.basename(os.path.dirname(mark)).split('-')[0])
            lines = read_written(mark.replace('REQUESTED', 'RECORD'), self.folder).splitlines()
            paths = [row[0] for row in csv.reader(lines) if row and package not in BUILD_TOOLS]
            found += [os.path.basename(path) for path in paths if re.match(r'(\.\./)+bin/[^/]+\Z', path)]
        return [name for name in sorted(set(found)) if is_command(name) and name not in NEEDED_ON_HOST]

    def compile_bytecode(self, processes: int) -> None:
        """Compile the venv's Python files reproducibly, unless that was done when pip installed the last of them."""
        trace_msg("compiling bytecode")
        if has_new_files(os.path.join(self.folder, os.path.relpath(self.path, USER_SOFTWARE), 'lib')):
            self.run([self.python, '-I', '-', str(processes), str(FILE_TIME)], fail_on_error=False,
                     stdin=read_program('compile-bytecode.py'))
        set_file_times(self.folder)

    def unpack(self, squashfs: str) -> None:
        """
        Replace the venv that was just created with one in a SquashFS file, which has the same path.

        unmake-squashfs unpacks it, as for users: without devices, set-user-ID bits and owners of others (P-04). Nobody
        else can enter the directory before that is done.
        """
        place = tempfile.mkdtemp(prefix='unpack-', dir=os.path.dirname(self.folder))
        os.symlink(squashfs, os.path.join(place, SQUASHFS))
        run_program(['bash', '-p', os.path.join(FILES, 'bin', 'unmake-squashfs')],
                    env=dict(self.container.environment(), **{USER_SOFTWARE_VARIABLE: place}))
        remove_dir(self.folder)
        os.rename(os.path.join(place, DIRECTORY), self.folder)
        remove_dir(place)

    def squash(self, command: List[str], squashfs: str) -> None:
        """
        Pack user software into a file with a command, make-squashfs and its options.

        make-squashfs compares the result with the directory; the sanity check mounts it.
        """
        # SIF: to test whether the runtime can mount the result
        environment = dict(self.container.environment(), SOURCE_DATE_EPOCH=str(FILE_TIME), SIF=self.container.image)
        environment.pop(USER_SOFTWARE_VARIABLE, None)
        trace_msg("packing user software into %s" % squashfs)
        result = run_program(command, env=environment)
        for line in result.output.splitlines():
            if line.startswith(PACKED):
                trace_msg(line.replace(os.path.dirname(squashfs) + os.sep, '').split(': ', 1)[1])
        trace_msg(IN_ONE_FILE % format_size(os.path.getsize(squashfs)))


class Reuse:
    """
    User software of an earlier installation that has the same stages, but fewer requirements.

    `ebsif extend` names that installation in REUSE_VARIABLE when it changes an extension, in BASE_VARIABLE when it
    makes a new one. Its SquashFS file is used only if the result is the same as from scratch; otherwise everything is
    installed again, in the same versions if they are pinned.
    """

    def __init__(self, installed: InstalledImage, stages: List[PipStage], pins: Dict[str, str],
                 system: Iterable[str] = ()) -> None:
        """
        Compare with `installed`, the earlier installation.

        The new one has the stages, `pins` (versions by name), and `system`, packages of the image's distribution.
        """
        self.installed = installed
        self.record = installed.record
        self.squashfs = os.path.join(self.installed.root, SQUASHFS)
        self.artifacts = self.record.artifacts
        self.stages = stages
        self.system = set(system)
        self.pins = {normal_name(name): version for name, version in pins.items()}
        # versions of the packages of the earlier installation by normalized name
        self.packages = {name: version for name, version in self.record.venv_versions.items() if name != 'pip'}
        self.before = [without_blank_lines(stage) for stage in self.record.stages]
        # stages that the earlier installation doesn't have, or not with these requirements
        self.missing = [stage for stage in stages if without_blank_lines(stage.record) not in self.before]

    def is_possible(self, image: str, venv_name: str, resolve: Resolve) -> bool:
        """
        Return whether a new installation with this image and this venv can start from the earlier user software.

        `resolve` is asked last which files pip would install for a stage, by name.
        """
        record, user_software = self.record, UserSoftware(self.installed.root, self.record)
        return (self.installed.uses(image) and self.installed.is_unchanged()
                and record.venv_name == venv_name
                and record.versions.get('ebsif') == ebsif_version()
                and not record.local_files
                # what was built may need them
                and self.system.issuperset(record.system_layer.requested)
                and list(user_software.installed) == [SQUASHFS] and not user_software.changed()
                # root would unpack devices of other accounts
                and (os.getuid() != 0 or os.stat(self.squashfs).st_uid == 0)
                and self.has_same_stages()
                and self.has_same_packages(resolve))

    def has_same_packages(self, resolve: Resolve) -> bool:
        """
        Return whether the packages have the versions that they would have from scratch.

        Those are pinned. Without pins, pip is asked if the first stage is all of the earlier installation: its
        packages depend on nothing else.
        """
        if self.pins or not self.packages:
            return all(self.pins.get(name) == version for name, version in self.packages.items())
        first = self.stages[0]
        return (self.before == [without_blank_lines(first.record)] and set(first.record) == {'name', 'requirements'}
                and set(self.artifacts) == set(self.packages) and resolve(first) == self.artifacts)

    def has_same_stages(self) -> bool:
        """
        Return whether the earlier installation has these stages; requirements and stages may have been added.

        pip marks packages that are asked for, so requirements for packages that were dependencies are not the same.
        """
        before = {stage['name']: stage for stage in self.before}
        if [stage.name for stage in self.stages if stage.name in before] != list(before) or \
                any(stage.allow_replace for stage in self.stages):
            return False
        for stage in self.stages:
            added = added_lines(before.get(stage.name), stage)
            if added is None or any(package_name(line) in self.packages for line in added):
                return False
        return True


def without_blank_lines(properties: Properties) -> Properties:
    """Return the properties of a stage, with its requirements as a list of lines."""
    lines = requirement_text(properties.get('requirements')).splitlines()
    return dict(properties, requirements=[line for line in lines if line.strip()])


def added_lines(before: Optional[Properties], stage: PipStage) -> Optional[List[str]]:
    """Return the lines that a stage has in addition to a recorded one, if any; None if anything else is different."""
    if before is None:
        return stage.requirement_list
    now = without_blank_lines(stage.record)
    if now == before:
        return []
    lines, asked = before['requirements'], now['requirements']
    is_plain = set(before) | set(now) == {'name', 'requirements'}
    if not is_plain or asked[:len(lines)] != lines or '--hash' in stage.requirements:
        return None
    return [line for line in stage.requirement_list if line not in lines]
