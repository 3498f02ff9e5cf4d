"""Compare two containers, installed or in the catalogue: image, components, packages, binds, variables.

Exit status 0 if they are alike, 1 if they differ, 2 if one can't be read. What is known of only one of them is left
out: the catalogue does not know every package, an installation does.
"""

from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.installed import compare
from ebsif.installed.changes import print_changes

EXAMPLES = """\
  ebsif diff --site lumi PyTorch/2.6.0-rocm-6.2.4-python-3.12-singularity-20250410 PyTorch/2.7.0
  ebsif diff $CONTAINERROOT /other/installation
  ebsif diff PyTorch-mine.eb PyTorch-yours.eb
"""


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    parser.add_argument("before", metavar="A", help="NAME/VERSION, an installation directory, or an easyconfig")
    parser.add_argument("after", metavar="B", help="the other one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(trouble=2)


def run(options):
    """Print how two containers differ; return 1 if they do, else 0."""
    settings = read_settings(options)
    containers = settings.containers(settings.site())
    before, after = (compare.facts(text, containers) for text in (options.before, options.after))
    return print_changes(compare.compare(before, after), options.json)
