"""Move an extension, the easyconfig that `ebsif extend` wrote, to a newer container: the same packages, a new one."""

import time
from pathlib import Path

from ebsif import eb
from ebsif.catalogue.settings import add_settings_arguments
from ebsif.installed import compare
from ebsif.user import extending
from ebsif.user.outcome import add_outcome, chosen, write

EXAMPLES = """\
  ebsif upgrade PyTorch-2.6.0-...-mine-20250501.eb PyTorch/2.7.0 --check     would it work?
  ebsif upgrade PyTorch-2.6.0-...-mine-20250501.eb PyTorch/2.7.0 --install
"""

MORE = "OPTION_OF_eb"


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    parser.add_argument("easyconfig", metavar="FILE", type=Path, help="the easyconfig of the extension")
    parser.add_argument("module", metavar="NAME/VERSION", help="the newer container")
    parser.add_argument("--date", default=time.strftime("%Y%m%d"), help="for the suffix (default: today)")
    add_outcome(parser)


def run(options):
    """Write the easyconfig of the moved extension; return the exit status."""
    if not options.easyconfig.is_file():
        raise extending.ExtendingError(f"there is no file {options.easyconfig}")
    eb.session(tuple(options.more))
    stages, name, _ = compare.extension_of(options.easyconfig)
    return write(options, chosen(options), stages, name)
