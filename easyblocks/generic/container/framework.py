##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What we need of EasyBuild 5, and changing what it reads.

EasyBuild imports every easyblock in its include paths, whatever it installs, and sites share these between an old and a
new EasyBuild. So with EasyBuild 4 the easyblocks can be imported, but not used.
"""
import re
from contextlib import contextmanager
from typing import Any, Iterable, Iterator, List, Optional, Pattern

from easybuild.framework.easyconfig.easyconfig import EasyConfig
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.config import build_option, install_path, update_build_option
from easybuild.tools.filetools import mkdir
from easybuild.tools.version import VERSION

from .space import no_space
from .values import ERRORS, plain_error
from .written import UnfitError, printable


class AnyExit:
    """Exit statuses for EasyBuild 4, which has none."""

    def __getattr__(self, name: str) -> int:
        return 1


try:
    from easybuild.tools.build_log import EasyBuildExit
    from easybuild.tools.run import RunShellCmdError, RunShellCmdResult, run_shell_cmd
    IS_OLD = False
except ImportError:
    IS_OLD = True
    # names to import; nothing is run
    globals().update(EasyBuildExit=AnyExit(), RunShellCmdError=None, RunShellCmdResult=None, run_shell_cmd=None)

__all__ = ['EasyBuildExit', 'RunShellCmdError', 'RunShellCmdResult', 'exit_status', 'keep_out_of_report',
           'only_shared_directories', 'plain_errors', 'refuse_old_easybuild', 'run_shell_cmd', 'set_search_paths',
           'status_of', 'with_build_option', 'with_parameters']

# exit statuses of steps whose name is not part of EasyBuild's
STEP_STATUS = {'postiter': EasyBuildExit.FAIL_POST_ITER_STEP, 'postproc': EasyBuildExit.FAIL_POST_PROC_STEP,
               'sanitycheck': EasyBuildExit.FAIL_SANITY_CHECK_STEP, 'testcases': EasyBuildExit.FAIL_TEST_CASES_STEP}

# eb's own value of the option for variables that aren't in reports, once it was changed here
REPORT_FILTER: List[Optional[Pattern[str]]] = []


def refuse_old_easybuild() -> None:
    """Stop with EasyBuild 4."""
    if IS_OLD:
        raise EasyBuildError("the easyblocks for container images need EasyBuild 5, and this is EasyBuild %s: load or "
                             "install a newer EasyBuild", VERSION)


@contextmanager
def exit_status(code: int) -> Iterator[None]:
    """Set the exit status (EasyBuildExit) of errors that don't have a specific one."""
    try:
        yield
    except EasyBuildError as err:
        if err.exit_code == EasyBuildExit.ERROR:
            err.exit_code = code
        raise


def status_of(step: str) -> int:
    """Return the exit status (EasyBuildExit) of eb after a step that fails."""
    status: int = STEP_STATUS.get(step) or getattr(EasyBuildExit, 'FAIL_%s_STEP' % step.upper(), EasyBuildExit.ERROR)
    return status


@contextmanager
def plain_errors() -> Iterator[None]:
    """
    Replace errno codes by plain text in messages, also in EasyBuild's; eb also stops for an UnfitError.

    Messages may have texts of images and packages, which do nothing to a terminal then.
    """
    try:
        yield
    except UnfitError as err:
        raise EasyBuildError("%s", err)
    except EasyBuildError as err:
        err.msg = printable(plain_error(err.msg))
        raise
    except OSError as err:
        if err.errno not in ERRORS:
            raise
        _, line_break, places = no_space(str(err)).partition('\n')
        raise EasyBuildError("%s", printable(plain_error(str(err))) + line_break + places)


@contextmanager
def with_parameters(easyconfig: EasyConfig, **values: object) -> Iterator[None]:
    """Temporarily change parameters of an easyconfig."""
    before = {name: easyconfig.get_ref(name) for name in values}
    try:
        for name, value in values.items():
            easyconfig[name] = value
        yield
    finally:
        for name, value in before.items():
            easyconfig[name] = value


@contextmanager
def with_build_option(name: str, value: object) -> Iterator[None]:
    """Temporarily change an option of eb."""
    before = update_build_option(name, value)
    try:
        yield
    finally:
        update_build_option(name, before)


@contextmanager
def only_shared_directories(modules: str, is_dry_run: bool) -> Iterator[None]:
    """Create the directories that installations share, if eb is about to, but not the one of this installation."""
    if build_option('pre_create_installdir') and not is_dry_run:
        # the umask applies to them; it doesn't to the directories below, which later steps create
        for path in (install_path(), modules):
            mkdir(path, parents=True)
    with with_build_option('pre_create_installdir', False):
        yield


def keep_out_of_report(names: Iterable[str]) -> None:
    """
    Keep variables out of the report that EasyBuild writes to the installation (easybuild/*_test_report.md).

    It contains the environment; EasyBuild only leaves out variables with names like token, key or password. Writing the
    report is the last that it does, and nothing of ours is called then. So this stays until the same eb installs the
    next container, which sets it anew.
    """
    if not REPORT_FILTER:
        REPORT_FILTER.append(build_option('test_report_env_filter'))
    (own,) = REPORT_FILTER
    patterns = ([own.pattern] if own else []) + ['^%s$' % re.escape(name) for name in sorted(set(names))]
    update_build_option('test_report_env_filter', re.compile('|'.join(patterns)) if patterns else None)


def set_search_paths(environment: Any, **paths: List[str]) -> None:
    """Let a module set these search paths (relative to the installation), and none of EasyBuild's others."""
    for variable in list(environment.as_dict):
        if variable not in paths:
            environment.remove(variable)
    for variable, path in paths.items():
        setattr(environment, variable, path)
