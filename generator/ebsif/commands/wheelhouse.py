"""Download or build, in the image, the wheel of every package that the stages of an easyconfig install.

Nothing is installed. To install from the folder, name it in 'find_links' of the stages, with '--no-index' in 'options'.
"""

from pathlib import Path

from ebsif.catalogue import selection
from ebsif.catalogue.settings import add_settings_arguments
from ebsif.environments import wheelhouse
from ebsif.installed.names import Names, add_name_argument
from ebsif.report import output

EXAMPLES = """\
  # on a node with network access
  ebsif wheelhouse PyTorch-mine.eb -o ~/wheels
  # on a node without, after adding  'find_links': ['/home/me/wheels'], 'options': ['--no-index']  to its stages
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
                "to install from there without network, add to each stage of the easyconfig: "
                f"'find_links': ['{options.output.resolve()}'], 'options': ['--no-index']")
    return 0
