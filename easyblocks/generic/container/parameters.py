##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Types of the values of easyconfig parameters. An easyconfig is Python code, so any value can have any type.
"""
from contextlib import contextmanager

from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.container.credentials import Credentials
from easybuild.tools.build_log import EasyBuildError

TEXT = 'a string'
FLAG = 'True or False'
TEXTS = 'a list of strings'
VARIABLES = 'a dictionary of strings'
LINES = 'a string or a list of lines'
COMMANDS = 'a list of commands, each a string for bash or a list of words'
SETTINGS_OR_NONE = 'a dictionary of variables, each with a string, a number, or None'
VARIABLES_OR_NONE = 'a dictionary of strings, or None'
LISTED = "a list of strings, or a dictionary that maps strings to strings or None"


class Parameters:
    """
    The types of the parameters of an easyblock.

    The type follows from the default value, except for the parameters listed here. A default of None allows None.
    """

    KINDS = {
        'cache_variables': VARIABLES_OR_NONE,
        'container_env': SETTINGS_OR_NONE,
        'masked_paths': LISTED,
        'network_env': SETTINGS_OR_NONE,
    }
    # values of several types, with their own checks
    OTHERS = ('protect', 'requirements', 'wrappers')

    def __init__(self, options):
        """Take the parameters from the extra_options of an easyblock."""
        self.defaults = {name: option[0] for name, option in options.items() if name not in self.OTHERS}

    def kind(self, name):
        """Return the type of a parameter (str)."""
        if name in self.KINDS:
            return self.KINDS[name]
        kinds = {bool: FLAG, list: TEXTS, dict: VARIABLES}
        return kinds.get(type(self.defaults[name]), TEXT)

    def check(self, values):
        """
        Check the types of values. Values may still contain unresolved templates.

        Parameters
        ----------
        values : dict
            Values by parameter name.

        Raises
        ------
        EasyBuildError
            For the first value of a wrong type; the message names the parameter.
        """
        for name in sorted(self.defaults):
            value = values[name]
            if not (value is None and self.defaults[name] is None) and not is_of_kind(value, self.kind(name)):
                raise EasyBuildError("Easyconfig parameter '%s' should be %s, found: %s", name, self.kind(name),
                                     Credentials.mask(value))


def is_of_kind(value, kind):
    """Return whether a value of an easyconfig has one of the types above."""
    def texts(values):
        return isinstance(values, (list, tuple)) and all(isinstance(item, str) for item in values)

    def table(*kinds):
        return isinstance(value, dict) and texts(list(value)) and all(isinstance(item, kinds)
                                                                      for item in value.values())

    checks = {
        TEXT: lambda: isinstance(value, str),
        FLAG: lambda: isinstance(value, bool),
        TEXTS: lambda: texts(value),
        VARIABLES: lambda: table(str),
        LINES: lambda: isinstance(value, str) or texts(value),
        COMMANDS: lambda: isinstance(value, (list, tuple)) and all(
            isinstance(item, str) or texts(item) for item in value),
        SETTINGS_OR_NONE: lambda: table(str, int, float, type(None)),
        VARIABLES_OR_NONE: lambda: table(str, type(None)),
        LISTED: lambda: texts(value) or table(str, type(None)),
    }
    return checks[kind]()


@contextmanager
def exit_status(code):
    """Set the exit status (EasyBuildExit) of errors that don't have a specific one."""
    try:
        yield
    except EasyBuildError as err:
        if err.exit_code == EasyBuildExit.ERROR:
            err.exit_code = code
        raise
