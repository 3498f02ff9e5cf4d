##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Inspect an image: its packages and labels, its entry point. Refuse it if it lacks something that the
installation needs.
"""
import json
import os
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.config import build_option
from easybuild.tools.filetools import mkdir, remove_dir

from .framework import RunShellCmdError
from .packages import Description, InstalledPackages
from .imageprograms import read_program, sh_command
from .parameters import CONDA_ENVIRONMENT
from .runtime import STOPPED, InstallContainer, named_variables
from .sitevalues import CONDA_ROOT, CONSTRAINT_VARIABLES
from .values import value_problem, variable_problem
from .written import BLOCKS, UnfitError, escape, is_package, path_problem, read_written

# what the runtime says
NO_SHELL = re.compile(r'FATAL: .*\bsh"?: (?:executable file not found|no such file)', re.IGNORECASE)

# importlib.metadata, and what pip 22.2 needs
OLDEST_PYTHON = (3, 8)
# variables that every program or shell sets by itself, and PATH, which the module composes
SHELL_VARIABLES = ('_', 'OLDPWD', 'PATH', 'PWD', 'SHLVL')
# Conda's names of files are NAME-VERSION-BUILD.json
CONDA_FILE = re.compile(r'(?P<prefix>.*)/conda-meta/(?P<name>[^/]+)-(?P<version>[^/-]+)-[^/-]+\.json\Z')
# https://github.com/package-url/purl-spec
PACKAGE_URL = re.compile(r'pkg:(pypi|conda|deb|rpm|apk)/')


# The packages of the system and of Conda, for the record.
Inventory = Dict[str, Union[Dict[str, str], Dict[str, List[str]]]]


class CommandResult(NamedTuple):
    """The result of a command that ran in the container in which an image was inspected."""

    exit_code: int
    output: str
    stderr: str


class ImageProbe:
    """The output of sh/probe-image.sh for an image."""

    # the result of the other command that ran in the same container, if there was one
    other: CommandResult

    def __init__(self, image: str, output: str, errors: str = '') -> None:
        """Parse the standard output and the standard error of the script; messages name the image."""
        self.image = image
        lines = output.splitlines()
        found = dict(line.split('\t', 1) for line in lines if '\t' in line)
        # their paths in the image; empty if it has none
        self.bash, self.python3 = found.get('bash', ''), found.get('python3', '')
        # what installed-packages.py has printed; empty if it didn't run
        self.listing = lines[-1] if lines and lines[-1].startswith('{') else ''
        self.errors = errors.strip().splitlines()
        try:
            self.python = InstalledPackages.read(self.listing) if self.listing else {}
        except UnfitError as err:
            self.listing, self.python, self.errors = '', {}, [str(err)]
        # the part of the record on the packages of the system and of Conda
        self.inventory: Inventory = {}
        self.labels: Dict[str, str] = {}
        # paths of Conda environments with Python
        self.environments: List[str] = []
        # files with constraints for pip and uv by the variable that the image sets
        self.constraints: Dict[str, str] = {}

    @classmethod
    def inspect(cls, container: InstallContainer, image: str, other: Sequence[str] = (),
                binds: Sequence[str] = ()) -> 'ImageProbe':
        """
        Start a container and inspect its image, which messages name.

        Another command runs in the same container, with these binds, because starting a second one takes longer. Stops
        if the disk is full.
        """
        folder = os.path.join(container.work_dir, 'image-databases')
        remove_dir(folder)
        mkdir(folder)
        # of the image: the others come from the easyconfig or from whoever installs
        names = [name for name in CONSTRAINT_VARIABLES
                 if name not in container.variables and name not in named_variables(os.environ)]
        command = sh_command('probe-image.sh', BLOCKS, folder, '', ' '.join(names), *other)
        try:
            output = container.run(command, binds, stdin=read_program('installed-packages.py'), split_stderr=True,
                                   limited=True)
        except RunShellCmdError as err:
            if STOPPED in (err.stderr or ''):
                raise EasyBuildError("The image %s can't be inspected: its programs don't end, or print without "
                                     "end. Nothing was copied.", image)
            if not NO_SHELL.search(err.stderr or ''):
                raise
            raise EasyBuildError("No shell (sh) can be started in the image %s. Nothing was copied. Images without "
                                 "one run with the runtime alone: %s exec IMAGE PROGRAM", image,
                                 os.path.basename(container.runtime.path))
        found = cls(image, output.output, output.stderr or '')
        found.inventory, found.labels = read_inventory(folder), read_labels(folder)
        found.environments = read(folder, 'environments').splitlines()
        variables = [line.partition('\t') for line in read(folder, 'variables').splitlines()]
        found.constraints = {name: escape(value) for name, _, value in variables if name in names}
        if other:
            status = read(folder, 'status').strip()
            if not status:
                raise EasyBuildError("The image %s was inspected, but the result can't be written to %s: the disk is "
                                     "full, a quota is used up, or containers can't write there. Free some space, or "
                                     "choose another build directory (EASYBUILD_BUILDPATH).", image, container.work_dir)
            found.other = CommandResult(int(status), read(folder, 'output'), read(folder, 'errors'))
        return found

    @property
    def packages(self) -> InstalledPackages:
        """The packages that the image's Python sees; none if it has no working Python."""
        return InstalledPackages.from_output(self.listing) if self.listing else InstalledPackages()

    def lacks(self, venv: bool) -> List[str]:
        """Return what the image lacks, one clause for each part; `venv`: whether a venv is needed."""
        texts = [] if self.bash else ["it has no bash, which all scripts that run in it need"]
        if not self.python3:
            return texts + ["it has no python3 on PATH"]
        if not self.python:
            return texts + ["its python3 doesn't work: %s" % escape((self.errors or ['it prints nothing'])[-1])]
        reason = why_no_venv(self.python) if venv else ''
        return texts + ([reason] if reason else [])

    def check(self, venv: bool) -> None:
        """Refuse the image if it lacks something (see `lacks`); the message says what to do."""
        lacks = self.lacks(venv)
        if not lacks:
            return
        ways = ["take an image that has it"]
        if self.bash and self.python and venv:
            ways.append("install the image without user software (easyblock ContainerInstall; 'venv: false' in a "
                        "catalog)")
        else:
            ways.append("install it without Python (easyblock ContainerInstall with init = 'none'; 'venv: false' and "
                        "'init: none' in a catalog): module, binds, wrappers and start-shell work")
        raise EasyBuildError("The image %s can't be installed like this: %s. Nothing was copied. Either %s, or %s.",
                             self.image, '; '.join(lacks), *ways)

    def check_environment(self, prefix: str, venv: bool = True) -> str:
        """
        Refuse the image unless its Python is that of a Conda environment with this path (H-05).

        Without the environment, the module would quietly have another Python, or none. One that is there and has no
        Python, but R, say, is only worth a warning, which is returned, unless the module needs Python for its venv.
        """
        if self.python3 == os.path.join(prefix, 'bin', 'python3'):
            return ''
        if prefix in self.inventory.get('conda_packages', {}) and not venv:
            return "The Conda environment %s in the image has no Python: commands for Python start %s" % (
                prefix, escape(self.python3))
        names = [os.path.basename(path) if os.path.dirname(path) == os.path.join(CONDA_ROOT, 'envs') else path
                 for path in self.environments if CONDA_ENVIRONMENT.match(path) and not path_problem(path)]
        remedy = "No Conda environment with Python was found in it: with init = 'image' the module has its python3."
        if names:
            remedy = "Set 'conda_env' to an environment that is there: %s." % ', '.join(map(escape, names))
        raise EasyBuildError("Easyconfig parameter 'conda_env': the image %s has no Conda environment %s with "
                             "Python%s. Nothing was copied. %s", self.image, prefix,
                             ", its python3 is %s" % escape(self.python3) if self.python3 else '', remedy)

    def wrong_packages(self, wanted: Dict[str, str]) -> Optional[str]:
        """Return what is wrong if the image doesn't have the packages in 'image_packages' (L-12, F-11)."""
        there = self.packages
        if self.python:
            there['python'] = ('python', self.python['version'], '')
        wrong = there.other_than(wanted)
        if not wrong:
            return None
        # who has typed that knows it
        more = '' if build_option('ignore_test_failure') else \
            " To install it nevertheless, use 'eb --ignore-test-failure'."
        return ("Easyconfig parameter 'image_packages': the image %s has %s. Is it the right image? Use the image that "
                "the easyconfig describes, or correct the versions in the easyconfig.%s"
                % (self.image, ', '.join(wrong), more))


def why_no_venv(python: Description) -> str:
    """Return why a Python can't create a venv, from the output of installed-packages.py; empty if it can."""
    # the image can print anything
    if not re.match(r'\d+(\.\d+)+[a-z0-9.+]*\Z', python['version']):
        return "its Python does not report a version"
    if tuple(int(number) for number in re.findall(r'\d+', python['version'])) < OLDEST_PYTHON:
        return "its Python %s is too old, %s or newer is needed" % (
            python['version'], '.'.join(str(number) for number in OLDEST_PYTHON))
    missing = [name for name in ('importlib.metadata', 'json', 'venv') if name in python['missing']]
    if missing:
        return ("its Python is incomplete, the standard library lacks %s (Debian has it in the packages python3 and "
                "python3-venv)" % ', '.join(missing))
    if {'pip', 'ensurepip'} <= set(python['missing']):
        return "its Python has no pip, and no ensurepip to install one (Debian has it in the package python3-venv)"
    return ''


# --- databases of packages

def read_inventory(folder: str) -> Inventory:
    """Return the packages of an image that fit for the record, from the databases that probe-image.sh has copied."""
    packages = {'deb': dpkg_packages(read(folder, 'dpkg')), 'apk': apk_packages(read(folder, 'apk')),
                'rpm': [line for line in package_lines(read(folder, 'rpm')) if not line.startswith('gpg-pubkey==')]}
    conda = conda_packages(read(folder, 'conda'))
    release = dict(re.findall(r'^(ID|VERSION_ID)=["\']?([^"\'\n]*)', read(folder, 'os-release'), re.MULTILINE))
    return {
        'system': {'distribution': release.get('ID', ''), 'release': release.get('VERSION_ID', '')},
        'system_packages': fitting(packages),
        'conda_packages': fitting(conda),
        'image_list': fitting(packages_in_sbom(read(folder, '.sbom.json'))),
    }


def fitting(lists: Dict[str, List[str]]) -> Dict[str, List[str]]:
    """Return lists of name==version, each line once, without names and versions that no package has."""
    found = {key: sorted({line for line in lines if is_package(*line.split('==', 1))}) for key, lines in lists.items()}
    return {key: lines for key, lines in found.items() if lines and key.isprintable()}


def read(folder: str, name: str) -> str:
    """Return the text of one of the copied files, '' if there is none."""
    return read_written(os.path.join(folder, name), os.path.dirname(folder))


def package_lines(text: str) -> List[str]:
    """Return the lines that are name==version."""
    return [line for line in text.splitlines() if re.match(r'[^=\s]+==\S+\Z', line)]


def dpkg_packages(text: str) -> List[str]:
    """Return the installed packages in dpkg's database; packages of a foreign architecture as NAME:ARCH."""
    found, own = [], ''
    for paragraph in re.split(r'\n\s*\n', text):
        fields = dict(re.findall(r'^(Package|Version|Status|Architecture): *(.*\S)', paragraph, re.MULTILINE))
        # files in status.d have no status
        state = fields.get('Status', 'installed').split()[-1]
        if state == 'installed' and 'Package' in fields and 'Version' in fields:
            found.append((fields['Package'], fields.get('Architecture', 'all'), fields['Version']))
            if fields['Package'] in ('dpkg', 'libc6'):
                own = own or fields.get('Architecture', '')
    return ['%s%s==%s' % (name, '' if architecture in ('all', own) or not own else ':' + architecture, version)
            for name, architecture, version in found]


def apk_packages(text: str) -> List[str]:
    """Return the packages in the database of Alpine's apk."""
    return ['%s==%s' % one for one in re.findall(r'^P:(\S+)\nV:(\S+)$', text, re.MULTILINE)]


def conda_packages(text: str) -> Dict[str, List[str]]:
    """Return the packages of each Conda environment by its prefix, from the paths of files in conda-meta."""
    found: Dict[str, List[str]] = {}
    for path in sorted(set(text.splitlines())):
        match = CONDA_FILE.match(path)
        if match:
            found.setdefault(match.group('prefix'), []).append('%s==%s' % match.group('name', 'version'))
    return found


def packages_in_sbom(text: str) -> Dict[str, List[str]]:
    """
    Return the packages that an image lists itself in /.sbom.json, by kind.

    Its format is CycloneDX, SPDX, or the LUMI AI Factory's: {"apt": [{"name":, "version":}], "pip": [...]}.
    """
    try:
        content = json.loads(text or '{}')
        found: List[Tuple[Optional[str], object, object]] = [
            (kind, one['name'], one['version'])
            for key, kind in (('apt', 'deb'), ('rpm', 'rpm'), ('apk', 'apk'), ('pip', 'pypi'), ('conda', 'conda'))
            for one in content.get(key) or []]
        for one in content.get('components') or []:
            found.append((kind_of(one.get('purl')), one.get('name'), one.get('version')))
        for one in content.get('packages') or []:
            urls = [reference.get('referenceLocator') for reference in one.get('externalRefs') or []]
            kinds = [kind_of(url) for url in urls if kind_of(url)]
            found.append((kinds[0] if kinds else None, one.get('name'), one.get('versionInfo')))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # anybody can write a file of that name
        return {}
    lines: Dict[str, Set[str]] = {}
    for kind, name, version in found:
        if kind and isinstance(name, str) and isinstance(version, str):
            lines.setdefault(kind, set()).add('%s==%s' % (name, version))
    return {kind: sorted(lines[kind]) for kind in lines}


def kind_of(url: Optional[str]) -> Optional[str]:
    """Return the kind of package in a package URL, None for kinds that are not recorded."""
    match = PACKAGE_URL.match(url or '')
    return match.group(1) if match else None


def read_labels(folder: str) -> Dict[str, str]:
    """Return the labels of the image, which say where it comes from."""
    try:
        labels = json.loads(read(folder, 'labels.json') or '{}')
    except (ValueError, RecursionError):
        return {}
    if not isinstance(labels, dict):
        return {}
    return {str(name): text for name, text in labels.items() if isinstance(text, str)}


# --- the entry point


def check_entry_point(container: InstallContainer, entry_point: str) -> None:
    """Check that the entry point, a full path in the image, runs a given program with unchanged arguments."""
    # the entry point that the runtime generates for OCI images passes its arguments through a shell
    arguments = ['a  b', '$HOME', '"\'', '\\', '']
    result = container.run([entry_point, 'printf', '[%s]'] + arguments, split_stderr=True,
                           fail_on_error=False)
    if result.output != ''.join('[%s]' % argument for argument in arguments):
        raise EasyBuildError("Easyconfig parameter 'entry_point': %s does not run a given program with the same "
                             "arguments. Use the program that it starts itself, or leave 'entry_point' out. "
                             "Its output: %s", entry_point, (result.output + (result.stderr or '')).strip() or 'none')


def entry_point_environment(container: InstallContainer, entry_point: str, tcl_in_lmod: bool) -> Dict[str, str]:
    """
    Return the variables that the entry point sets in every job and rank; see `check_entry_point`.

    Set by the module, they are also there for programs that the runtime starts without the entry point. Values that
    Lmod can't set from a module in Tcl are left out with `tcl_in_lmod`.
    """
    check_entry_point(container, entry_point)
    result = container.run(sh_command('entry-environment.sh', entry_point), split_stderr=True)
    variables = dict(line.split('=', 1) for line in result.output.split('\n') if '=' in line)
    # without directories of this installation
    return {name: value for name, value in variables.items()
            if not variable_problem(name) and name not in SHELL_VARIABLES and container.work_dir not in value
            and not value_problem(value, tcl_in_lmod)}


# --- programs of the host


def check_account(container: InstallContainer, binds: Sequence[str], account: str, file: str) -> None:
    """
    Refuse an image that doesn't know the account in SlurmUser, without which Slurm's programs stop (K-03).

    ``file`` is the slurm.conf of the host, empty if its programs read none; ``binds`` are of what they read.
    """
    if not file:
        return
    users = container.run(['cat', '/etc/passwd'], binds, split_stderr=True, fail_on_error=False).output
    if not re.search('^(%s:|[^:]*:[^:]*:%s:)' % ((re.escape(account),) * 2), users, re.MULTILINE):
        raise EasyBuildError("Easyconfig parameter 'host_programs': the image doesn't know the account %s, SlurmUser "
                             "in %s, so Slurm's programs would stop. Nothing was copied. Add a line for it to "
                             "/etc/passwd of the image, or add '/etc/passwd' and '/etc/group' to 'files', so that the "
                             "container has the host's (if people's accounts have lines there).", account, file)
