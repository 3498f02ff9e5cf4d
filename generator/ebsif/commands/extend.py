"""Put packages of your own on top of a container: write an easyconfig, look ahead, install.

The module has a name of its own, so it never replaces that of the plain container. Packages of the image (torch, mpi4py
and all others) stay as they are. Packages that are built against torch are put into a stage of their own.
"""

import sys
import time

from ebsif.catalogue.settings import add_settings_arguments
from ebsif.user import extending
from ebsif.user.outcome import add_outcome, chosen, write

EXAMPLES = """\
  ebsif extend PyTorch/2.7.0 -r requirements.txt --name mine --check       would it work? nothing is installed
  ebsif extend PyTorch/2.7.0 -r requirements.txt --name mine --install     write it, install it
  ebsif extend PyTorch/2.7.0 -r environment.yml --name mine                write it
  ebsif extend PyTorch/2.7.0 --stage first=a.txt --stage second=b.txt --name mine
"""

MORE = "OPTION_OF_eb"


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    parser.add_argument("module", metavar="NAME/VERSION", help="a container of the catalogue (ebsif list)")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-r", "--requirements", metavar="FILE",
                      help="requirements.txt, pyproject.toml, or the pip part of an environment.yml")
    what.add_argument("--stage", metavar="NAME=FILE", action="append", default=[],
                      help="one call of pip for each, in this order; may be repeated")
    parser.add_argument("--name", required=True, help="for the suffix of the module")
    parser.add_argument("--date", default=time.strftime("%Y%m%d"), help="for the suffix (default: today)")
    add_outcome(parser)


def run(options):
    """Write an easyconfig; return the exit status."""
    container = chosen(options)
    stages, impossible = extending.stages_from(
        options.requirements, [named(text) for text in options.stage], container)
    for text in impossible:
        print(f"ebsif: {text}", file=sys.stderr)
    return write(options, container, stages, options.name)


def named(text):
    """Return name and file of --stage NAME=FILE."""
    name, sign, file = text.partition("=")
    if not (name and sign and file):
        raise extending.ExtendingError(f"--stage {text}: should be NAME=FILE")
    return name, file
