##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Try what was installed, in one container: start programs, import the packages that were asked for.
"""
import json
import re
import shlex
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import remedies
from .builds import package_with, packages_with
from .packages import Packages
from .pip import Pip
from .requirements import package_name
from .install import IMPORTS, read_program, sh_command
from .stages import Stage
from .texts import normal_name


class Trial:
    """The result of starting programs and importing packages."""

    def __init__(self, run: Callable[..., Any], programs: List[str], python: str = '',
                 request: Optional[Dict[str, Any]] = None, gpu: str = '') -> None:
        """
        Run programs on PATH, and import packages.

        ``run`` runs a command in the container as the module will: ``run`` of a Container, or ``run_active`` of Pip.
        ``python`` imports what ``asked_for`` returns (request). The container is for a kind of GPU, of which there need
        not be one here.
        """
        self.gpu = gpu
        # programs that don't start: name, what is missing ('program', 'interpreter', 'library', 'start'), and which
        self.programs: List[Tuple[str, ...]] = []
        # the output of the program IMPORTS, and its error if it fails
        self.imports: Dict[str, Any] = {}
        self.failure = ''
        if not (programs or request):
            return
        command = sh_command('try-out.sh', python, json.dumps(request) if request else '', *programs)
        result = run(command, stdin=read_program(IMPORTS), split_stderr=True)
        lines = result.output.splitlines()
        self.programs = [tuple(line.split('\t', 2)) for line in lines if line.count('\t') == 2]
        if request:
            try:
                self.imports = json.loads((lines or [''])[-1].rpartition('imports\t')[2])
            except ValueError:
                self.failure = (result.stderr.strip() or 'it says nothing').splitlines()[-1]

    @property
    def broken_wrappers(self) -> List[str]:
        """What is wrong with programs, on any node."""
        missing = ["'%s'" % name for name, what, _ in self.programs if what == 'program']
        texts = {'interpreter': "its interpreter %s is not there", 'start': "%s"}
        found = ["the container has no program named %s" % ' or '.join(missing)] if missing else []
        found += ["'%s' can't be started in the container: %s" % (name, texts[what] % which)
                  for name, what, which in self.programs if what in texts]
        return ["Easyconfig parameter 'wrappers': %s" % text for text in found]

    @property
    def warnings(self) -> List[str]:
        """What may work on another node, or was not tried."""
        found = ["the program '%s' needs %s, which isn't in the container here: it only starts on nodes that have it"
                 % (name, library) for name, what, library in self.programs if what == 'library']
        found += ["%s can only be imported together with %s, which it doesn't require and which isn't installed: add "
                  "%s if you need it" % (name, lacks, lacks)
                  for name, lacks in sorted(self.imports.get('without', {}).items())]
        found += ["%s can only be imported on a node with a GPU (%s), so it was not tried"
                  % (', '.join(one['names']), one['error']) for one in self.problems if self.gpu in one['gpu']]
        if self.failure:
            found.append("the packages can't be tried: %s" % self.failure)
        found += self.imports.get('older', [])
        slow = self.imports.get('slow')
        return found + (["not tried, because importing takes too long: %s" % ', '.join(slow)] if slow else [])

    @property
    def problems(self) -> List[Dict[str, Any]]:
        """Packages that can't be imported here."""
        return self.imports.get('problems', [])

    def failed_imports(self, stages: List[Stage]) -> List[str]:
        """Return what is wrong with packages of stages, and what to do."""
        found = []
        for one in [one for one in self.problems if self.gpu not in one['gpu']]:
            names = {normal_name(name) for name in one['names'] + [one['culprit']]}
            stage = next((stage.name for stage in stages if names & {
                package_name(line) for line in stage.requirement_list}), '')
            found.append("%s%s. %s" % (stage and "Stage '%s': " % stage, one['text'], remedy(one)))
        return found


def remedy(problem: Dict[str, Any]) -> str:
    """Return what to do about a problem that the program IMPORTS has found: sentences, then a command to copy."""
    asked, culprit = problem['names'], problem['culprit'] or problem['names'][0]
    packages, module = packages_with(problem['libraries']), package_with(problem['lacks'])
    unknown = [name for name in problem['libraries'] if not packages_with([name])]
    if problem['lines']:
        return "Take the build for it:%s" % remedies.line('--add', *problem['lines'])
    if packages:
        more = "; find out which of its packages has %s" % ', '.join(unknown) if unknown else ''
        return "If the image has apt, add what has %s%s:%s" % (
            'them' if problem['libraries'][1:] else 'it', more, remedies.line('--apt', *packages))
    if module:
        return "Add it:%s" % remedies.line('--add', module)
    text = "Ask for another version of %s, or leave %s out." % (
        culprit, 'it' if culprit in asked else ' and '.join(asked))
    if unknown:
        text = "If the image's distribution has a package with it, add that (--apt PACKAGE). Otherwise: " + text
    if problem['build']:
        text += " Or build it here, if the image has a compiler:%s" % remedies.line(
            '--add', problem['build'], '--no-binary %s' % culprit, '--no-build-isolation')
    return text


def asked_for(stages: List[Stage], packages: Packages, pip: Pip, tried: Dict[str, str]) -> Dict[str, Any]:
    """
    Return the input of the program IMPORTS: the packages that stages ask for, of the Packages that Python sees.

    `tried` are versions of packages that were imported before, by normalized name.
    """
    lines: Dict[str, str] = {}
    options: Dict[str, List[str]] = {}
    for stage in stages:
        more = [line for line in stage.requirements.splitlines() if line.startswith('--')]
        names = [(package_name(line), line) for line in stage.requirement_list]
        # packages that a path or URL names
        names += [(normal_name(item['metadata']['name']), '') for item in pip.report(stage) if item.get('requested')]
        for name, line in names:
            if name in packages and not lines.get(name) and packages[name][1] != tried.get(name):
                lines[name] = '' if '/' in line or name in map(normal_name, pip.pins) else re.split(r'\s--', line)[0]
                options[name] = pip.index_options(stage) + shlex.split(' '.join(more)) if lines[name] else []
    # of which pip has looked at several versions
    older = sorted(name for name in pip.looked_at if name in packages and packages.in_user_software(name))
    everywhere = [option for stage in stages for option in pip.index_options(stage)] if older else []
    return {'names': sorted(lines), 'lines': {name: line for name, line in lines.items() if line},
            'options': dict(dict.fromkeys(older, everywhere), **{
                name: words for name, words in options.items() if words}),
            'kept': pip.reasons, 'older': older}
