"""Add your own Python packages on top of a container: write an easyconfig, check it, install it.

The new module has its own name, so it never replaces the module of the plain container. The packages in the image
(torch, mpi4py and all others) are not changed. Packages that are built against torch get a stage of their own.
"""

import sys
import time
from pathlib import Path

from ebsif.catalogue.settings import add_settings_arguments
from ebsif.errors import UsageError
from ebsif.installed.names import add_name_argument
from ebsif.user import environments, extending, requirements
from ebsif.user.outcome import add_outcome, chosen, write

EXAMPLES = """\
  # would it work? (installs nothing)
  ebsif extend PyTorch/2.7.0 -r requirements.txt --name mine --check
  # write the easyconfig and install it
  ebsif extend PyTorch/2.7.0 -r requirements.txt --name mine --install
  # write the easyconfig only
  ebsif extend PyTorch/2.7.0 -r environment.yml --name mine
  ebsif extend PyTorch/2.7.0 -r pyproject.toml --extra train --group dev --name mine
  # exactly what is locked, with hashes
  ebsif extend PyTorch/2.7.0 -r uv.lock --name mine --install
  ebsif extend PyTorch/2.7.0 --stage one=a.txt --stage two=b.txt --name mine
  # more packages on top of those of an extension
  ebsif extend PyTorch/2.7.0-...-mine-20261121 -r more.txt --name more --install
  # the packages of a virtual environment, with their exact versions
  ebsif extend PyTorch/2.7.0 --from-venv optuna-env.sqsh --name optuna
"""

MORE = "OPTION_OF_eb"


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    add_name_argument(parser, "module", "what to extend")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-r", "--requirements", metavar="FILE",
                      help="requirements.txt, pyproject.toml, environment.yml, uv.lock or pylock.toml")
    what.add_argument("--stage", metavar="NAME=FILE", action="append", default=[],
                      help="install the requirements in FILE with a separate call of pip, in the given order "
                           "(repeatable)")
    what.add_argument("--from-venv", metavar="PATH", type=Path,
                      help="install the packages of a virtual environment (a directory or a SquashFS file) with "
                           "their exact versions")
    parser.add_argument("--extra", metavar="NAME", action="append", default=[],
                        help="also install an extra of the project in pyproject.toml or its lock file (repeatable)")
    parser.add_argument("--group", metavar="NAME", action="append", default=[],
                        help="also install a dependency group of that project (repeatable)")
    parser.add_argument("--name", required=True, help="name of the extension, part of the version suffix")
    parser.add_argument("--date", default=time.strftime("%Y%m%d"),
                        help="date at the end of the version suffix (default: today)")
    add_outcome(parser)


def run(options):
    """Write an easyconfig; return the exit status."""
    container = chosen(options)
    if options.from_venv and (options.extra or options.group):
        raise UsageError("--extra and --group need -r or --stage")
    if options.from_venv:
        wanted = environments.read(options.from_venv)
        stages, impossible = requirements.split_into_stages(wanted.lines), wanted.impossible
    else:
        stages, impossible = extending.stages_from(
            options.requirements, [parse_stage(text) for text in options.stage], container, options.extra,
            options.group)
    for text in impossible:
        print(f"ebsif: {text}", file=sys.stderr)
    return write(options, container, extending.on_top(container, stages, options.name), options.name)


def parse_stage(text):
    """Return the name and file of --stage NAME=FILE (tuple of str)."""
    name, sign, file = text.partition("=")
    if not (name and sign and file):
        raise extending.ExtendingError(f"--stage {text}: should be NAME=FILE")
    return name, file
