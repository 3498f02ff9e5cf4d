##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Run Apptainer or SingularityCE, and apply their rules for binds and variables.
"""
import os
import re
from datetime import datetime
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Union

from easybuild.tools.build_log import EasyBuildError, print_msg, time_str_since
from easybuild.tools.filetools import mkdir
from easybuild.tools.utilities import trace_msg

from . import values
from .image import sif
from .framework import EasyBuildExit, RunShellCmdError, RunShellCmdResult, run_shell_cmd
from .imageprograms import FILES
from .schedulers import SCHEDULERS
from .sitevalues import KEPT_OUT, KEPT_OUT_PREFIXES, RUNTIME_PREFIXES, find_runtime
from .space import no_space
from .values import bind_source
from .written import escape

# The variables of the caller that commands of an installation get: variables for the runtime, the user's name and
# language, proxies, certificates, credentials, settings of pip, the batch job and its devices. An allow list, not a
# deny list, because any package may read variables of its own (CFLAGS, CPATH, MAX_JOBS, USE_CUDA ...) and EasyBuild
# sets those of its toolchain (CC, CXX), but the result shouldn't depend on the person who installs.
PASSED = re.compile(r"""(?:
    PATH|LD_LIBRARY_PATH|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS  # the runtime doesn't pass on the first two
    |(?:SINGULARITY|APPTAINER)_(?:CACHEDIR|CONFIGDIR|TMPDIR)
    |HOME|USER|LOGNAME|TERM|TZ|LANG|LANGUAGE|LC_\w+
    |(?i:https?|ftp|all|no)_(?i:proxy)
    |SSL_CERT_FILE|SSL_CERT_DIR|\w+_CA_BUNDLE|GIT_SSL_\w+
    |SSH_AUTH_SOCK|GIT_SSH\w*|GIT_ASKPASS|GIT_CONFIG_\w+|NETRC
    |PIP_\w+
    |(?:%s|PMI_|PMIX_|PALS_)\w+|\w+_VISIBLE_DEVICES
    )\Z""" % '|'.join(one.variables for one in SCHEDULERS.values()), re.VERBOSE)

# Names of additional variables of the caller to pass.
INSTALL_ENV_VARIABLE = 'EBSIF_INSTALL_ENV'

# Additional binds on this machine, only during installations (certificates, a pip configuration, a directory of
# wheels).
INSTALL_BIND_VARIABLE = 'EBSIF_INSTALL_BIND'

# In the working directory of a container: its home directory, and the directory for temporary files.
FOLDERS = HOME, TEMPORARY = 'home', 'tmp'

SHOWN_LINES = 15  # of the output of a program that failed

# Limits of the programs of an image that inspect it. Making a venv takes minutes on a busy file system; a description
# of Python has some MB.
LONGEST = 1800  # seconds
MOST_PRINTED = 8 * 10 ** 6  # bytes
STOPPED = 'ebsif: stopped after '  # what run-limited.sh prints


# The value of an option of EasyBuild's run_shell_cmd.
Option = Union[str, bool, Dict[str, str], None]


class Runtime:
    """The container runtime of this machine."""

    def __init__(self) -> None:
        """Find the runtime on PATH; raises EasyBuildError if there is none."""
        path = find_runtime()
        if not path:
            raise EasyBuildError("Neither 'apptainer' nor 'singularity' found on PATH: a container can't be installed "
                                 "here. Load the module of the runtime, or run eb on a node that has it.",
                                 exit_code=EasyBuildExit.MISSING_SYSTEM_DEPENDENCY)
        self.path = path

    def version(self) -> str:
        """Return the output of the runtime's --version, for example 'apptainer version 1.4.5'."""
        return run_program([self.path, '--version']).output.strip()

    def run(self, command: List[str], image: str, home: str, binds: List[str], overlays: Sequence[str] = (),
            **options: Option) -> RunShellCmdResult:
        """
        Run a command in an image; return its result (see `run_program`, which gets the options).

        ``home`` is the home directory in the container; overlays are SquashFS files, mounted read-only. Raises
        EasyBuildError if the image is damaged or closed to this account, else RunShellCmdError if the command fails.
        """
        # unlike a bind, it is no list: a comma is part of the path
        arguments = [self.path, 'exec', '--home', home]
        for bind in binds:
            arguments += ['--bind', bind]
        for overlay in overlays:
            arguments += ['--overlay', overlay + ':ro']
        try:
            return run_program(arguments + [image] + command, **options)
        except RunShellCmdError as err:
            damage = sif.damage(image, '%s%s' % (err.output, err.stderr))
            if damage:
                raise EasyBuildError("The image %s %s.", image, damage)
            raise


class InstallContainer:
    """A container at install time."""

    def __init__(self, runtime: Runtime, image: str, work_dir: str, variables: Optional[Dict[str, str]] = None,
                 search_path: Sequence[str] = (), binds: Sequence[str] = (),
                 optional_binds: Sequence[str] = ()) -> None:
        """
        Set up a container.

        Commands run in ``work_dir``, which has the same path in the container, and contains their home directory and
        their directory for temporary files. ``search_path`` is the start of PATH. Optional binds are made if their
        source exists.
        """
        if ':' in work_dir:
            # of --home, which can't escape it
            raise EasyBuildError("The build directory %s contains a colon, so the runtime can't show it to containers. "
                                 "Choose another one: EASYBUILD_BUILDPATH or `eb --buildpath`.", work_dir)
        self.runtime = runtime
        self.image = image
        self.work_dir = work_dir
        self.variables = dict(variables or {})
        self.search_path = list(search_path)
        # directories that come before the image's LD_LIBRARY_PATH
        self.library_path: List[str] = []
        self.binds = list(binds)
        self.optional_binds = list(optional_binds)
        # SquashFS files to mount over the image
        self.overlays: List[str] = []

    def environment(self) -> Dict[str, str]:
        """
        Return the environment of the runtime and its command.

        It has the variables of the container, and the caller's variables that this machine needs: the result shouldn't
        depend on the person who runs eb.
        """
        environment = passed_variables(os.environ)
        environment['TMPDIR'] = os.path.join(self.work_dir, TEMPORARY)
        injected = dict(self.variables)
        if self.search_path:
            injected['PREPEND_PATH'] = ':'.join(self.search_path)
        environment.update(inject_variables(injected))
        if self.library_path:
            environment.update(inject_library_path(self.library_path))
        return environment

    def existing_binds(self) -> List[str]:
        """Return the bind of the working directory, and the binds of the module; refuse one whose source is missing."""
        missing = [bind for bind in self.binds if not os.path.exists(bind_source(bind))]
        if missing:
            raise EasyBuildError("Required bind mounts don't exist on this machine: %s. Write '?' before them in "
                                 "'binds' if the container works without them, or install on a node that has them.",
                                 ', '.join(missing))
        optional = existing_binds(self.optional_binds)
        extra = os.environ.get(INSTALL_BIND_VARIABLE)
        return [escape_bind(self.work_dir)] + self.binds + optional + ([extra] if extra else [])

    def run(self, command: List[str], binds: Sequence[str] = (), environment: Optional[Dict[str, str]] = None,
            **options: Option) -> RunShellCmdResult:
        """Run a command with more binds and variables, without the user's home directory; see Runtime.run."""
        home = os.path.join(self.work_dir, HOME)
        for path in (home, os.path.join(self.work_dir, TEMPORARY)):
            mkdir(path, parents=True)
        return self.runtime.run(
            command, image=self.image, home=home, binds=self.existing_binds() + list(binds), overlays=self.overlays,
            work_dir=self.work_dir, env=dict(self.environment(), **(environment or {})), **options)


def inject_variables(variables: Dict[str, str]) -> Dict[str, str]:
    """Return the variables that make the runtime set these variables in the container."""
    return {'%sENV_%s' % (prefix, name): escape_value(value)
            for name, value in variables.items() for prefix in RUNTIME_PREFIXES}


def inject_library_path(first: Sequence[str], last: Sequence[str] = ()) -> Dict[str, str]:
    """Return the variables that make the runtime put directories before and after the image's LD_LIBRARY_PATH."""
    # expanded by a shell in the container, which has the image's value; an empty part would be the current directory
    before, after = escape_value(':'.join(first)), escape_value(':'.join(last))
    if before:
        value = before + '${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}' + (':' + after if after else '')
    else:
        value = '${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}' + after
    return {prefix + 'ENV_LD_LIBRARY_PATH': value for prefix in RUNTIME_PREFIXES}


def run_program(arguments: List[str], limited: Option = False, shown: Option = '',
                **options: Option) -> RunShellCmdResult:
    """
    Run a program without a shell; return the result of run_shell_cmd, which gets the options.

    ``shown``: what stands for the program in the trace of eb, as EasyBuild shows its commands; others aren't shown.

    ``limited``: stop it after LONGEST seconds, or when it has printed more than MOST_PRINTED bytes (see STOPPED).

    If it fails, the end of its output is shown, before EasyBuild says where the rest is (RunShellCmdError), or
    EasyBuildError says that there is no more space.
    """
    limits = ['bash', '-p', os.path.join(FILES, 'sh', 'run-limited.sh'), str(LONGEST), str(MOST_PRINTED)]
    start = datetime.now()
    if shown:
        trace_msg("running command:\n\t%s\n\t[started at: %s]" % (shown, start.strftime('%Y-%m-%d %H:%M:%S')))
    try:
        done = run_shell_cmd(limits + arguments if limited else arguments, use_bash=False, hidden=True, **options)
    except RunShellCmdError as err:
        output = (err.output or '') + (err.stderr or '')
        for line in output.strip().splitlines()[-SHOWN_LINES:]:
            print_msg('  ' + escape(line), prefix=False, stderr=True)
        full = no_space(output)
        if full:
            # what runs in a container is shown
            name = shown.split()[0] if isinstance(shown, str) and shown else os.path.basename(arguments[0])
            raise EasyBuildError("%s failed: %s", name, full)
        raise
    if shown:
        trace_msg("command completed: exit %d, ran in %s" % (done.exit_code, time_str_since(start)))
    return done


def runtime_variables(environment: Iterable[str]) -> List[str]:
    """Return the variables that change what the runtime does, except variables for its own directories."""
    places = ('CACHEDIR', 'CONFIGDIR', 'TMPDIR')
    kept = ['%s_%s' % (prefix, name) for prefix in RUNTIME_PREFIXES for name in places]
    return [key for key in environment if key.startswith(RUNTIME_PREFIXES) and key not in kept]


def named_variables(environment: Mapping[str, str]) -> List[str]:
    """Return the names of additional variables that the caller wants to pass."""
    return environment.get(INSTALL_ENV_VARIABLE, '').replace(',', ' ').split()


def passed_variables(environment: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables of the caller that commands of an installation get."""
    more = named_variables(environment)
    return {key: value for key, value in environment.items()
            if (PASSED.match(key) and not is_blocked(key)) or key in more}


def is_blocked(name: str) -> bool:
    """Return whether a variable would change what runs in the container."""
    return name.startswith(KEPT_OUT_PREFIXES) or name in KEPT_OUT


def host_variables(before: Mapping[str, str], after: Mapping[str, str], search_path: List[str],
                   library_path: Sequence[str] = ()) -> Dict[str, str]:
    """
    Return the variables that modules of the host have set, for a command in the container.

    The container keeps its own PATH and LD_LIBRARY_PATH; directories that modules added on the host come after the
    container's (their programs are only there if the directory is bound). ``before`` and ``after`` are the
    environment without and with the modules; ``search_path`` and ``library_path`` are the start of PATH and of
    LD_LIBRARY_PATH in the container.
    """
    def added(name: str) -> List[str]:
        return [path for path in after.get(name, '').split(':') if path and path not in before.get(name, '').split(':')]

    variables = {key: value for key, value in after.items() if before.get(key) != value and not is_blocked(key)}
    paths, libraries = added('PATH'), added('LD_LIBRARY_PATH')
    for prefix in RUNTIME_PREFIXES:
        if paths:
            variables[prefix + 'ENV_PREPEND_PATH'] = escape_value(':'.join(search_path + paths))
    if libraries:
        variables.update(inject_library_path(library_path, libraries))
    return variables


def escape_value(value: str) -> str:
    r"""
    Escape the value of an injected variable (APPTAINERENV_X).

    Both runtimes have a shell in the container evaluate it (unless NO_EVAL is set), which would expand '$', '`' and
    backslashes, and run commands in it.
    """
    return re.sub(r'([\\$`])', r'\\\1', value)


def escape_bind(path: str) -> str:
    """Escape a path for use in a bind; raises EasyBuildError if the runtime can't bind it."""
    try:
        return values.escape_bind(path)
    except ValueError as err:
        raise EasyBuildError('%s', err)


def existing_binds(binds: Iterable[str]) -> List[str]:
    """Return the binds whose source exists on this machine."""
    return [bind for bind in binds if os.path.exists(bind_source(bind))]


def existing_sources(binds: Iterable[str]) -> List[str]:
    """Return the sources of binds that exist on this machine, each once."""
    return sorted(set(map(bind_source, existing_binds(binds))))
