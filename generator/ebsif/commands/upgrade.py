"""Move an extension to a newer container: write an easyconfig with the same packages on top of that container."""

import time
from pathlib import Path

from ebsif import eb
from ebsif.catalogue.settings import add_settings_arguments
from ebsif.installed import compare
from ebsif.user import extending
from ebsif.user.outcome import add_outcome, chosen, write

EXAMPLES = """\
  # would it work? (installs nothing)
  ebsif upgrade PyTorch-2.6.0-...-mine-20250501.eb PyTorch/2.7.0 --check
  # write the easyconfig and install it
  ebsif upgrade PyTorch-2.6.0-...-mine-20250501.eb PyTorch/2.7.0 --install
"""

MORE = "OPTION_OF_eb"


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    parser.add_argument("easyconfig", metavar="FILE", type=Path, help="easyconfig that `ebsif extend` wrote")
    parser.add_argument("module", metavar="NAME/VERSION", help="the newer container")
    parser.add_argument("--date", default=time.strftime("%Y%m%d"),
                        help="date at the end of the version suffix (default: today)")
    add_outcome(parser)


def run(options):
    """Write the easyconfig of the upgraded extension; return the exit status."""
    if not options.easyconfig.is_file():
        raise extending.ExtendingError(f"the file {options.easyconfig} does not exist")
    eb.session(tuple(options.more))
    stages, name, _ = compare.extension_of(options.easyconfig)
    return write(options, chosen(options), stages, name)
