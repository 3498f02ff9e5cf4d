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
from typing import Collection, Dict, Iterator, List, Mapping, Match, Optional, Tuple

from easybuild.tools.build_log import EasyBuildError

from .values import COMMANDS, FLAG, LINES, TEXT, TEXTS, VARIABLES, Command, is_of_kind, variable_problem
from .credentials import REMEDY, Credentials
from .requirements import (
    NEEDED_WITHOUT_ISOLATION, NEEDS_TORCH, VARIABLE, are_stages, local_paths, package_lines, package_name,
    requirement_text, stages_of)

# Options and spellings whose meaning depends on the version of pip: (pattern, explanation)
PIP_DEPENDENT = (
    (r'--global-option|--build-option',
     "'--global-option' is deprecated since pip 24.2 and uses a way of building from source that will be removed; "
     "use '--config-settings' instead, which requirement lines support since pip 23.1"),
    (r'--install-option', "'--install-option' was removed in pip 23.1"),
    (r'--config-settings?\b', "'--config-settings' in requirement lines needs pip 23.1 or newer"),
    (r'(?m)^\s*[\w.-]+\s*@\s*git\+file:|^\s*git\+git@|#egg=[\w.-]+\[',
     "some versions of pip reject this spelling of a git URL or interpret it differently"),
)


class StageError(ValueError):
    """What is wrong with stages: the rest of a sentence that begins "Easyconfig parameter 'requirements'"."""


class PipStage:
    """
    Requirements and how to install them. It can't be changed.

    The attributes are the properties in PROPERTIES; a property that the easyconfig doesn't set has an empty value.
    """

    # property: (kind of its value, description)
    PROPERTIES = {
        'name': (TEXT, "name in messages (default: 'stage N')"),
        'heavy': (FLAG, "too much work for a login node: install in a batch job"),
        'upgrade_pip': (FLAG, "upgrade the pip of the venv first"),
        'no_build_isolation': (FLAG, "build with the installed packages instead of in an isolated environment"),
        'no_deps': (FLAG, "don't install dependencies"),
        'requirements': (LINES, "the lines of a requirements.txt"),
        'options': (TEXTS, "additional options for pip install"),
        'env': (VARIABLES, "variables in the container for this stage only"),
        'no_binary': (TEXTS, "packages to build from source"),
        'index_url': (TEXT, "package index to use instead of pip's own"),
        'extra_index_url': (TEXTS, "additional package indexes"),
        'find_links': (TEXTS, "directories or pages with packages"),
        'modules': (TEXTS, "environment modules of the host to load for this stage"),
        'patches': (TEXTS, "patch files for the source of the only requirement, applied in the order of their names"),
        'allow_replace': (TEXTS, "packages of the image that this stage may replace"),
        'pre': (COMMANDS, "commands to run in the container before pip"),
        'post': (COMMANDS, "commands to run in the container after pip"),
        'verify': (COMMANDS, "commands that must succeed afterwards"),
    }

    EMPTY: Dict[str, object] = {TEXT: '', FLAG: False, TEXTS: [], VARIABLES: {}, LINES: '', COMMANDS: []}

    # the value that was parsed last, as text, and its stages
    latest: Tuple[str, List['PipStage']] = ('', [])

    name: str
    heavy: bool
    upgrade_pip: bool
    no_build_isolation: bool
    no_deps: bool
    requirements: str
    options: List[str]
    env: Dict[str, str]
    no_binary: List[str]
    index_url: str
    extra_index_url: List[str]
    find_links: List[str]
    modules: List[str]
    patches: List[str]
    allow_replace: List[str]
    pre: List[Command]
    post: List[Command]
    verify: List[Command]
    # the requirement lines, without comments, blank lines and options
    requirement_list: List[str]
    # the properties that are set, for the lock file
    record: Dict[str, object]

    def __init__(self, properties: Mapping[str, object], number: int) -> None:
        """Check the properties of a stage with a number from 1; errors name the stage and what is valid."""
        # for errors, until the name is known
        values: Dict[str, object] = {'name': 'stage %d' % number}
        vars(self).update(values)
        unknown = sorted(str(key) for key in properties if key not in self.PROPERTIES)
        if unknown:
            close = difflib.get_close_matches(unknown[0], self.PROPERTIES, n=1)
            self.refuse("unknown property '%s'%s (known: %s)", unknown[0],
                        ", did you mean '%s'?" % close[0] if close else '', ', '.join(sorted(self.PROPERTIES)))
        for key, (kind, _) in self.PROPERTIES.items():
            value = properties.get(key)
            if value is None:
                value = values.get(key, self.EMPTY[kind])
            elif not is_of_kind(value, kind):
                self.refuse("property '%s' should be %s, found: %s", key, kind, Credentials.mask(value))
            vars(self)[key] = requirement_text(value) if key == 'requirements' else value
        vars(self).update(
            requirement_list=package_lines(self.requirements),
            record={key: getattr(self, key) for key in self.PROPERTIES if getattr(self, key)})
        self.check_values()

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse changes."""
        raise AttributeError("a stage can't be changed: %s" % name)

    def check_values(self) -> None:
        """Refuse values that can't work, or that others should not read."""
        if self.patches and len(self.requirement_list) != 1:
            self.refuse("'patches' are for the source of one package, but there are %d requirements. Move it to a "
                        "stage of its own.", len(self.requirement_list))
        for line in self.requirement_list:
            option = re.match(r'(-e|--editable)[\s=]*', line)
            if option and not re.match(r'\w+\+', line[option.end():]):
                self.refuse("the module would depend on a directory elsewhere: %s. Leave out '%s' to install a copy of "
                            "the package instead.", Credentials.mask(line), option.group(1))
        secrets = Credentials.find(self.record)
        if secrets:
            self.refuse("a credential is written out (%s). %s", ', '.join(secrets), REMEDY)
        for key in self.env:
            if variable_problem(key):
                self.refuse("'%s' %s", key, variable_problem(key))

    def refuse(self, text: str, *values: object) -> None:
        """Raise an error on the easyconfig that names this stage."""
        raise StageError(", %s: %s" % (self.name, text % values))

    @classmethod
    def from_parameter(cls, value: object) -> List['PipStage']:
        """Return the stages of the easyconfig parameter 'requirements' in the order of installation, after checks."""
        try:
            return cls.parsed(value)
        except StageError as err:
            raise EasyBuildError("Easyconfig parameter 'requirements'%s", err)

    @classmethod
    def problem(cls, value: object) -> Optional[str]:
        """Return what is wrong with the easyconfig parameter 'requirements', or None."""
        try:
            cls.parsed(value)
        except StageError as err:
            return str(err)
        return None

    @classmethod
    def parsed(cls, value: object) -> List['PipStage']:
        """Return the stages of a value, which each step of an installation asks for again; or raise StageError."""
        if cls.latest[0] != repr(value):
            cls.latest = repr(value), cls.parse(value)
        return list(cls.latest[1])

    @classmethod
    def parse(cls, value: object) -> List['PipStage']:
        """Parse and check a value."""
        if not (value is None or is_of_kind(value, LINES) or are_stages(value)):
            raise StageError(" should be a string or a list of strings (one stage), or a list of dictionaries "
                             "(stages), found: %s" % Credentials.mask(value))
        stages = [cls(item, number) for number, item in enumerate(stages_of(value), 1)]
        names = [stage.name for stage in stages]
        for name in names:
            if names.count(name) > 1:
                raise StageError(": two stages are named '%s'" % name)
        return stages

    def pip_options(self) -> List[str]:
        """Return options for pip install that follow from the properties, except for builds and package sources."""
        options = ['--no-deps'] if self.no_deps else []
        options += ['--no-binary', ','.join(self.no_binary)] if self.no_binary else []
        return options + list(self.options)

    def pip_index_options(self) -> List[str]:
        """Return options for pip that name indexes and other package sources."""
        options = ['--index-url', self.index_url] if self.index_url else []
        for url in self.extra_index_url:
            options += ['--extra-index-url', url]
        for source in self.find_links:
            options += ['--find-links', source]
        return options

    def env_of_modules(self) -> Dict[str, str]:
        """
        Return the variables of the stage; ${NAME} is what its modules, which are loaded, have set.

        Recipes name directories of the machine in this way: INTEL_MKL_DIR is ${MKLROOT}, for example (S003-11).
        """
        def value_of(match: Match[str]) -> str:
            if match.group(1) not in os.environ:
                raise EasyBuildError("Stage '%s': 'env' contains %s, but none of its modules (%s) sets that variable",
                                     self.name, match.group(0), ', '.join(self.modules))
            return os.environ[match.group(1)]

        if not self.modules:
            return self.env
        return {name: re.sub(r'\$\{(\w+)\}', value_of, value) for name, value in self.env.items()}

    def variables(self) -> List[str]:
        """Return the names of the variables that pip expands in requirement lines and URLs, from ${NAME}."""
        return VARIABLE.findall(self.requirements + ' '.join(self.pip_index_options()))

    def local_paths(self) -> List[str]:
        """Return the files and directories of this machine in requirement lines and find_links (S003-09)."""
        places = ['--find-links ' + shlex.quote(place) for place in self.find_links]
        return local_paths('\n'.join([self.requirements] + places), os.environ)


def find_mistakes(stages: List[PipStage], image_packages: Collection[str], pip_version: str) -> Iterator[str]:
    """
    Yield likely mistakes in stages, before anything is installed; each names the stage and says what to do.

    Depends on the normalized names of the packages of the image, and on the version of pip in the venv.
    """
    available = set(image_packages)
    for stage in stages:
        names = [package_name(line) for line in stage.requirement_list if not line.split(';')[0].endswith('.whl')]
        # packages built against torch come after torch, in a stage without build isolation
        builds = ', '.join(name for name in names
                           if name in NEEDS_TORCH and '--only-binary' not in ' '.join(stage.options))
        if builds and 'torch' in names:
            yield ("stage '%s': %s is built against torch, which is in the same stage, so it may not be there yet. Put "
                   "torch into an earlier stage" % (stage.name, builds))
        if builds and not stage.no_build_isolation:
            yield ("stage '%s': %s is built against torch, but builds of this stage are isolated from it, so it may "
                   "be built twice, or without what needs torch. Put it into a stage of its own with "
                   "'no_build_isolation': True" % (stage.name, builds))
        # without isolation pip doesn't install them
        missing = [name for name in NEEDED_WITHOUT_ISOLATION if name not in available]
        if stage.no_build_isolation and names and missing:
            yield ("stage '%s' builds without isolation, and neither the image nor an earlier stage has %s. If the "
                   "build needs it, install it in an earlier stage" % (stage.name, ', '.join(missing)))
        text = stage.requirements + '\n' + ' '.join(stage.options)
        for pattern, explanation in PIP_DEPENDENT:
            if re.search(pattern, text) and not stage.upgrade_pip:
                yield ("stage '%s': %s. The venv has pip %s; to use another version of pip, setuptools or wheel, "
                       "install it in an earlier stage" % (stage.name, explanation, pip_version))
        available.update(names)
