"""Look at the record of what was installed: compare two installations, write a software bill of materials."""

import argparse
import dataclasses
import json
from pathlib import Path

from ebsif.installed import lock

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
    return tell(lock.compare(lock.read(options.before), lock.read(options.after)), options.json)


def tell(changes, as_json):
    """Print differences; return 1 if there are any, else 0."""
    if as_json:
        print(json.dumps([dataclasses.asdict(change) for change in changes], indent=2))
    elif not changes:
        print("no differences")
    else:
        for change in changes:
            print(describe(change))
    return 1 if changes else 0


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


def describe(change):
    """Return a line that tells a person what changed."""
    if change.before is None:
        return f"+ {change.kind} {change.name} {shown(change.after)}"
    if change.after is None:
        return f"- {change.kind} {change.name} {shown(change.before)}"
    return f"~ {change.kind} {change.name} {shown(change.before)} -> {shown(change.after)}"


def shown(value):
    """Return a value of a record as text for a person."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
