"""The command ``ebsif``: one function per subcommand, each returning the exit status."""

import argparse
import dataclasses
import json
import sys

from ebsif import __version__, doctor, lock

EXIT_FAILURE = 1

DOCTOR_EXAMPLES = """\
examples:
  ebsif doctor            is everything here that installing a container module needs?
"""

LOCK_DIFF_EXAMPLES = """\
examples:
  ebsif lock diff $CONTAINERROOT /other/installation     what differs between two installed modules?
  ebsif lock diff old-lock.json $CONTAINERROOT --json    the same with a saved record, for a program
"""


def build_parser():
    """Return the parser of the command line (argparse.ArgumentParser)."""
    parser = argparse.ArgumentParser(
        prog="ebsif",
        description="Container images as environment modules, with EasyBuild.",
        epilog="Containers are installed with `eb`; this command helps around it.",
    )
    parser.add_argument("--version", action="version", version=f"ebsif {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)

    check = commands.add_parser(
        "doctor",
        help="check that this machine has what installing a container module needs",
        description="Check that this machine has what installing a container module needs. "
        "Exit status 1 if something is missing.",
        epilog=DOCTOR_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.set_defaults(run=lambda _: run_doctor())

    records = commands.add_parser("lock", help="what was installed: compare two installations")
    actions = records.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    diff = actions.add_parser(
        "diff",
        help="compare two installations or lock files",
        description="Compare image, packages, stages and local files of two installations. Exit status 0 if they are "
        "alike, 1 if they differ or one can't be read.",
        epilog=LOCK_DIFF_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    diff.add_argument("before", metavar="A", help="an installation directory (CONTAINERROOT) or a lock file")
    diff.add_argument("after", metavar="B", help="the other one")
    diff.add_argument("--json", action="store_true", help="print the differences as a JSON list")
    diff.set_defaults(run=run_lock_diff)
    return parser


def run_lock_diff(options):
    """Print how two installations differ; return 1 if they do, else 0."""
    changes = lock.compare(lock.read(options.before), lock.read(options.after))
    if options.json:
        print(json.dumps([dataclasses.asdict(change) for change in changes], indent=2))
    elif not changes:
        print("no differences")
    else:
        for change in changes:
            print(describe(change))
    return EXIT_FAILURE if changes else 0


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


def run_doctor():
    """Print what was found on this machine; return 1 if something is missing, else 0."""
    findings = doctor.examine()
    width = max(len(finding.part) for finding in findings)
    for finding in findings:
        print(f"{'ok' if finding.ok else 'MISSING':8} {finding.part:{width}}  {finding.text}")
    return 0 if all(finding.ok for finding in findings) else EXIT_FAILURE


def main(arguments=None):
    """
    Run the command line.

    Parameters
    ----------
    arguments : list of str, optional
        The arguments; those of the process by default.

    Returns
    -------
    int
        The exit status: 0, 1 for a failure, 2 for wrong use (argparse exits with it), 130 after Ctrl-C.
    """
    options = build_parser().parse_args(arguments)
    try:
        return options.run(options)
    except lock.LockError as error:
        print(f"ebsif: {error}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
