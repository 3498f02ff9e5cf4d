##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Imports that need EasyBuild 5; with an older EasyBuild, the error says what to do.
"""
from easybuild.tools.version import VERSION
try:
    from easybuild.tools.build_log import EasyBuildExit
    from easybuild.tools.run import RunShellCmdError, run_shell_cmd
except ImportError:
    raise ImportError("the easyblocks for container images need EasyBuild 5, and this is EasyBuild %s: load or install "
                      "a newer EasyBuild" % VERSION)

__all__ = ['EasyBuildExit', 'RunShellCmdError', 'run_shell_cmd']
