"""The command ``ebsif``: one function per subcommand, each returning the exit status."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from ebsif import __version__, directcommand, doctor, lock, wheelhouse

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


SBOM_EXAMPLES = """\
examples:
  ebsif lock sbom $CONTAINERROOT                 print what is in an installed module, for a scanner
"""

COMMAND_EXAMPLES = """\
examples:
  ebsif command PyTorch/2.13.0-cpu-python-3.11-singularity-20261121     the line to put before a command
"""

WHEELHOUSE_EXAMPLES = """\
examples:
  ebsif wheelhouse PyTorch-mine.eb -o ~/wheels   on a node with network
  eb PyTorch-mine.eb                             with  wheelhouse = '/home/me/wheels'  in it, on one without
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

    sbom = actions.add_parser(
        "sbom",
        help="write the software bill of materials of an installation",
        description="Write the software bill of materials of an installation, in CycloneDX JSON.",
        epilog=SBOM_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sbom.add_argument("place", metavar="A", help="an installation directory (CONTAINERROOT) or a lock file")
    sbom.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to this file (default: print it)")
    sbom.set_defaults(run=run_lock_sbom)

    direct = commands.add_parser(
        "command",
        help="the command line of the runtime that does the same as a module",
        description="Print the command line of the runtime that does what the module of a container does, as it would "
        "be loaded here and now.",
        epilog=COMMAND_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    direct.add_argument("module", metavar="MODULE", help="name of the module, as for `module load`")
    direct.set_defaults(run=run_command)

    house = commands.add_parser(
        "wheelhouse",
        help="fetch what an easyconfig needs, to install on nodes without network",
        description="Fetch and build, in the image, a wheel of every package the stages of an easyconfig install. "
        "Nothing is installed. Name the folder in the easyconfig parameter 'wheelhouse' to install from it.",
        usage="%(prog)s EASYCONFIG -o FOLDER [-- OPTION_OF_eb...]",
        epilog=WHEELHOUSE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    house.add_argument("easyconfig", metavar="EASYCONFIG", help="a file, or a name that eb finds")
    house.add_argument("-o", "--output", metavar="FOLDER", type=Path, required=True, help="where the wheels go")
    house.set_defaults(run=run_wheelhouse, takes_more=True)
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


def run_lock_sbom(options):
    """Write the software bill of materials of an installation; return 0."""
    # the library takes longer to load than most commands to run
    from ebsif import billofmaterials

    text = billofmaterials.render(lock.read(options.place))
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


def run_command(options):
    """Print the command line that does the same as a module; return 0."""
    print(directcommand.of_module(options.module))
    return 0


def run_wheelhouse(options):
    """Fill a wheelhouse and say what is in it; return 0."""
    wheels = wheelhouse.fill(options.easyconfig, options.output, options.more)
    for wheel in wheels:
        print(wheel.name)
    print(f"{len(wheels)} wheels in {options.output.resolve()}; install from there with: "
          f"wheelhouse = '{options.output.resolve()}'")
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


def run_doctor():
    """Print what was found on this machine; return 1 if something is missing, else 0."""
    findings = doctor.examine()
    width = max(len(finding.part) for finding in findings)
    for finding in findings:
        status = "note" if finding.note else "ok" if finding.ok else "MISSING"
        print(f"{status:8} {finding.part:{width}}  {finding.text}")
    return 0 if all(finding.ok for finding in findings) else EXIT_FAILURE


def check_python(version):
    """
    Stop with a message if this Python is too old.

    Parameters
    ----------
    version : tuple of int
        As sys.version_info.
    """
    if version < (3, 9):
        sys.exit(f"ebsif: Python 3.9 or newer is needed, this is {version[0]}.{version[1]} ({sys.executable}); "
                 "on a cluster a module has a newer one (module load cray-python, for example)")


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
    check_python(sys.version_info[:2])
    parser = build_parser()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # what follows -- is for the program that a command runs
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.more = arguments[end + 1 :]
    if options.more and not getattr(options, "takes_more", False):
        parser.error(f"unrecognized arguments: {' '.join(options.more)}")
    try:
        return options.run(options)
    except (lock.LockError, wheelhouse.WheelhouseError, directcommand.ModuleError, OSError) as error:
        print(f"ebsif: {error}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
