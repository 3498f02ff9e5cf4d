"""Look at the record of what was installed: compare two installations, write a software bill of materials."""

import argparse
from pathlib import Path

from ebsif.installed import lock
from ebsif.installed.changes import print_changes

EXAMPLES = """\
  ebsif lock diff $CONTAINERROOT /other/installation     what differs between two installed modules?
  ebsif lock diff old-lock.json $CONTAINERROOT --json    the same with a saved record, for a program
  ebsif lock sbom $CONTAINERROOT                         what is in an installed module, for a scanner
"""


def configure(parser):
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    diff = actions.add_parser(
        "diff", help="compare two installations or lock files",
        description="Compare image, packages, stages and local files of two installations. Exit status 0 if they are "
        "alike, 1 if they differ, 2 if one can't be read.",
        epilog=f"examples:\n{EXAMPLES}", formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    diff.add_argument("before", metavar="A", help="an installation directory (CONTAINERROOT) or a lock file")
    diff.add_argument("after", metavar="B", help="the other one")
    diff.add_argument("--json", action="store_true", help="print the differences as a JSON list")
    diff.set_defaults(act=run_diff, trouble=2)
    sbom = actions.add_parser(
        "sbom", help="write the software bill of materials of an installation",
        description="Write the software bill of materials of an installation, in CycloneDX JSON.",
        epilog=f"examples:\n{EXAMPLES}", formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sbom.add_argument("place", metavar="A", help="an installation directory (CONTAINERROOT) or a lock file")
    sbom.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to this file (default: print it)")
    sbom.set_defaults(act=run_sbom)


def run(options):
    """Do the action; return the exit status."""
    return options.act(options)


def run_diff(options):
    """Print how two installations differ; return 1 if they do, else 0."""
    return print_changes(lock.compare(lock.read(options.before), lock.read(options.after)), options.json)


def run_sbom(options):
    """Write the software bill of materials of an installation; return 0."""
    # the library takes longer to load than most commands to run
    from ebsif.installed import billofmaterials

    text = billofmaterials.render(lock.read(options.place))
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0
