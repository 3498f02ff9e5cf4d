##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Install a stage of user software with pip in the container.
"""
import functools
import json
import os
import re
import shlex
from typing import Any, Collection, Dict, List, Optional, Sequence, Set, Tuple, cast

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import apply_patch, extract_file, mkdir, remove_file
from easybuild.tools.utilities import nub, trace_msg

from .diagnosis import NOTHING_FOUND, Diagnosis
from .framework import RunShellCmdError, RunShellCmdResult
from .messages import NOT_ISOLATED, PIP_FAILED, SEE_OUTPUT
from .packages import (
    BUILD_TOOLS, InstalledPackages, Need, constraint_lines, gpu_of, pip_version)
from .remedies import how_to_replace
from .requirements import package_name
from .runtime import Option, escape_bind, inject_variables
from .imageprograms import read_program, sh_command
from .stages import PipStage
from .values import normal_name
from .smoketest import ImportRequest
from .usersoftware import FILE_TIME
from .venv import NOTHING, Extra, Variables, Venv
from .written import read_written, write_seen

# Directory for a wheel of every package that is installed; set by `ebsif extend --wheelhouse`.
FILL_VARIABLE = 'EBSIF_FILL_WHEELHOUSE'

# In the build directory: folders for each stage, and for what pip has downloaded and built.
STAGES, PIP_CACHE = 'stages', 'pip-cache'

# What pip installs, in the folder of a stage.
REPORT = 'report.json'

# Files from which pip reads credentials; they are bound, so that no other file needs to contain them.
OWN_FILES = ('PIP_CONFIG_FILE', 'NETRC')

# A text stops at the first command that fails, also within a pipe (`make | tee log`).
BASH = ['bash', '-e', '-o', 'pipefail', '-c']

# The file of a package in what pip prints: each version that it has looked at.
FILE = re.compile(r'^ *(?:Processing|Downloading|Using cached) (?:.*/)?([\w.]+)-(\d[^-\s]*?)'
                  r'(?:-\S*\.whl|\.tar\.gz|\.zip)\b', re.MULTILINE)

QUIET = {'PIP_NO_INPUT': '1', 'PIP_PROGRESS_BAR': 'off', 'PIP_DISABLE_PIP_VERSION_CHECK': '1'}

# A package in pip's report, or what it was installed from.
Reported = Dict[str, Any]


class Pip:
    """
    Installs stages into a venv in a container, and protects those packages of the image that belong to the machine.

    The others are preferred: pip takes the image's version of a package where that fits what is asked for, else it
    installs another one into user software (V-03).
    """

    def __init__(self, venv: Venv, work_dir: str, image: InstalledPackages, pins: Dict[str, str],
                 kept: Collection[str] = ()) -> None:
        """Store what all stages share; `kept` are the names of packages of the image that the site keeps."""
        self.venv = venv
        # for what pip reads and writes; visible under the same path in the container
        self.work_dir = work_dir
        # packages of the image, and why some can't be replaced, by normalized name, unless a stage was allowed to
        self.image = image
        self.bound = image.bound(kept)
        self.replaced: Set[str] = set()
        # packages of which pip has looked at several versions, by normalized name
        self.looked_at: Set[str] = set()
        # names of stages whose builds turned out to need packages that are there
        self.not_isolated: Set[str] = set()
        # exact versions to install, by name; empty to let pip choose
        self.pins = pins
        # file name and SHA256 of each file that pip installed, by normalized package name; empty with pip before 22.2
        self.artifacts: Dict[str, Dict[str, str]] = {}
        self.command = [venv.python, '-m', 'pip']
        self.fill = os.environ.get(FILL_VARIABLE, '')

    def install(self, stage: PipStage, before: InstalledPackages, variables: Optional[Variables] = None,
                patches: Sequence[str] = (), processes: Optional[int] = None) -> InstalledPackages:
        """
        Install one stage: its 'pre' commands, pip, its 'post' commands, its checks. Return the packages installed now.

        `before` are the packages installed before, `variables` are set by modules of the host for the commands of this
        stage, and `processes` how many compile bytecode in the container of pip, unless commands come later. If
        anything fails, the message of EasyBuildError names the stage and says what to do.
        """
        extra = Extra(self.environment(stage, variables or {}), self.binds(stage))
        self.run_commands(stage, 'pre', extra)
        if stage.upgrade_pip:
            arguments = ['install', '--upgrade', 'pip', '-c', self.write_constraints(stage)]
            self.run(stage, arguments + self.index_options(stage), extra)
        packages = None
        if stage.requirements:
            upgraded = self.venv.packages() if stage.pre or stage.upgrade_pip else before
            processes = None if stage.post or stage.verify else processes
            packages = self.install_requirements(stage, patches, pip_version(upgraded), processes, extra)
        self.run_commands(stage, 'post', extra)
        self.run_commands(stage, 'verify', extra)
        if packages is None or stage.post or stage.verify:
            packages = self.venv.packages()
        if self.fill and packages.added_since(before):
            self.fill_wheelhouse(stage, packages.added_since(before), extra)
        self.check_nothing_replaced(stage, packages)
        return packages

    def install_requirements(self, stage: PipStage, patches: Sequence[str], version: str, processes: Optional[int],
                             extra: Extra = NOTHING) -> InstalledPackages:
        """Install the requirements of a stage with pip, which has the given version; return the packages then."""
        if re.search(r'\bgit\+', stage.requirements):
            self.check_git(stage, extra)
        requirements = stage.requirements
        if patches:
            requirements = self.patched_source(stage, patches, extra) + '\n'
        folder = self.folder(stage)
        self.write(os.path.join(folder, 'requirements.txt'), requirements)
        number = len(stage.requirement_list)
        # a file of requirements is an option
        what = "%d requirement line%s" % (number, '' if number == 1 else 's') if number else "requirements"
        trace_msg("installing %s with pip %s" % (what, version))
        # bytecode is compiled once, after all stages, and by several processes
        arguments = ['install', '--no-compile', '-r', os.path.join(folder, 'requirements.txt'),
                     '-c', self.write_constraints(stage)] + self.build_options(stage) + stage.pip_options()
        arguments += self.index_options(stage)
        if version_tuple(version) >= (22, 2):
            arguments += ['--report', os.path.join(folder, REPORT)]
        for name, program in (('list.py', 'installed-packages.py'), ('compile.py', 'compile-bytecode.py')):
            self.write(os.path.join(folder, name), read_program(program))
        self.run(stage, arguments, extra, afterwards=(folder, str(processes or ''), str(FILE_TIME)))
        self.record_artifacts(stage)
        return InstalledPackages.from_output(read_written(os.path.join(folder, 'packages.txt'), self.work_dir))

    def folder(self, stage: PipStage) -> str:
        """Return the directory for the files that pip reads and writes in a stage."""
        path = os.path.join(self.work_dir, STAGES, re.sub(r'[^A-Za-z0-9_.-]', '_', stage.name))
        mkdir(path, parents=True)
        return path

    def write(self, path: str, text: str) -> None:
        """Write a file for pip; what was installed may have put links into its directory."""
        write_seen(path, text, self.work_dir)

    def write_constraints(self, stage: PipStage) -> str:
        """Write the constraints that protect the packages of the image, and the pinned versions; return the path."""
        wanted = {normal_name(name): (name, version) for name, version in self.pins.items()}
        free = self.replaced.union(wanted, map(normal_name, stage.allow_replace))
        lines = self.image.select(lambda name: name in self.bound and name not in free).constraints()
        lines += [need.on + need.versions for need in self.limits() if need.on not in free]
        path = os.path.join(self.folder(stage), 'constraints.txt')
        self.write(path, ''.join(line + '\n' for line in lines + constraint_lines(sorted(wanted.values()))))
        return path

    def limits(self) -> List[Need]:
        """Return what packages that can't be replaced require of the others: versions of these may not break them."""
        return [need for need in self.image.needed_by(self.bound) if need.versions and need.fits]

    def reasons(self) -> Dict[str, str]:
        """Return why packages of the image can't have any other version, or not every one, by normalized name."""
        limits = {need.on: self.image.text_of(need) for need in self.limits() if need.on in self.image}
        return dict(limits, **self.bound)

    def user_constraints(self) -> List[str]:
        """Return constraints that protect the packages of the image when users run pip or uv."""
        return self.image.select(lambda name: name in self.bound and name not in BUILD_TOOLS).constraints()

    def build_options(self, stage: PipStage) -> List[str]:
        """Return pip's options for how packages of a stage are built."""
        return ['--no-build-isolation'] if stage.no_build_isolation or stage.name in self.not_isolated else []

    def index_options(self, stage: PipStage) -> List[str]:
        """Return pip's options for indexes and other package sources."""
        # also for pip itself, and for questions to the index
        no_index = [option for option in stage.options if option == '--no-index']
        places = stage.pip_index_options()
        if not stage.variables():
            return places + no_index
        # pip only expands variables in files, and keeps their values out of its log
        path = os.path.join(self.folder(stage), 'places.txt')
        pairs = zip(*[iter(places)] * 2)
        self.write(path, ''.join('%s %s\n' % (option, shlex.quote(place)) for option, place in pairs))
        return ['-r', path] + no_index

    def environment(self, stage: PipStage, variables: Variables) -> Variables:
        """Variables of a stage for the container; the runtime itself must not see them."""
        environment = dict(QUIET, **variables)
        environment['PIP_CACHE_DIR'] = os.environ.get('PIP_CACHE_DIR') or os.path.join(self.work_dir, PIP_CACHE)
        environment.update({name: os.environ[name] for name in stage.variables() if name in os.environ})
        environment.update(inject_variables(stage.env_of_modules()))
        return environment

    def binds(self, stage: PipStage) -> List[str]:
        """Binds of a stage: pip's cache and configuration, and the local paths in its requirements."""
        cache = os.environ.get('PIP_CACHE_DIR')
        if cache:
            # otherwise pip would create it inside the container, and it would be lost
            mkdir(cache, parents=True)
        # a path that doesn't exist here may be in the image; if not, pip reports it
        paths = [path for path in stage.local_paths() + [self.fill, cache]
                 if path and os.path.exists(path)]
        folders = nub(path if os.path.isdir(path) else os.path.dirname(path) for path in paths)
        own = [os.environ[name] for name in OWN_FILES if os.path.isfile(os.environ.get(name, ''))]
        return [escape_bind(path) for path in folders + own]

    def run(self, stage: PipStage, arguments: List[str], extra: Extra,
            afterwards: Tuple[str, ...] = ('', '', '')) -> None:
        """
        Run pip for a stage, then list packages and compile bytecode (see run-logged.sh); explain why pip fails.

        If a package can't be built because it needs another one that is there, which builds in isolation don't see, the
        packages of this stage are built without isolation (V-05).

        What pip prints is also in pip.log, where `ebsif` sees how far it is. That is not pip's own log: pip would write
        a line for each file of each page that it reads, which takes as long as everything else while it resolves.
        """
        folder = self.folder(stage)
        log = os.path.join(folder, 'pip.log')
        shown = ' '.join(['pip'] + arguments).replace(folder + os.sep, '') + '\n\t[output in %s]' % log
        try:
            done = self.venv.run(sh_command('run-logged.sh', log, *afterwards + tuple(self.command + arguments)), extra,
                                 shown=shown)
        except RunShellCmdError as err:
            pins = {normal_name(name) for name in self.pins}
            output = err.output or ''
            first = Diagnosis(output)
            if not self.build_options(stage) and self.has_module(first.missing_module, extra):
                trace_msg(NOT_ISOLATED % first.package() + ": it needs %s, which is there (to save the first attempt: "
                          "'no_build_isolation')" % first.missing_module)
                self.not_isolated.add(stage.name)
                self.run(stage, arguments[:1] + self.build_options(stage) + arguments[1:], extra, afterwards)
                return
            logged = self.log_of(log, arguments, extra) if NOTHING_FOUND in output else ''
            diagnosis = Diagnosis(output, logged, pins, self.reasons(), gpu_of(self.image),
                                  functools.partial(self.newest, stage, extra), self.image)
            package = " (while processing %s)" % diagnosis.package() if diagnosis.package() else ''
            text = diagnosis.text()
            raise EasyBuildError(PIP_FAILED + "%s%s", stage.name, package, ': ' + text if text else '. ' + SEE_OUTPUT)
        files = {(normal_name(name), version) for name, version in FILE.findall(done.output or '')}
        names = [name for name, _ in files]
        self.looked_at.update(name for name in names if names.count(name) > 1)

    def has_module(self, name: str, extra: Extra) -> bool:
        """Return whether a module can be imported in the venv, from the image or user software."""
        code = 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)'
        return bool(name) and self.venv.run([self.venv.python, '-c', code, name], extra,
                                            fail_on_error=False).exit_code == 0

    def newest(self, stage: PipStage, extra: Extra, wanted: Dict[str, str]) -> Dict[str, str]:
        """Return the newest versions of packages (by normalized name) that specifications allow; asks pip."""
        path = os.path.join(self.folder(stage), 'newest.json')
        arguments = ['install', '--dry-run', '--quiet', '--no-deps', '--ignore-installed', '--only-binary', ':all:',
                     '--report', path] + self.index_options(stage) + [name + wanted[name] for name in sorted(wanted)]
        # without constraints of the image, which keep another version
        extra = extra._replace(environment=dict(extra.environment, PIP_CONSTRAINT=''))
        self.venv.run(self.command + arguments, extra, fail_on_error=False)
        text = read_written(path, self.work_dir)
        found = [item['metadata'] for item in json.loads(text)['install']] if text else []
        return {normal_name(one['name']): one['version'] for one in found}

    def run_active(self, stages: List[PipStage], command: List[str], **options: Option) -> RunShellCmdResult:
        """Run a command with the venv active, which can ask the indexes of stages for packages."""
        names = [name for stage in stages for name in stage.variables() if name in os.environ]
        environment = dict(QUIET, **{name: os.environ[name] for name in names})
        binds = nub([bind for stage in stages for bind in self.binds(stage)])
        return self.venv.run(command, Extra(self.venv.activated(environment), binds), **options)

    def log_of(self, log: str, arguments: List[str], extra: Extra = NOTHING) -> str:
        """Run pip again, with its own log, and return that: only there pip says why an index has no packages."""
        self.venv.run(self.command + arguments + ['--log', log], extra, fail_on_error=False)
        return read_written(log, self.work_dir)

    def run_commands(self, stage: PipStage, step: str, extra: Extra) -> None:
        """Run the commands of a stage in the container, with the venv active; bash runs strings."""
        extra = extra._replace(environment=self.venv.activated(extra.environment))
        for command in getattr(stage, step):
            arguments = BASH + [command] if isinstance(command, str) else list(command)
            try:
                self.venv.run(arguments, extra, shown=command if isinstance(command, str) else ' '.join(command))
            except RunShellCmdError as err:
                meaning = Diagnosis((err.output or '') + (err.stderr or '')).library()
                raise EasyBuildError("Stage '%s': the command of '%s' failed with exit status %s: %s. %s" + SEE_OUTPUT,
                                     stage.name, step, err.exit_code, command, meaning)

    def check_git(self, stage: PipStage, extra: Extra) -> None:
        """Stop before starting pip if a requirement needs git, but the image has none."""
        git = self.venv.run(['git', '--version'], extra, fail_on_error=False)
        if git.exit_code != 0:
            raise EasyBuildError("Stage '%s' has a requirement from a git repository, but git is missing in the image. "
                                 "Use a release from an index, or a wheel built elsewhere.", stage.name)

    def patched_source(self, stage: PipStage, patches: Sequence[str], extra: Extra = NOTHING) -> str:
        """Fetch the source of the only requirement of a stage, patch it, and return its requirement line (S004-12)."""
        (line,) = stage.requirement_list
        source = os.path.join(self.folder(stage), 'source')
        mkdir(source, parents=True)
        arguments = ['download', '--no-deps', '--dest', source, '-c', self.write_constraints(stage), '--no-binary',
                     package_name(line)]
        self.run(stage, arguments + self.build_options(stage) + self.index_options(stage) + [line], extra)
        if len(os.listdir(source)) != 1:
            raise EasyBuildError("Stage '%s' has patches, but pip downloads no source for %s. Patch a directory of "
                                 "yours before the installation.", stage.name, line)
        (archive,) = os.listdir(source)
        extract_file(os.path.join(source, archive), source, forced=True, trace=False)
        remove_file(os.path.join(source, archive))
        names = sorted(os.listdir(source))
        directory = os.path.join(source, names[0])
        if len(names) != 1 or not os.path.isdir(directory):
            raise EasyBuildError("Stage '%s' has patches, but the source %s contains %d files and directories at its "
                                 "top instead of one directory, where patches apply. Patch a directory of yours before "
                                 "the installation.", stage.name, archive, len(names))
        for patch in sorted(patches, key=os.path.basename):
            trace_msg("applying %s" % os.path.basename(patch))
            apply_patch(patch, directory)
        extras = re.match(r'[\w.-]+\s*(\[[^\]]*\])', line)
        return directory + (extras.group(1) if extras else '')

    def report(self, stage: PipStage) -> List[Reported]:
        """Return what pip reports as installed in a stage, or planned; nothing before pip 22.2."""
        text = read_written(os.path.join(self.folder(stage), REPORT), self.work_dir)
        return cast(List[Reported], json.loads(text)['install']) if text else []

    def resolved(self, stage: PipStage) -> Dict[str, Dict[str, str]]:
        """Return the files that pip would install for a stage now (see `artifacts_in`); none if it can't say that."""
        folder = self.folder(stage)
        listed, path = os.path.join(folder, 'requirements.txt'), os.path.join(folder, 'resolved.json')
        self.write(listed, stage.requirements)
        arguments = ['install', '--dry-run', '--quiet', '--report', path, '-r', listed, '-c',
                     self.write_constraints(stage)]
        arguments += self.build_options(stage) + stage.pip_options() + self.index_options(stage)
        extra = Extra(self.environment(stage, {}), self.binds(stage))
        trace_msg("asking the indexes whether the packages of the base are the newest")
        done = self.venv.run(self.command + arguments, extra, fail_on_error=False)
        text = read_written(path, self.work_dir) if done.exit_code == 0 else ''
        return artifacts_in(json.loads(text)['install']) if text else {}

    def record_artifacts(self, stage: PipStage) -> None:
        """Record the files that pip reports as installed, with their SHA256."""
        self.artifacts.update(artifacts_in(self.report(stage)))

    def fill_wheelhouse(self, stage: PipStage, added: InstalledPackages, extra: Extra = NOTHING) -> None:
        """
        Put a wheel of every package that a stage has added into the directory of `ebsif extend --wheelhouse`.

        Raises EasyBuildError if pip is too old to report from where it has installed packages.
        """
        if stage.requirement_list and not os.path.exists(os.path.join(self.folder(stage), REPORT)):
            raise EasyBuildError("Stage '%s': `ebsif extend --wheelhouse` needs pip 22.2 or newer. Add 'upgrade_pip': "
                                 "True to the stage.", stage.name)
        # locations as they were asked for: pip leaves credentials out of its report
        asked = {package_name(line): line for line in stage.requirement_list if '://' in line}
        found = {normal_name(item['metadata']['name']): reference_to(item) for item in self.report(stage)}
        lines = [asked.get(name) or found.get(name) or pin for name, pin in zip(sorted(added), added.pins)]
        path = os.path.join(self.folder(stage), 'wheelhouse.txt')
        self.write(path, ''.join(line + '\n' for line in lines))
        trace_msg("putting %d wheels into %s" % (len(lines), self.fill))
        # pip has a wheel of what it has built for the installation in its cache
        arguments = ['wheel', '--no-deps', '--wheel-dir', self.fill, '-r', path]
        self.run(stage, arguments + self.build_options(stage) + self.index_options(stage), extra)

    def check_nothing_replaced(self, stage: PipStage, packages: InstalledPackages) -> None:
        """
        Stop if a protected package of the image is hidden by one in user software, unless the stage allows it.

        Constraints keep pip from installing another version, but not from installing the same version again.
        """
        # later stages build on this one
        self.replaced.update(filter(packages.in_user_software, self.image))
        for name in sorted(self.replaced & set(self.bound)):
            if name not in [normal_name(item) for item in stage.allow_replace]:
                found, version, _ = packages[name]
                raise EasyBuildError("Stage '%s' installed %s==%s, which hides the image's (%s, %s). Leave it out; or "
                                     "replace it%s", stage.name, found, version, self.image[name][1], self.bound[name],
                                     how_to_replace([name], self.bound, {name: version}))
            del self.bound[name]

    def asked_for(self, stages: List[PipStage], packages: InstalledPackages, tried: Dict[str, str]) -> ImportRequest:
        """
        Return which packages to import: those that stages ask for, of the packages that Python sees.

        `tried` are versions of packages that were imported before, by normalized name.
        """
        lines: Dict[str, str] = {}
        options: Dict[str, List[str]] = {}
        for stage in stages:
            long_options = [line for line in stage.requirements.splitlines() if line.startswith('--')]
            names = [(package_name(line), line) for line in stage.requirement_list]
            # packages that a path or URL names
            names += [(normal_name(item['metadata']['name']), '') for item in self.report(stage)
                      if item.get('requested')]
            for name, line in names:
                if name in packages and not lines.get(name) and packages[name][1] != tried.get(name):
                    is_free = '/' not in line and name not in map(normal_name, self.pins)
                    lines[name] = re.split(r'\s--', line)[0] if is_free else ''
                    options[name] = self.index_options(stage) + shlex.split(' '.join(long_options)) \
                        if lines[name] else []
        older = sorted(name for name in self.looked_at if name in packages and packages.in_user_software(name))
        everywhere = [option for stage in stages for option in self.index_options(stage)] if older else []
        return ImportRequest(
            names=sorted(lines), lines={name: line for name, line in lines.items() if line},
            options=dict(dict.fromkeys(older, everywhere), **{
                name: words for name, words in options.items() if words}),
            kept=self.reasons(), older=older)


def version_tuple(version: str) -> Tuple[int, ...]:
    """Return the leading numbers of a version, for comparisons."""
    return tuple(int(number) for number in re.split(r'[^\d.]', version)[0].split('.') if number)


def reference_to(item: Reported) -> str:
    """Return the requirement line for exactly the file, commit or directory of an item of pip's report."""
    download = item['download_info']
    place = download['url']
    if 'vcs_info' in download:
        place = '%s+%s@%s' % (download['vcs_info']['vcs'], place, download['vcs_info']['commit_id'])
    parts = ['sha256=' + digest_of(download)] if digest_of(download) else []
    if 'subdirectory' in download:
        parts.append('subdirectory=' + download['subdirectory'])
    return '%s @ %s%s' % (item['metadata']['name'], place.split('#')[0], '#' + '&'.join(parts) if parts else '')


def artifacts_in(items: List[Reported]) -> Dict[str, Dict[str, str]]:
    """
    Return the files in pip's report, as far as it has their SHA256.

    Each has the name of the file and its SHA256, by normalized package name.
    """
    found = {}
    for item in items:
        download = item['download_info']
        digest = digest_of(download)
        if digest:
            # not the whole URL, which may contain a password
            name = download['url'].split('#')[0].split('?')[0].rstrip('/').rsplit('/', 1)[-1]
            found[normal_name(item['metadata']['name'])] = {'file': name, 'sha256': digest}
    return found


def digest_of(download: Reported) -> str:
    """Return the SHA256 of a file in pip's report; empty if the report has none."""
    archive = download.get('archive_info', {})
    return archive.get('hashes', {}).get('sha256') or archive.get('hash', '').replace('sha256=', '')
