"""Compare two containers, installed or in the catalogue: image, components, packages, binds, variables.

Only what is known about both is compared: an installation knows all its packages, the catalogue does not. The exit
status is 0 if they are the same, 1 if they differ, 3 if one of them can't be read.
"""

from ebsif.catalogue.container import Container
from ebsif.commands.options import add_json, add_name, add_settings
from ebsif.installed import compare
from ebsif.installed.changes import print_changes
from ebsif.installed.names import Names
from ebsif.installed.places import Installation

EXAMPLES = """\
  ebsif diff --site lumi PyTorch/2.7.0 PyTorch/2.7.1
  ebsif diff PyTorch/2.7.1            # with the loaded module
  ebsif diff mine /other/installation
  ebsif diff PyTorch-mine.eb PyTorch-yours.eb
"""


def configure(parser):
    """Add the arguments."""
    add_settings(parser)
    add_name(parser, "before", "a container, or a saved lock", required=True)
    add_name(parser, "after", "what to compare it with")
    add_json(parser)


def run(options):
    """Print how two containers differ; return 1 if they do, else 0."""
    names = Names(options)
    found = [names.find(text) for text in (options.before, options.after)]
    if any(isinstance(one, Installation) for one in found):
        # more is known about an installation than about its record in the catalogue
        found = [isinstance(one, Container) and names.installed_as(one.module) or one for one in found]
    before, after = map(compare.facts, found)
    return print_changes(compare.compare(before, after), options.json)
