"""What a lock or artifact of somebody else would run or use; commands show it, and ask first (P-07)."""

import sys
from collections.abc import Iterator, Sequence
from typing import Union

from easybuild.easyblocks.generic.container.requirements import local_path
from easybuild.easyblocks.generic.container.written import escape

from ebsif.catalog.stages import Command, Stage, for_shell
from ebsif.environments.request import Request
from ebsif.errors import EbsifError
from ebsif.report.asking import confirmed

# Properties of a stage that do more than name packages, and what an installation does with each value.
WHAT = {
    "modules": "loads the module",
    "env": "sets",
    "index_url": "takes packages from",
    "extra_index_url": "takes packages from",
    "find_links": "takes packages from",
    "options": "gives pip",
    "patches": "changes the source with",
    "pre": "runs",
    "post": "runs",
    "verify": "runs",
}


def is_agreed(request: Request, place: object, stages: Sequence[Stage], runs: bool) -> bool:
    """
    Show what the lock in a place, which may be somebody else's, runs or uses; return whether the person goes on.

    It is asked for if the command `runs` it, except with --yes. Raise EbsifError where there is no terminal.
    """
    lines = list(uses(stages))
    if not lines or request.dry_run:
        return True
    print(f"ebsif: besides packages, {place} has:", *(f"  {line}" for line in lines), sep="\n", file=sys.stderr)
    if not runs or request.yes:
        return True
    if confirmed(
        "Do you trust whoever wrote it, and go on?",
        EbsifError(
            "nothing was done, because there is no terminal to ask on: if you trust whoever wrote it, "
            f"{request.command_with('--yes')}"
        ),
    ):
        return True
    print("ebsif: nothing was done", file=sys.stderr)
    return False


def uses(stages: Sequence[Stage]) -> Iterator[str]:
    """Yield what stages run or use besides packages of the usual index, a line each, safe to print."""
    for stage in stages:
        for name, what in WHAT.items():
            for value in values_of(getattr(stage, name)):
                yield f"stage '{escape(stage.name)}' {what}: {escape(value)}"
        for line in stage.written:
            # an option, or a place that isn't the index
            if line.startswith("-") or "://" in line or local_path(line):
                yield f"stage '{escape(stage.name)}' gives pip: {escape(line)}"


def values_of(value: Union[str, list[Command], dict[str, str], None]) -> list[str]:
    """Return the values of a property as text: a command, a name, a variable with its value."""
    if isinstance(value, dict):
        return [f"{name}={text}" for name, text in value.items()]
    several = [value] if isinstance(value, str) else value or []
    return list(map(for_shell, several))
