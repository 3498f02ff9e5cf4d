##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What needs EasyBuild 5: imports, and exit statuses of errors. With an older EasyBuild, the error says what to do.
"""
from contextlib import contextmanager

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.version import VERSION
try:
    from easybuild.tools.build_log import EasyBuildExit
    from easybuild.tools.run import RunShellCmdError, run_shell_cmd
except ImportError:
    raise ImportError("the easyblocks for container images need EasyBuild 5, and this is EasyBuild %s: load or install "
                      "a newer EasyBuild" % VERSION)

__all__ = ['EasyBuildExit', 'RunShellCmdError', 'exit_status', 'run_shell_cmd']


@contextmanager
def exit_status(code):
    """Set the exit status (EasyBuildExit) of errors that don't have a specific one."""
    try:
        yield
    except EasyBuildError as err:
        if err.exit_code == EasyBuildExit.ERROR:
            err.exit_code = code
        raise
