"""The command ``ebsif``: one function per subcommand, each returning the exit status."""

import argparse
import sys

from ebsif import __version__, doctor

EXIT_FAILURE = 1

DOCTOR_EXAMPLES = """\
examples:
  ebsif doctor            is everything here that installing a container module needs?
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
    return parser


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
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
