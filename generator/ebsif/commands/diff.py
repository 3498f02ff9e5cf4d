"""Compare two containers, installed or in the catalog: image, components, packages, binds, variables.

It compares only what is recorded for both: all packages for an installation, the main components for a container in the
catalog. The exit status is 0 if they are the same, 1 if they differ, 3 if one of them can't be read.
"""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from ebsif.catalog.container import Container
from ebsif.commands.options import add_json, add_name, add_settings, names_of
from ebsif.errors import FOUND, UsageError
from ebsif.installed import compare, places
from ebsif.installed.lock import LockDifference
from ebsif.installed.places import Installation
from ebsif.report import output

EXAMPLES = """\
  ebsif diff --site lumi PyTorch/2.7.0 PyTorch/2.7.1
  ebsif diff PyTorch/2.7.1            # with the loaded module
  ebsif diff mine /other/installation
  ebsif diff PyTorch-mine.eb PyTorch-yours.eb
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    add_name(parser, "before", "a container, or a saved lock", required=True)
    add_name(parser, "after", "what to compare it with")
    add_json(parser)


def run(options: Namespace) -> int:
    """Print how two containers differ; return 1 if they do, else 0."""
    names = names_of(options)
    if not options.after and not places.loaded():
        raise UsageError(f"give what to compare with: ebsif diff {options.before} CONTAINER")
    things = [names.find(text) for text in (options.before, options.after)]
    if any(isinstance(thing, Container) for thing in things):
        # two records have more in common than a record and an installation
        things = [(isinstance(thing, Installation) and names.record_of(thing)) or thing for thing in things]
    changes = compare.compare(*map(compare.facts, things))
    if options.json:
        print(json.dumps([asdict(change) for change in changes], indent=2))
    else:
        output.result("\n".join(map(describe, changes)) or "no differences")
    return FOUND if changes else 0


def describe(change: LockDifference) -> str:
    """Return a difference as a line of text."""
    if change.before is None:
        return f"+ {change.kind} {change.name} {as_text(change.after)}"
    if change.after is None:
        return f"- {change.kind} {change.name} {as_text(change.before)}"
    return f"~ {change.kind} {change.name} {as_text(change.before)} -> {as_text(change.after)}"


def as_text(value: object) -> str:
    """Return a value of a record as text."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
