##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What is new in EasyBuild 5: an older EasyBuild is told here what it lacks.
"""
from easybuild.tools.version import VERSION
try:
    from easybuild.tools.build_log import EasyBuildExit
    from easybuild.tools.run import RunShellCmdError, run_shell_cmd
except ImportError:
    raise ImportError("the easyblocks for container images need EasyBuild 5, and this is EasyBuild %s: load a newer "
                      "module of EasyBuild, or install one" % VERSION)

__all__ = ['EasyBuildExit', 'RunShellCmdError', 'run_shell_cmd']
