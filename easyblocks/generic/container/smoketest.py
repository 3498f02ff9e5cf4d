##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
A smoke test of what was installed, in one container: start programs, import the packages that were asked for.
"""
import json
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import remedies
from .missing import package_with, packages_with
from .framework import RunShellCmdResult
from .requirements import package_name
from .imageprograms import IMPORTS, read_program, sh_command
from .stages import PipStage
from .values import normal_name


# A package that can't be imported, as the program IMPORTS prints it.
ImportProblem = Dict[str, Any]


class ImportRequest(NamedTuple):
    """
    The input of the program IMPORTS; all names are normalized.

    What to import, the requirement of each name and pip's options for it, why packages of the image are kept, and the
    names of which pip has looked at several versions.
    """

    names: List[str]
    lines: Dict[str, str]
    options: Dict[str, List[str]]
    kept: Dict[str, str]
    older: List[str]


class SmokeTest:
    """The result of starting programs and importing packages."""

    def __init__(self, gpu: str = '') -> None:
        """Begin without any; the container is for a kind of GPU, of which there need not be one here."""
        self.gpu = gpu
        # programs that don't start: name, what is missing ('program', 'interpreter', 'library', 'start'), and which
        self.programs: List[Tuple[str, ...]] = []
        # the output of the program IMPORTS, and its error if it fails
        self.problems: List[ImportProblem] = []
        self.imports: Dict[str, Any] = {}
        self.failure = ''

    def broken_wrappers(self) -> List[str]:
        """Return what is wrong with programs, on any node."""
        missing = ["'%s'" % name for name, what, _ in self.programs if what == 'program']
        texts = {'interpreter': "its interpreter %s is not there", 'start': "%s"}
        found = ["the container has no program named %s" % ' or '.join(missing)] if missing else []
        found += ["'%s' can't be started in the container: %s" % (name, texts[what] % which)
                  for name, what, which in self.programs if what in texts]
        return ["Easyconfig parameter 'wrappers': %s" % text for text in found]

    def warnings(self) -> List[str]:
        """Return what may work on another node, or was not tried."""
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

    def failed_imports(self, stages: List[PipStage]) -> List[str]:
        """Return what is wrong with packages of stages, and what to do."""
        found = []
        for one in [one for one in self.problems if self.gpu not in one['gpu']]:
            names = {normal_name(name) for name in one['names'] + [one['culprit']]}
            stage = next((stage.name for stage in stages if names & {
                package_name(line) for line in stage.requirement_list}), '')
            found.append("%s%s. %s" % (stage and "Stage '%s': " % stage, one['text'], remedy(one)))
        return found


def try_out(run: Callable[..., RunShellCmdResult], programs: List[str], python: str = '',
            request: Optional[ImportRequest] = None, gpu: str = '') -> SmokeTest:
    """
    Start programs on PATH, and import packages, in a container for a kind of GPU.

    ``run`` runs a command in the container as the module will: ``run`` of the container, or ``run_active`` of Pip.
    ``python`` imports what is requested.
    """
    test = SmokeTest(gpu)
    if not (programs or request):
        return test
    command = sh_command('try-out.sh', python, json.dumps(request._asdict()) if request else '', *programs)
    result = run(command, stdin=read_program(IMPORTS), split_stderr=True)
    lines = result.output.splitlines()
    test.programs = [tuple(line.split('\t', 2)) for line in lines if line.count('\t') == 2]
    if request:
        try:
            test.imports = json.loads((lines or [''])[-1].rpartition('imports\t')[2])
        except ValueError:
            test.failure = ((result.stderr or '').strip() or 'it says nothing').splitlines()[-1]
    test.problems = test.imports.get('problems', [])
    return test


def remedy(problem: ImportProblem) -> str:
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
