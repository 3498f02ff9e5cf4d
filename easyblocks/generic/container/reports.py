##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What EasyBuild keeps in an installation about how it was made: a report with the environment, and the easyblocks.
"""
import glob
import os
import re
import shutil

from easybuild.tools.config import build_option, update_build_option
from easybuild.tools.filetools import copy_dir

from .credentials import Credentials
from .runtime import named_variables
from .scripts import FILES


def keep_easyblocks(logfile, door):
    """
    Make easybuild/reprod of the installation complete by adding the modules that our easyblocks import.

    EasyBuild only keeps the files of the easyblock's base classes; until the end they are next to the log.

    Parameters
    ----------
    logfile : str
        Path of EasyBuild's log.
    door : str
        File name of the easyblock that imports them.
    """
    wing = os.path.dirname(FILES)
    for kept in glob.glob(os.path.join(glob.escape(os.path.dirname(logfile)), 'reprod*', 'easyblocks')):
        target = os.path.join(kept, os.path.basename(wing))
        # if one eb installs several easyconfigs, there may be files of one that failed
        if os.path.exists(os.path.join(kept, door)) and not os.path.exists(target):
            copy_dir(wing, target, ignore=shutil.ignore_patterns('__pycache__'))


def keep_secrets_out_of_report(environment):
    """Keep credentials in an environment, and variables that the caller names for installations, out of the report."""
    keep_out_of_report(Credentials.find_variables(environment) + named_variables(environment))


def keep_out_of_report(names):
    """
    Keep variables out of the report that EasyBuild writes to the installation (easybuild/*_test_report.md).

    It contains the environment; EasyBuild only leaves out variables with names like token, key or password.
    """
    before = build_option('test_report_env_filter')
    names = [name for name in names if not (before and before.search(name))]
    if names:
        patterns = ([before.pattern] if before else []) + ['^%s$' % re.escape(name) for name in sorted(names)]
        update_build_option('test_report_env_filter', re.compile('|'.join(patterns)))
