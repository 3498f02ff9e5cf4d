"""Use the lock file of an installation: compare two installations, or write a software bill of materials."""

import time
from pathlib import Path

from easybuild.easyblocks.generic.container.sbom import bill_of_materials

from ebsif.installed import lock
from ebsif.installed.changes import print_changes

EXAMPLES = """\
  ebsif lock diff $CONTAINERROOT /other/installation
  ebsif lock diff saved-lock.json $CONTAINERROOT --json
  ebsif lock sbom $CONTAINERROOT -o sbom.json
"""


def configure(parser):
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    diff = actions.add_parser(
        "diff", help="compare two installations or lock files",
        description="Compare the image, packages, stages and local files of two installations. The exit status is 0 if "
        "they are the same, 1 if they differ, 2 if one of them can't be read.",
        epilog=f"examples:\n{EXAMPLES}", formatter_class=parser.formatter_class,
    )
    diff.add_argument("before", metavar="A", help="an installation directory (CONTAINERROOT) or a lock file")
    diff.add_argument("after", metavar="B", help="what to compare it with")
    diff.add_argument("--json", action="store_true", help="print the differences as a JSON list")
    diff.set_defaults(act=run_diff, trouble=2)
    sbom = actions.add_parser(
        "sbom", help="write the software bill of materials of an installation",
        description="Write the software bill of materials of an installation, in CycloneDX JSON.",
        epilog=f"examples:\n{EXAMPLES}", formatter_class=parser.formatter_class,
    )
    sbom.add_argument("place", metavar="A", help="an installation directory (CONTAINERROOT) or a lock file")
    sbom.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to this file (default: print it)")
    sbom.set_defaults(act=run_sbom)


def run(options):
    """Run the action; return the exit status."""
    return options.act(options)


def run_diff(options):
    """Print how two installations differ; return 1 if they do, else 0."""
    return print_changes(lock.compare(lock.read(options.before), lock.read(options.after)), options.json)


def run_sbom(options):
    """Write the software bill of materials of an installation; return 0."""
    text = bill_of_materials(lock.read(options.place), time.time())
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0
