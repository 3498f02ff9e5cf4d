##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Inspect an image, and refuse it if it lacks something that the installation needs.
"""
import collections
import glob
import importlib.util
import os
import re
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import mkdir, remove_dir

from .inventory import read, read_inventory, read_labels
from .packages import Packages
from .scripts import read_program, sh_command
from .texts import value_problem, variable_problem

# importlib.metadata, and what pip 22.2 needs
OLDEST_PYTHON = (3, 8)
# the first pip with --report; Python 3.12 needs a newer one
OLDEST_PIP, OLDEST_PIP_312 = (22, 2), (23, 1, 2)
# where Linux distributions keep the wheels for ensurepip
WHEEL_FOLDER = '/usr/share/python-wheels'
# variables that every program or shell sets by itself, and PATH, which the module composes
SHELL_VARIABLES = ('_', 'OLDPWD', 'PATH', 'PWD', 'SHLVL')

# of a command that was run together with others: like EasyBuild's RunShellCmdResult
CommandResult = collections.namedtuple('CommandResult', 'exit_code output stderr')


class ImageProbe:
    """
    The output of sh/probe-image.sh for an image.

    Attributes
    ----------
    bash, python3 : str
        Path in the image; empty if it has none.
    python : dict
        Output of installed-packages.py; empty if it didn't run.
    inventory : dict
        The part of the record on the packages of the system and of Conda.
    labels : dict of str
        The labels of the image.
    creation : CommandResult
        That of the command that creates a venv; None if there is none.
    runtime : str
        The runtime that started the image, for example 'apptainer version 1.4.5'.
    """

    def __init__(self, image, output, errors=''):
        """
        Parse the output of the script.

        Parameters
        ----------
        image : str
            Name of the image, for messages.
        output, errors : str
            Its standard output and standard error.
        """
        self.image = image
        lines = output.splitlines()
        found = dict(line.split('\t', 1) for line in lines if '\t' in line)
        self.bash, self.python3 = found.get('bash', ''), found.get('python3', '')
        self.said = lines[-1] if lines and lines[-1].startswith('{') else ''
        self.python = Packages.read(self.said) if self.said else {}
        self.errors = errors.strip().splitlines()
        self.inventory = self.labels = {}
        self.creation = self.runtime = None

    @classmethod
    def of(cls, container, image, venv=None):
        """
        Start a container and inspect its image.

        Parameters
        ----------
        container : Container
        image : str
            Name of the image, for messages.
        venv : Venv
            A venv to create in the same container, because starting another one takes longer; see `Venv.make`.

        Returns
        -------
        ImageProbe

        Raises
        ------
        EasyBuildError
            If the disk is full.
        """
        folder = os.path.join(container.work_dir, 'image-databases')
        remove_dir(folder)
        mkdir(folder)
        command = sh_command('probe-image.sh', folder, '', *venv.creation_command if venv else [])
        with ThreadPoolExecutor(1) as beside:
            version = beside.submit(lambda: container.runtime.version)
            output = (venv or container).run(command, stdin=read_program('installed-packages.py'), split_stderr=True,
                                             hidden=True)
        found = cls(image, output.output, output.stderr)
        found.runtime = version.result()
        found.inventory, found.labels = read_inventory(folder), read_labels(folder)
        if venv:
            status = read(folder, 'status').strip()
            if not status:
                raise EasyBuildError("The image %s was inspected, but the result can't be written to %s: the disk is "
                                     "full, or a quota used up. Free some space, or choose another build directory (eb "
                                     "--buildpath).", image, container.work_dir)
            found.creation = CommandResult(int(status), read(folder, 'output'), read(folder, 'errors'))
        return found

    @property
    def packages(self):
        """The packages that the image's Python sees (Packages); none if it has no working Python."""
        return Packages.from_output(self.said) if self.said else Packages()

    @property
    def version(self):
        """The version of the image's Python (tuple of int)."""
        return tuple(int(number) for number in self.python['version'].split('.'))

    def lacks(self, venv):
        """
        Return what the image lacks.

        Parameters
        ----------
        venv : bool
            Whether it also needs to support a venv.

        Returns
        -------
        list of str
            One clause for each missing part.
        """
        texts = [] if self.bash else ["it has no bash, which all scripts that run in it need"]
        if not self.python3:
            return texts + ["it has no python3 on PATH"]
        if not self.python:
            return texts + ["its python3 doesn't work: %s" % (self.errors or ['it says nothing'])[-1]]
        if not venv:
            return texts
        reason = why_no_venv(self.python)
        if reason:
            return texts + [reason]
        if {'pip', 'ensurepip'} <= set(self.python['missing']) and not self.pip_wheel:
            texts.append(self.no_pip)
        return texts

    def check(self, venv):
        """
        Refuse the image if it lacks something; see ``lacks``.

        Raises
        ------
        EasyBuildError
            The message says what is missing and what to do.
        """
        lacks = self.lacks(venv)
        if not lacks:
            return
        ways = ["take an image that has it"]
        if self.bash and self.python and venv:
            ways.append("install the image without user software (easyblock ContainerInstall; 'venv: false' in a "
                        "catalogue)")
        else:
            ways.append("install it without Python (easyblock ContainerInstall with init = 'none'; 'venv: false' and "
                        "'init: none' in a catalogue): module, binds, wrappers and start-shell work")
        raise EasyBuildError("The image %s can't be installed like this: %s. Nothing was copied. Either %s, or %s.",
                             self.image, '; '.join(lacks), *ways)

    def wrong_packages(self, wanted):
        """Return what is wrong if the image has not what 'image_packages' says (str; L-12, F-11), else None."""
        there = self.packages
        if self.python:
            there['python'] = ('python', self.python['version'], '')
        wrong = there.other_than(wanted)
        if not wrong:
            return None
        return ("Easyconfig parameter 'image_packages': the image %s has %s. Is it the right image? Use the one that "
                "the easyconfig describes, or correct the versions in the easyconfig. To install it nevertheless, use "
                "'eb --ignore-test-failure'." % (self.image, ', '.join(wrong)))

    @property
    def no_pip(self):
        """Explanation why a venv can't get a pip (str)."""
        return ("its Python has no pip that a venv can use, and no ensurepip (Debian has it in the package "
                "python3-venv), and there is no wheel of pip for Python %s on this machine (in ensurepip of "
                "EasyBuild's Python, or in %s)" % (self.python['version'], WHEEL_FOLDER))

    @property
    def pip_wheel(self):
        """The newest wheel of pip on this machine that the image's Python can use (path), '' if there is none."""
        folders = [WHEEL_FOLDER, sysconfig.get_config_var('WHEEL_PKG_DIR')]
        ensurepip = importlib.util.find_spec('ensurepip')
        if ensurepip:
            folders.append(os.path.join(os.path.dirname(ensurepip.origin), '_bundled'))
        wheels = [path for folder in folders if folder
                  for path in glob.glob(os.path.join(glob.escape(folder), 'pip-*-py3-none-any.whl'))]
        usable = [(pip_version(path), path) for path in wheels if self.is_usable(path)]
        return max(usable)[1] if usable else ''

    def is_usable(self, wheel):
        """Return whether a wheel of pip supports the image's Python, according to its metadata."""
        oldest = OLDEST_PIP_312 if self.version >= (3, 12) else OLDEST_PIP
        try:
            with zipfile.ZipFile(wheel) as archive:
                metadata = archive.read('pip-%s.dist-info/METADATA' % os.path.basename(wheel).split('-')[1])
        except (OSError, KeyError, zipfile.BadZipFile):
            return False
        wanted = re.search(r'^Requires-Python: *>= *(\d+)\.(\d+)', metadata.decode('utf-8', 'replace'), re.MULTILINE)
        return pip_version(wheel) >= oldest and bool(wanted) and \
            self.version >= tuple(int(number) for number in wanted.groups())


def check_entry_point(container, entry_point):
    """
    Check that the entry point runs a given program with unchanged arguments.

    Parameters
    ----------
    container : Container
        The image, at install time.
    entry_point : str
        Its full path in the image.

    Raises
    ------
    EasyBuildError
        If it doesn't.
    """
    # the one that the runtime generates for OCI images passes its arguments through a shell
    arguments = ['a  b', '$HOME', '"\'', '\\', '']
    result = container.run([entry_point, 'printf', '[%s]'] + arguments, hidden=True, split_stderr=True,
                           fail_on_error=False)
    if result.output != ''.join('[%s]' % argument for argument in arguments):
        raise EasyBuildError("Easyconfig parameter 'entry_point': %s does not run a given program with the same "
                             "arguments. Use the program that it starts itself, or leave 'entry_point' out. "
                             "Its output: %s", entry_point, (result.output + result.stderr).strip() or 'none')


def entry_point_environment(container, entry_point, tcl_in_lmod):
    """
    Return the variables that the entry point sets in every job and rank (dict); see ``check_entry_point``.

    Set by the module, they are also there for programs that the runtime starts without the entry point.

    Parameters
    ----------
    container, entry_point
        As for check_entry_point.
    tcl_in_lmod : bool
        Whether Lmod will read a module in Tcl, which can't set every value.
    """
    check_entry_point(container, entry_point)
    result = container.run(sh_command('entry-environment.sh', entry_point), hidden=True, split_stderr=True)
    variables = dict(line.split('=', 1) for line in result.output.split('\n') if '=' in line)
    # without directories of this installation
    return {name: value for name, value in variables.items()
            if not variable_problem(name) and name not in SHELL_VARIABLES and container.work_dir not in value
            and not value_problem(value, tcl_in_lmod)}


def why_no_venv(python):
    """
    Return why an image's Python can't create a venv.

    Parameters
    ----------
    python : dict
        The output of installed-packages.py.

    Returns
    -------
    str
        The reason; empty if it can create one.
    """
    # the image can print anything
    if not re.match(r'\d+(\.\d+)+', python['version']):
        return "its Python tells no version"
    if tuple(int(number) for number in re.findall(r'\d+', python['version'])) < OLDEST_PYTHON:
        return "its Python %s is too old, %s or newer is needed" % (
            python['version'], '.'.join(str(number) for number in OLDEST_PYTHON))
    missing = [name for name in ('importlib.metadata', 'json', 'venv') if name in python['missing']]
    if missing:
        return ("its Python is incomplete, the standard library lacks %s (Debian has it in the packages python3 and "
                "python3-venv)" % ', '.join(missing))
    return ''


def pip_version(wheel):
    """Return the version in the file name of a wheel of pip (tuple of int)."""
    return tuple(int(number) for number in re.findall(r'\d+', os.path.basename(wheel).split('-')[1]))
