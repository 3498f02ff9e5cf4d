"""Create a profile for your site, or show which libraries of the host an image would get.

`init` writes NAME/site.yaml: about fifteen lines, each with a comment, filled in with what this machine shows:
scheduler and partitions, GPUs, file systems. Guesses are marked with 'review'; `ebsif check` lists them. An existing
profile is not changed.

`libraries` shows what IMAGE would get of the libraries of the host that the profile names (`host_libraries`), why, and
what would stop an installation; the exit status is 1 then. Nothing is installed. Without IMAGE, it shows all that the
profile's libraries need.
"""

import dataclasses
import json
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from ebsif.catalog import newsite, site
from ebsif.catalog.settings import read_settings
from ebsif.check import hostlibraries
from ebsif.check.hostlibraries import Trial
from ebsif.commands.options import add_json, add_settings, complete, names_of, offer, settings_of
from ebsif.errors import FOUND, UsageError
from ebsif.report import output
from ebsif.report.findings import ERROR, Finding, print_findings
from ebsif.report.table import print_table

EXAMPLES = """\
  ebsif site init mysite                   # mysite/site.yaml in this directory
  ebsif site libraries pytorch.sif --site mysite
  ebsif site init mysite --catalog ~/our-containers
  ebsif site libraries --json              # what the libraries need on this machine
"""
ACTIONS = ("init", "libraries")


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help=", ".join(ACTIONS))
    offer(
        complete_what,
        parser.add_argument(
            "what",
            metavar="NAME|IMAGE",
            nargs="?",
            help="init: name of the site (lower-case letters, digits, - and _); libraries: a SIF file, or the name of "
            "a container",
        ),
    )
    add_settings(parser)
    add_json(parser)


def complete_what(prefix: str, parsed_args: Namespace, **options: object) -> list[str]:
    """Return the names of containers that begin with a text, for Tab completion; that of a site is new."""
    return [] if parsed_args.action == "init" else complete(prefix, parsed_args=parsed_args, **options)


def run(options: Namespace) -> int:
    """Write a profile, or try one; return 0, or 1 if an installation would stop."""
    if options.action == "libraries":
        profile = settings_of(options).site()
        image = names_of(options).image(options.what) if options.what else None
        return show(hostlibraries.attempt(profile, image), options.json)
    if not options.what:
        raise UsageError("init needs a name for the site: ebsif site init NAME")
    if options.site or options.json:
        raise UsageError("--site and --json are for libraries, not for init")
    if len(options.catalog) > 1:
        raise UsageError("init writes to one catalog: give --catalog once")
    return init(options.what, *options.catalog)


def init(name: str, place: Optional[Path] = None) -> int:
    """Write a profile to a catalog, and say what to do with it; return 0."""
    settings = read_settings(complete=False)
    catalog = place or next(iter(settings.own_directories), Path())
    path = newsite.write(name, catalog)
    choice = shlex.join(dataclasses.replace(settings, directories=(catalog,)).options_for(name))
    if name in site.names():
        output.note(
            f"the project has a site {name}, too, which this profile hides: choose another name, or "
            f"add `extends: {name}` to build on it"
        )
    print(path)
    output.hint("lines with 'review' are guesses: correct them, and remove the mark")
    output.hint(f"see what is missing: ebsif check {choice}")
    output.hint(f"then add your first image: ebsif add IMAGE.sif {choice}")
    return 0


def show(trial: Trial, as_json: bool) -> int:
    """Print what was found on this machine; return 1 if an installation would stop, else 0."""
    if as_json:
        print(json.dumps(trial.data, indent=2))
        return FOUND if trial.problems else 0
    rows = list(rows_of(trial))
    if rows:
        print_table(["library", "from", "why"], rows)
    elif not trial.problems:
        output.hint("this machine has none of the libraries, all of which are optional")
    print_findings(Finding(ERROR, "", problem) for problem in trial.problems)
    for text in trial.found.left_out:
        output.note(f"without a plugin: {text}")
    return FOUND if trial.problems else 0


def rows_of(trial: Trial) -> Iterator[list[str]]:
    """Yield name, path and reason of each library, those of the host first."""
    for name, why in sorted(trial.decision.bound.items()):
        yield [name, trial.found.libraries[name], why]
    for name, path in trial.decision.served.items():
        yield [name, path, "of the image, which is new enough"]
