##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Stages of user software: parse the easyconfig parameter 'requirements' into options and requirements for pip.

A stage is one call of pip. Stages exist because pip installs the packages of a call in no particular order, and some
packages must be built against others installed earlier (apex, flash-attn and deepspeed against torch).
"""
import difflib
import os
import re
import shlex
from contextlib import suppress
from urllib.parse import unquote

from easybuild.tools.build_log import EasyBuildError

from .valuetypes import COMMANDS, FLAG, LINES, TEXT, TEXTS, VARIABLES, is_of_kind
from .credentials import REMEDY, Credentials
from .requirements import are_stages, requirement_text, stages_of
from .texts import variable_problem

# Options in a requirements.txt whose value is a path or URL.
OPTION_WITH_PLACE = re.compile(
    r'(?:(?P<editable>-e|--editable)|(?P<file>-c|--constraint|-r|--requirement)|-f|--find-links)'
    r'(?:\s*=\s*|\s*)(?=[^\s-])')


class Stage:
    """
    Requirements and how to install them.

    The attributes are the properties in PROPERTIES; those that the easyconfig doesn't set have an empty value.
    """

    # property: (kind of its value, description)
    PROPERTIES = {
        'name': (TEXT, "name in messages (default: 'stage N')"),
        'requirements': (LINES, "the lines of a requirements.txt"),
        'options': (TEXTS, "additional options for pip install"),
        'env': (VARIABLES, "variables in the container for this stage only"),
        'no_build_isolation': (FLAG, "build with the installed packages instead of in an isolated environment"),
        'no_deps': (FLAG, "don't install dependencies"),
        'no_binary': (TEXTS, "packages to build from source"),
        'index_url': (TEXT, "package index to use instead of pip's own"),
        'extra_index_url': (TEXTS, "additional package indexes"),
        'find_links': (TEXTS, "directories or pages with packages"),
        'heavy': (FLAG, "too much work for a login node: install in a batch job"),
        'upgrade_pip': (FLAG, "upgrade the pip of the venv first"),
        'modules': (TEXTS, "environment modules of the host to load for this stage"),
        'patches': (TEXTS, "patch files for the source of the only requirement, applied in the order of their names"),
        'allow_replace': (TEXTS, "packages of the image that this stage may replace"),
        'pre': (COMMANDS, "commands to run in the container before pip"),
        'post': (COMMANDS, "commands to run in the container after pip"),
        'verify': (COMMANDS, "commands that must succeed afterwards"),
    }

    EMPTY = {TEXT: '', FLAG: False, TEXTS: [], VARIABLES: {}, LINES: '', COMMANDS: []}

    def __init__(self, properties, number):
        """
        Check the properties of a stage.

        Parameters
        ----------
        properties : dict
            From the easyconfig.
        number : int
            Position in the list, from 1.

        Raises
        ------
        EasyBuildError
            For an unknown property or a value of the wrong kind; the message names the stage and what is valid.
        """
        self.name = 'stage %d' % number
        unknown = sorted(str(key) for key in properties if key not in self.PROPERTIES)
        if unknown:
            close = difflib.get_close_matches(unknown[0], self.PROPERTIES, n=1)
            raise EasyBuildError("Easyconfig parameter 'requirements', %s: unknown property '%s'%s (known: %s)",
                                 self.name, unknown[0], ", did you mean '%s'?" % close[0] if close else '',
                                 ', '.join(sorted(self.PROPERTIES)))
        for key, (kind, _) in self.PROPERTIES.items():
            value = properties.get(key)
            if value is None:
                value = self.name if key == 'name' else self.EMPTY[kind]
            elif not is_of_kind(value, kind):
                raise EasyBuildError("Easyconfig parameter 'requirements', %s: property '%s' should be %s, found: %s",
                                     self.name, key, kind, Credentials.mask(value))
            setattr(self, key, value)
        self.requirements = requirement_text(self.requirements)
        if self.patches and len(self.requirement_list) != 1:
            raise EasyBuildError("Easyconfig parameter 'requirements', %s: 'patches' are for the source of one "
                                 "package, but there are %d requirements. Move it to a stage of its own.", self.name,
                                 len(self.requirement_list))
        for line in self.requirement_list:
            option = OPTION_WITH_PLACE.match(line)
            if option and option.group('editable') and not re.match(r'\w+\+', line[option.end():]):
                raise EasyBuildError("Easyconfig parameter 'requirements', %s: the module would depend on a directory "
                                     "elsewhere: %s. Leave out '%s' to install a copy of the package instead.",
                                     self.name, Credentials.mask(line), option.group('editable'))
        secrets = Credentials.find(self.record)
        if secrets:
            raise EasyBuildError("Easyconfig parameter 'requirements', %s: a credential is written out (%s). %s",
                                 self.name, ', '.join(secrets), REMEDY)
        for key in self.env:
            if variable_problem(key):
                raise EasyBuildError("Easyconfig parameter 'requirements', %s: '%s' %s", self.name, key,
                                     variable_problem(key))

    @classmethod
    def from_parameter(cls, value):
        """
        Return the stages of the easyconfig parameter 'requirements'.

        Parameters
        ----------
        value : None, str, list of str, or list of dict
            Nothing; the requirements of a single stage; or stages.

        Returns
        -------
        list of Stage
            In the order of installation; empty if there is nothing to install.

        Raises
        ------
        EasyBuildError
            For any other value.
        """
        if not (value is None or is_of_kind(value, LINES) or are_stages(value)):
            raise EasyBuildError("Easyconfig parameter 'requirements' should be a string or a list of strings (one "
                                 "stage), or a list of dictionaries (stages), found: %s", Credentials.mask(value))
        stages = [cls(item, number) for number, item in enumerate(stages_of(value), 1)]
        names = [stage.name for stage in stages]
        for name in names:
            if names.count(name) > 1:
                raise EasyBuildError("Easyconfig parameter 'requirements': two stages are named '%s'", name)
        return stages

    @property
    def record(self):
        """The properties that are set, for the lock file."""
        return {key: getattr(self, key) for key in self.PROPERTIES if getattr(self, key)}

    @property
    def requirement_list(self):
        """The requirement lines, without comments, blank lines and options (list of str)."""
        lines = [re.sub(r'(^|\s)#.*', '', line).strip() for line in self.requirements.splitlines()]
        return [line for line in lines if line and (not line.startswith('-') or re.match('-e|--editable', line))]

    @property
    def only_requirement(self):
        """The requirement of a stage with patches (str)."""
        (line,) = self.requirement_list
        return line

    @property
    def build_options(self):
        """Options for pip that affect how packages are built (list of str)."""
        return ['--no-build-isolation'] if self.no_build_isolation else []

    @property
    def pip_options(self):
        """Options for pip install that follow from the properties, except those for package sources (list of str)."""
        options = self.build_options
        options += ['--no-deps'] if self.no_deps else []
        options += ['--no-binary', ','.join(self.no_binary)] if self.no_binary else []
        return options + list(self.options)

    @property
    def pip_index_options(self):
        """Options for pip that name indexes and other package sources (list of str)."""
        options = ['--index-url', self.index_url] if self.index_url else []
        for url in self.extra_index_url:
            options += ['--extra-index-url', url]
        for source in self.find_links:
            options += ['--find-links', source]
        return options

    @property
    def env_of_modules(self):
        """
        Its variables with ${NAME} replaced by what its modules have set (dict); they are loaded now.

        Recipes name directories of the machine in this way: INTEL_MKL_DIR is ${MKLROOT}, for example (S003-11).
        """
        def value_of(match):
            if match.group(1) not in os.environ:
                raise EasyBuildError("Stage '%s': 'env' contains %s, but none of its modules (%s) sets that variable",
                                     self.name, match.group(0), ', '.join(self.modules))
            return os.environ[match.group(1)]

        if not self.modules:
            return self.env
        return {name: re.sub(r'\$\{(\w+)\}', value_of, value) for name, value in self.env.items()}

    @property
    def variables(self):
        """Environment variables that pip expands in requirement lines and URLs, from ${NAME} (list of str)."""
        return re.findall(r'\$\{([A-Z0-9_]+)\}', self.requirements + ' '.join(self.pip_index_options))

    @property
    def local_paths(self):
        """Files and directories of this machine in requirement lines and find_links (list of str)."""
        links = ''.join('\n--find-links %s' % shlex.quote(source) for source in self.find_links)
        return find_paths(self.requirements + links)


def find_paths(text, outer=()):
    """
    Return the absolute paths in the text of a requirements.txt and in the files that it includes.

    Parameters
    ----------
    text : str
        Interpreted like pip does: lines continue after a backslash, comments start after a blank, options have the
        quoting of a shell.
    outer : tuple of str
        The files that include it.

    Returns
    -------
    list of str
    """
    paths = []
    for line in re.sub(r'\\\n', '', text).splitlines():
        line = re.sub(r'(^|\s)#.*', '', line).strip()
        option = OPTION_WITH_PLACE.match(line)
        location = line[option.end():] if option else re.sub(r'^[\w.-]+\s*(\[[^\]]*\])?\s*@\s*', '', line)
        if option and not option.group('editable'):
            location = first_word(location)
        path = extract_path(location)
        if path:
            paths.append(path)
        if path and option and option.group('file') and path not in outer and os.path.isfile(path):
            # pip reports unreadable files
            with suppress(OSError), open(path, errors='replace') as included:
                paths += find_paths(included.read(), outer + (path,))
    return paths


def first_word(text):
    """Return the first word of a string, split like a shell does; empty if that fails (then it fails in pip too)."""
    try:
        return (shlex.split(text) or [''])[0]
    except ValueError:
        return ''


def extract_path(location):
    """Return the path in an absolute path or file URL of a requirement; empty for other locations."""
    match = re.match(r'(?P<git>git\+)?(?P<address>file:(?://(?:localhost)?)?)?(?P<path>/.*)', location)
    if not match:
        return ''
    # without marker (; python_version ...), options and extras
    path = re.sub(r'\s*;\s.*|\s+--[a-z].*', '', match.group('path')).strip()
    path = re.sub(r'(?<=\w)\[[\w.,\s-]*\]\Z', '', path)
    if match.group('address'):
        path = unquote(re.sub(r'#.*', '', path))
    if match.group('git'):
        # the last @ precedes a branch or commit
        path = path.rsplit('@', 1)[0]
    return path
