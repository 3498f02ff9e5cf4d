##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Rules for values in easyconfigs and catalogs: types, names of packages, names and values of variables, binds; sizes.

Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
import errno
import os
import re
from typing import Dict, Iterable, List, Mapping, Optional, Tuple, Union

# Types of the values of easyconfig parameters. An easyconfig is Python code, so any value can have any type.
TEXT = 'a string'
FLAG = 'True or False'
TEXTS = 'a list of strings'
VARIABLES = 'a dictionary of strings'
LINES = 'a string or a list of lines'
COMMANDS = 'a list of commands, each a string for bash or a list of words'
SETTINGS_OR_NONE = 'a dictionary of variables, each with a string, a number, or None'
VARIABLES_OR_NONE = 'a dictionary of strings, or None'
# of such a dictionary
Setting = Union[str, int, float, None]
# for bash, or the words of one
Command = Union[str, List[str]]
LISTED = "a list of strings, or a dictionary that maps strings to strings or None"

# Options of a bind that mounts what is in a SquashFS file; without `ro`, the runtime warns at each start. The directory
# in the file is its root: nothing, because Lmod drops a slash at the end of a list.
MOUNT_SQUASHFS = ':ro,image-src='

# Where a container has user software. The variables name a directory with the user's own, for any container module,
# and an environment that make-venv has created, for kernels and the interpreter.
USER_SOFTWARE = '/user-software'
USER_SOFTWARE_VARIABLE, VENV_VARIABLE = 'EBSIF_USER_SOFTWARE', 'EBSIF_VENV'
# What it is in an installation: a file, or a directory, which is used if there is no file.
SQUASHFS, DIRECTORY = 'user-software.squashfs', 'user-software'

# Directories that a module adds to its container.
MODULE_DIRECTORIES = (USER_SOFTWARE, '/runscripts', '/.singularity.d')

# Errors of the operating system with a remedy, by number.
ERRORS = {
    errno.ENOSPC: "the disk is full (make room, or choose another directory)",
    errno.EDQUOT: "the quota is used up (make room, or choose another directory)",
    errno.EISDIR: "is a directory (give the path of a file)",
    errno.ENOTDIR: "a part of this path is a file (give the path of a directory)",
    errno.ECONNREFUSED: "the connection was refused (check host and port, and whether the server is running)",
}

# A package of the image's distribution, perhaps with a version. apt gives a minus sign at the end another meaning.
SYSTEM_PACKAGE = re.compile(r'[a-z0-9][a-z0-9+.-]*[a-z0-9+.](=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?\Z')


def system_names(packages: Iterable[str]) -> List[str]:
    """Return the names of packages of the distribution, without the versions that they may have."""
    return [package.partition('=')[0] for package in packages]


VARIABLE_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\Z')
# A part of the name of a module and its files: the name of the software, a version.
NAME_PART = '[A-Za-z0-9][A-Za-z0-9_.+-]*'


def is_of_kind(value: object, kind: str) -> bool:
    """Return whether a value of an easyconfig has one of the types above."""
    def texts(values: object) -> bool:
        return isinstance(values, (list, tuple)) and all(isinstance(item, str) for item in values)

    def table(*kinds: type) -> bool:
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


def with_value(variables: Mapping[str, Setting]) -> Dict[str, str]:
    """Return the variables that have a value, as texts; the others are unset."""
    return {name: str(value) for name, value in variables.items() if value is not None}


def plain_error(text: str) -> str:
    """Return a message with plain text instead of errno codes (`[Errno 28] ...`)."""
    for number, words in ERRORS.items():
        text = text.replace('[Errno %d] %s' % (number, os.strerror(number)), words)
    return re.sub(r'\[Errno \d+\] ', '', text)


def normal_name(name: str) -> str:
    """Return the normalized name of a Python package (PEP 503)."""
    return re.sub(r'[-_.]+', '-', name).lower()


def shown_module(module: str) -> str:
    """Return the name of a module as people write it: without the dot that hides its version."""
    return module.replace('/.', '/')


def variable_problem(name: str) -> Optional[str]:
    """Return why a string can't be the name of an environment variable, or None if it can."""
    return None if VARIABLE_NAME.match(name) else \
        "can't be the name of an environment variable (letters, digits and _ only)"


def value_problem(value: str, tcl_in_lmod: bool = False) -> Optional[str]:
    """Return why a value would not reach the container unchanged (Lmod 8.6, Environment Modules 5.2), or None."""
    if re.search(r'[\x00-\x1f\x7f]', value):
        return "should be one line without control characters: modules tools can't set it"
    if re.search(r'(^|:)~', value):
        return "begins with '~', which is the home directory with some modules tools: write the full path"
    # Tcl 8.6 has no emoji
    if tcl_in_lmod and (value != value.strip(' ') or re.search('[\U00010000-\U0010ffff]', value)):
        return "has blanks at its ends, or characters such as emoji, which Lmod loses in a module in Tcl: use Lua"
    return None


def bind_problem(bind: str, templates: bool = True) -> Optional[str]:
    """
    Return what is wrong with a bind (source[:target[:options]]) on any machine, or None.

    ``templates``: whether a path may start with an EasyBuild template, whose value is not known yet.
    """
    fields = re.split(r'(?<!\\):', bind)
    if not all(path.startswith(('/', '%') if templates else '/') for path in fields[:2]):
        return "should be source[:target[:options]], with full paths"
    if any(re.search(r'(?<!\\),', path) for path in fields[:2]):
        return "has a comma, at which the container runtime begins the next bind: write '\\,'"
    if len(fields) > 3:
        return "has more than source, target and options: write a colon of a path as '\\:'"
    return None


def is_in_any(path: str, directories: Iterable[str]) -> bool:
    """Return whether a full path is one of these directories or below one."""
    return any(path == directory or path.startswith(directory + '/') for directory in directories)


def parse_binds(lines: Iterable[str]) -> Tuple[List[str], List[str]]:
    """
    Return the required and the optional binds in lines of a file with binds, or of an easyconfig.

    '?' comes before optional ones, '#' before comments.
    """
    required: List[str] = []
    optional: List[str] = []
    for line in lines:
        mark, bind = re.findall(r'\s*(\??)\s*(.*?)\s*\Z', line)[0]
        if bind and not bind.startswith('#'):
            (optional if mark else required).append(bind)
    return required, optional


def root_parts(text: Optional[str]) -> Tuple[str, str]:
    """Return the variable and the directory in ${NAME:-DIRECTORY}; either may be missing (empty)."""
    match = re.match(r'\$\{([^:}]*)(?::-(.*))?\}\Z', text or '')
    return (match.group(1), match.group(2) or '') if match else ('', text or '')


def current_root(text: Optional[str]) -> str:
    """Return the directory that ${NAME:-DIRECTORY} means in this environment; without any, the root of all."""
    variable, directory = root_parts(text)
    return os.environ.get(variable) or directory or '/'


def escape_bind(path: str) -> str:
    r"""
    Escape a path for use in a bind, where '\,' and '\:' stand for the character itself.

    Elsewhere a backslash stands for itself. Blanks next to a comma or colon are lost, escaped or not (Apptainer 1.4.5):
    such a path raises ValueError.
    """
    if re.search(r'[,:]\s|\s[,:]', path):
        raise ValueError("The container runtime can't bind the path '%s': it loses the space next to the comma or "
                         "colon. Use another directory." % path)
    return path.replace(',', '\\,').replace(':', '\\:')


def bind_source(bind: str) -> str:
    """Return the path on the host in a bind (source[:target[:options]])."""
    return bind_paths(bind)[0]


def bind_target(bind: str) -> str:
    """Return the path in the container in a bind (source[:target[:options]])."""
    return (bind_paths(bind) + [''])[1] or bind_source(bind)


def bind_paths(bind: str) -> List[str]:
    """Return the parts of a bind, with its escaped commas and colons."""
    return [re.sub(r'\\([,:])', r'\1', part) for part in re.split(r'(?<!\\):', bind)]


def first_sentence(text: str) -> Tuple[str, str]:
    """Return the first sentence of a text, and the others, each as one line."""
    sentence, _, others = re.sub(r'(?<=[.!?])\s+(?=[A-Z])', '\0', text.strip(), count=1).partition('\0')
    return ' '.join(sentence.split()), ' '.join(others.split())


def without_templates(text: str) -> str:
    """Return a text in which EasyBuild finds no templates: % is escaped only where a template would begin."""
    return re.sub(r'%(?=%*\()', '%%', text)


def format_size(number: float) -> str:
    """Return a number of bytes in readable units."""
    unit, size = ('GB', 1e9) if number >= 1e9 else ('MB', 1e6) if number >= 1e6 else ('kB', 1e3)
    return '%.1f %s' % (number / size, unit)
