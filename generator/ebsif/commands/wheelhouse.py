"""Fetch and build, in the image, a wheel of every package the stages of an easyconfig install.

Nothing is installed. Name the folder in the easyconfig parameter 'wheelhouse' to install from it.
"""

from pathlib import Path

from ebsif import output
from ebsif.user import wheelhouse

EXAMPLES = """\
  ebsif wheelhouse PyTorch-mine.eb -o ~/wheels   on a node with network
  eb PyTorch-mine.eb                             with  wheelhouse = '/home/me/wheels'  in it, on one without
"""

MORE = "OPTION_OF_eb"


def configure(parser):
    """Add the arguments."""
    parser.add_argument("easyconfig", metavar="EASYCONFIG", help="a file, or a name that eb finds")
    parser.add_argument("-o", "--output", metavar="FOLDER", type=Path, required=True, help="where the wheels go")


def run(options):
    """Fill a wheelhouse and say what is in it; return 0."""
    wheels = wheelhouse.fill(options.easyconfig, options.output, options.more)
    for wheel in wheels:
        print(wheel.name)
    output.hint(f"{len(wheels)} wheels in {options.output.resolve()}; install from there with: "
                f"wheelhouse = '{options.output.resolve()}'")
    return 0
