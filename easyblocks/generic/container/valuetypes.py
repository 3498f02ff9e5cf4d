##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Types of the values of easyconfig parameters. An easyconfig is Python code, so any value can have any type.
"""
TEXT = 'a string'
FLAG = 'True or False'
TEXTS = 'a list of strings'
VARIABLES = 'a dictionary of strings'
LINES = 'a string or a list of lines'
COMMANDS = 'a list of commands, each a string for bash or a list of words'
SETTINGS_OR_NONE = 'a dictionary of variables, each with a string, a number, or None'
VARIABLES_OR_NONE = 'a dictionary of strings, or None'
LISTED = "a list of strings, or a dictionary that maps strings to strings or None"


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
