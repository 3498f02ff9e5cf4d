##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The report in which EasyBuild keeps the environment of an installation.
"""
import re

from easybuild.tools.config import build_option, update_build_option

from .credentials import Credentials
from .runtime import named_variables


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
