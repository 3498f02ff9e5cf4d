"""Create a profile for your site.

`init` writes NAME/site.yaml: about fifteen lines, each with a comment, filled in with what this machine shows:
scheduler and partitions, GPUs, file systems. Guesses are marked with 'review'; `ebsif check` lists them. An existing
profile is not changed.
"""

import dataclasses
import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path

from ebsif.catalog import newsite, site
from ebsif.catalog.settings import read_settings
from ebsif.report import output

EXAMPLES = """\
  ebsif site init mysite                           # mysite/site.yaml in this directory
  ebsif site init mysite --catalog ~/our-containers
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("action", metavar="ACTION", choices=["init"], help="init")
    parser.add_argument("name", metavar="NAME", help="name of the site: lower-case letters, digits, - and _")
    parser.add_argument(
        "--catalog",
        metavar="DIRECTORY",
        type=Path,
        help="directory of your sites (default: as configured, else the current directory)",
    )


def run(options: Namespace) -> int:
    """Write the profile, and say what to do with it; return 0."""
    settings = read_settings(complete=False)
    catalog = options.catalog or next(iter(settings.own_directories), Path())
    path = newsite.write(options.name, catalog)
    choice = shlex.join(dataclasses.replace(settings, directories=(catalog,)).options_for(options.name))
    if options.name in site.names():
        output.note(
            f"the project has a site {options.name}, too, which this profile hides: choose another name, or "
            f"add `extends: {options.name}` to build on it"
        )
    print(path)
    output.hint("lines with 'review' are guesses: correct them, and remove the mark")
    output.hint(f"see what is missing: ebsif check {choice}")
    output.hint(f"then add your first image: ebsif add IMAGE.sif {choice}")
    return 0
