"""Download or build, in the image, the wheel of every package that the stages of an easyconfig install.

Nothing is installed. To install from the folder, name it in the easyconfig parameter 'wheelhouse'.
"""

from pathlib import Path

from ebsif import output
from ebsif.catalogue import selection
from ebsif.catalogue.settings import add_settings_arguments
from ebsif.installed.names import Names, add_name_argument
from ebsif.user import wheelhouse

EXAMPLES = """\
  # on a node with network access
  ebsif wheelhouse PyTorch-mine.eb -o ~/wheels
  # on a node without, after adding  wheelhouse = '/home/me/wheels'  to the file
  eb PyTorch-mine.eb
"""

MORE = "OPTION_OF_eb"


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    add_name_argument(parser, "easyconfig", "what to collect wheels for, or the name of an easyconfig that eb finds",
                      metavar="EASYCONFIG")
    parser.add_argument("-o", "--output", metavar="DIRECTORY", type=Path, required=True,
                        help="directory for the wheels")


def run(options):
    """Fill a wheelhouse and list its wheels; return 0."""
    try:
        easyconfig = Names(options).easyconfig(options.easyconfig)
    except selection.UnknownName:
        if not options.easyconfig.endswith(".eb"):
            raise
        easyconfig = options.easyconfig
    wheels = wheelhouse.fill(easyconfig, options.output, options.more)
    for wheel in wheels:
        print(wheel.name)
    output.hint(f"{output.format_count(len(wheels), 'wheel')} in {options.output.resolve()}; "
                "to install from there, add to "
                f"the easyconfig: wheelhouse = '{options.output.resolve()}'")
    return 0
