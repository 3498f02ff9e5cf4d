##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Stages of user software: what the easyconfig parameter 'requirements' says, and what pip is told for it.

One stage is one call of pip. Stages exist because pip has no order within a call, and because some packages have to be
built against others that an earlier call installed (apex, flash-attn and deepspeed against torch).
"""
import difflib
import os
import re
import shlex
from contextlib import suppress
from urllib.parse import unquote

from easybuild.easyblocks.generic.container.parameters import COMMANDS, FLAG, LINES, TEXT, TEXTS, VARIABLES, is_of_kind
from easybuild.easyblocks.generic.container.credentials import REMEDY, Credentials
from easybuild.easyblocks.generic.container.requirements import are_stages, requirement_text, stages_of
from easybuild.easyblocks.generic.container.texts import variable_problem
from easybuild.tools.build_log import EasyBuildError

# Options of a line of a requirements.txt that name a place.
OPTION_WITH_PLACE = re.compile(
    r'(?:(?P<editable>-e|--editable)|(?P<file>-c|--constraint|-r|--requirement)|-f|--find-links)'
    r'(?:\s*=\s*|\s*)(?=[^\s-])')


class Stage:
    """
    One stage: requirements and how to install them.

    Attributes are the properties of PROPERTIES; each has a value, an empty one where the easyconfig has none.
    """

    # property: (kind of its value, what it means)
    PROPERTIES = {
        'name': (TEXT, "name in messages (default: 'stage N')"),
        'requirements': (LINES, "the lines of a requirements.txt"),
        'options': (TEXTS, "more options for pip install"),
        'env': (VARIABLES, "variables in the container for this stage only"),
        'no_build_isolation': (FLAG, "build with what is installed already, instead of in an environment apart"),
        'no_deps': (FLAG, "without the packages these packages ask for"),
        'no_binary': (TEXTS, "packages to build from source"),
        'index_url': (TEXT, "package index to use instead of pip's own"),
        'extra_index_url': (TEXTS, "package indexes to use in addition"),
        'find_links': (TEXTS, "directories or pages with packages"),
        'heavy': (FLAG, "too much work for a login node: install in a batch job"),
        'upgrade_pip': (FLAG, "upgrade the pip of the venv first"),
        'modules': (TEXTS, "environment modules of the host to load for this stage"),
        'patches': (TEXTS, "patch files for the source of the only requirement, applied in the order of their names"),
        'allow_replace': (TEXTS, "packages of the image that this stage may replace"),
        'pre': (COMMANDS, "commands to run in the container before pip"),
        'post': (COMMANDS, "commands to run in the container after pip"),
        'verify': (COMMANDS, "commands that have to succeed after that"),
    }

    EMPTY = {TEXT: '', FLAG: False, TEXTS: [], VARIABLES: {}, LINES: '', COMMANDS: []}

    def __init__(self, properties, number):
        """
        Check the properties of a stage.

        Parameters
        ----------
        properties : dict
            As the easyconfig has them.
        number : int
            Place in the list, from 1.

        Raises
        ------
        EasyBuildError
            For an unknown property or a value of the wrong kind; the message names the stage and what is allowed.
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
                                     self.name, key, kind, Credentials.masked(value))
            setattr(self, key, value)
        self.requirements = requirement_text(self.requirements)
        if self.patches and len(self.requirement_list) != 1:
            raise EasyBuildError("Easyconfig parameter 'requirements', %s: 'patches' are for the source of one "
                                 "package, but there are %d requirements. Make a stage of its own for it.", self.name,
                                 len(self.requirement_list))
        for line in self.requirement_list:
            option = OPTION_WITH_PLACE.match(line)
            if option and option.group('editable') and not re.match(r'\w+\+', line[option.end():]):
                raise EasyBuildError("Easyconfig parameter 'requirements', %s: the module would depend on a directory "
                                     "elsewhere: %s. Leave out '%s', then what is there is installed as a copy.",
                                     self.name, Credentials.masked(line), option.group('editable'))
        secrets = Credentials.found(self.record)
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
            Nothing, a block or the lines of one stage, or stages.

        Returns
        -------
        list of Stage
            In the order of installation; none if there is nothing to install.

        Raises
        ------
        EasyBuildError
            If it is none of these.
        """
        if not (value is None or is_of_kind(value, LINES) or are_stages(value)):
            raise EasyBuildError("Easyconfig parameter 'requirements' should be a string or a list of strings (one "
                                 "stage), or a list of dictionaries (stages), found: %s", Credentials.masked(value))
        stages = [cls(item, number) for number, item in enumerate(stages_of(value), 1)]
        names = [stage.name for stage in stages]
        for name in names:
            if names.count(name) > 1:
                raise EasyBuildError("Easyconfig parameter 'requirements': two stages are named '%s'", name)
        return stages

    @property
    def record(self):
        """The properties that say something, for the lock file."""
        return {key: getattr(self, key) for key in self.PROPERTIES if getattr(self, key)}

    @property
    def requirement_list(self):
        """The lines without comments, blank lines and options (list of str)."""
        lines = [re.sub(r'(^|\s)#.*', '', line).strip() for line in self.requirements.splitlines()]
        return [line for line in lines if line and (not line.startswith('-') or re.match('-e|--editable', line))]

    @property
    def only_requirement(self):
        """The requirement of a stage with patches (str)."""
        (line,) = self.requirement_list
        return line

    @property
    def build_options(self):
        """Options of pip for building packages (list of str)."""
        return ['--no-build-isolation'] if self.no_build_isolation else []

    @property
    def pip_options(self):
        """Options of pip install that follow from the properties, apart from where packages are (list of str)."""
        options = self.build_options
        options += ['--no-deps'] if self.no_deps else []
        options += ['--no-binary', ','.join(self.no_binary)] if self.no_binary else []
        return options + list(self.options)

    @property
    def pip_index_options(self):
        """Options of pip for indexes and other package sources (list of str)."""
        options = ['--index-url', self.index_url] if self.index_url else []
        for url in self.extra_index_url:
            options += ['--extra-index-url', url]
        for place in self.find_links:
            options += ['--find-links', place]
        return options

    @property
    def variables(self):
        """Variables of the environment that pip puts into lines and addresses, where ${NAME} is (list of str)."""
        return re.findall(r'\$\{([A-Z0-9_]+)\}', self.requirements + ' '.join(self.pip_index_options))

    @property
    def local_paths(self):
        """Files and directories of this machine that the stage names: in requirement lines and find_links."""
        places = [shlex.quote(place) for place in self.find_links]
        return paths_in(self.requirements + ''.join('\n--find-links %s' % place for place in places))


def paths_in(text, outer=()):
    """
    Return the full paths that the text of a requirements.txt names, and those that files name that it includes.

    Parameters
    ----------
    text : str
        Lines as pip reads them: joined after a backslash, comments after a blank, options as a shell would read them.
    outer : tuple of str
        The files it is included from.

    Returns
    -------
    list of str
    """
    paths = []
    for line in re.sub(r'\\\n', '', text).splitlines():
        line = re.sub(r'(^|\s)#.*', '', line).strip()
        option = OPTION_WITH_PLACE.match(line)
        place = line[option.end():] if option else re.sub(r'^[\w.-]+\s*(\[[^\]]*\])?\s*@\s*', '', line)
        if option and not option.group('editable'):
            place = first_word(place)
        path = path_of(place)
        if path:
            paths.append(path)
        if path and option and option.group('file') and path not in outer and os.path.isfile(path):
            # what can't be read is for pip to say
            with suppress(OSError), open(path, errors='replace') as included:
                paths += paths_in(included.read(), outer + (path,))
    return paths


def first_word(text):
    """Return the first word of a text as a shell reads it; an empty text if it can't, which pip can't either."""
    try:
        return (shlex.split(text) or [''])[0]
    except ValueError:
        return ''


def path_of(place):
    """Return the path of what a requirement names by full path or by an address of a file; else an empty text."""
    match = re.match(r'(?P<git>git\+)?(?P<address>file:(?://(?:localhost)?)?)?(?P<path>/.*)', place)
    if not match:
        return ''
    # a condition (; python_version ...), options of the line, and extras are no part of it
    path = re.sub(r'\s*;\s.*|\s+--[a-z].*', '', match.group('path')).strip()
    path = re.sub(r'(?<=\w)\[[\w.,\s-]*\]\Z', '', path)
    if match.group('address'):
        path = unquote(re.sub(r'#.*', '', path))
    if match.group('git'):
        # the last @ is that of a branch or a commit
        path = path.rsplit('@', 1)[0]
    return path
