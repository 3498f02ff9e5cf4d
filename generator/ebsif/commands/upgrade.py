"""Move an extension to a newer container: write an easyconfig with the same packages on top of that container."""

from pathlib import Path

from easybuild.easyblocks.generic.container import lockfile

from ebsif.commands.options import add_name, add_outcome, add_settings
from ebsif.eb import framework
from ebsif.environments import byhand, extending
from ebsif.environments.outcome import chosen, write
from ebsif.installed import compare, places
from ebsif.installed.names import Names

EXAMPLES = """\
  # would it work? (installs nothing)
  ebsif upgrade PyTorch-2.6.0-...-mine-20250501.eb PyTorch/2.7.0 --check
  # write the easyconfig and install it
  ebsif upgrade mine PyTorch/2.7.0 --install
"""

MORE = "OPTION_OF_eb"


def configure(parser):
    """Add the arguments."""
    add_settings(parser)
    add_name(parser, "easyconfig", "the extension", required=True)
    add_name(parser, "module", "the newer container", required=True)
    add_outcome(parser)


def run(options):
    """Write the easyconfig of the upgraded extension; return the exit status."""
    framework.session(tuple(options.more))
    path = Names(options).easyconfig(options.easyconfig)
    if not isinstance(path, Path):
        raise extending.ExtendingError(f"{options.easyconfig} is a container in the catalogue, not an extension: use "
                                       "`ebsif extend` on the newer one")
    stages, name, _ = compare.extension_of(path)
    container = chosen(options)
    status = write(options, container, stages, name)
    root = path.parent.parent
    if (root / lockfile.RECORD).is_file():
        byhand.report_left_behind(places.of_directory(root), f"{container.module}-{name}-{options.date}", stages)
    return status
