##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Kinds of values of easyconfig parameters: an easyconfig is a program, so any value can be anything.
"""
from contextlib import contextmanager

from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.container.credentials import Credentials
from easybuild.tools.build_log import EasyBuildError

TEXT = 'a text'
FLAG = 'True or False'
TEXTS = 'a list of texts'
VARIABLES = 'a dictionary of texts'
LINES = 'a text or a list of lines'
COMMANDS = 'a list of commands, each a text for bash or a list of words'
SETTINGS_OR_NONE = 'a dictionary of variables, each with a text, a number, or None'
LISTED = "a list of texts, or a dictionary of texts, each with a text or None"


class Parameters:
    """
    The kinds of the parameters of an easyblock.

    The default value of a parameter tells its kind, apart from those named here. Where it is None, so may be the value.
    """

    KINDS = {
        'container_env': SETTINGS_OR_NONE,
        'masked_paths': LISTED,
        'network_env': SETTINGS_OR_NONE,
    }
    # these have values of several kinds, and checks of their own
    OTHERS = ('protect', 'requirements', 'wrappers')

    def __init__(self, options):
        """Keep the parameters: what extra_options of an easyblock returns."""
        self.defaults = {name: option[0] for name, option in options.items() if name not in self.OTHERS}

    def kind(self, name):
        """Return the kind of a parameter (str)."""
        if name in self.KINDS:
            return self.KINDS[name]
        kinds = {bool: FLAG, list: TEXTS, dict: VARIABLES}
        return kinds.get(type(self.defaults[name]), TEXT)

    def check(self, values):
        """
        Check the kinds of values. Values may still contain unresolved templates.

        Parameters
        ----------
        values : dict
            By name of the parameter.

        Raises
        ------
        EasyBuildError
            For the first value of another kind, with the name of the parameter.
        """
        for name in sorted(self.defaults):
            value = values[name]
            if not (value is None and self.defaults[name] is None) and not is_of_kind(value, self.kind(name)):
                raise EasyBuildError("Easyconfig parameter '%s' should be %s, found: %s", name, self.kind(name),
                                     Credentials.masked(value))


def is_of_kind(value, kind):
    """Tell whether a value of an easyconfig is of one of the kinds above."""
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
        LISTED: lambda: texts(value) or table(str, type(None)),
    }
    return checks[kind]()


@contextmanager
def exit_status(code):
    """Give an error that has no exit status of its own this one (EasyBuildExit)."""
    try:
        yield
    except EasyBuildError as err:
        if err.exit_code == EasyBuildExit.ERROR:
            err.exit_code = code
        raise
