"""The command ``ebsif``: finds the subcommand, runs it, and turns what goes wrong into a message and a status."""

import argparse
import importlib
import os
import signal
import sys

from ebsif import output, version
from ebsif.errors import EbsifError

EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130

# In the order of the help: choose a container, use it, put one into the catalogue, look at what is installed.
# Each is a module in commands/, loaded only when it is used: some libraries take longer to load than commands to run.
COMMANDS = {
    "list": "the containers of the catalogue, in a table",
    "show": "what is known about a container",
    "docs": "browsable pages about the containers, to choose one",
    "extend": "a container with packages of your own: from a requirements.txt to a module",
    "upgrade": "move an extension to a newer container",
    "job": "write a batch script: run on many nodes, or install on a compute node",
    "command": "the command line of the runtime that does the same as a module",
    "wheelhouse": "fetch what an easyconfig needs, to install on nodes without network",
    "doctor": "check that this machine has what installing a container module needs",
    "inspect": "look at an image: what is in it",
    "add": "add an image to the catalogue",
    "import": "easyconfigs of the style in use today become records of the catalogue",
    "render": "write the easyconfigs of the catalogue",
    "check": "check catalogue and easyconfigs",
    "schema": "the JSON Schema of catalogue and site, for an editor",
    "diff": "compare two containers",
    "lock": "what was installed: compare two installations, bill of materials",
    "completion": "let a shell complete the command line",
}


# Those that can't have the name of their command.
MODULES = {"import": "import_"}


class ShowVersion(argparse.Action):
    """Show the version, which is looked for only then."""

    def __call__(self, parser, *_):
        """End."""
        print(f"ebsif {version()}")
        parser.exit()


def build_parser(arguments):
    """Return the parser (argparse.ArgumentParser), complete for the subcommands that the arguments name."""
    parser = argparse.ArgumentParser(
        prog="ebsif",
        description="Container images as environment modules, with EasyBuild.",
        epilog="Containers are installed with `eb`; this command helps around it.",
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and end")
    common = argparse.ArgumentParser(add_help=False)
    telling = common.add_argument_group("what is told")
    telling.add_argument("-q", "--quiet", action="store_true", help="results and errors only")
    telling.add_argument("-v", "--verbose", action="store_true", help="also the programs that are run")
    telling.add_argument("--no-color", action="store_true", help="no colours (NO_COLOR says the same)")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[common])
        if name in arguments:
            module = importlib.import_module(f"ebsif.commands.{MODULES.get(name, name)}")
            subparser.description = module.__doc__
            subparser.epilog = f"examples:\n{module.EXAMPLES}"
            module.configure(subparser)
            more = getattr(module, "MORE", None)
            if more:
                subparser.usage = f"{subparser.format_usage()[len('usage: ') :].rstrip()} [-- {more}...]"
            subparser.set_defaults(run=module.run, parser=subparser, takes_more=bool(more))
    return parser


def complete():
    """Print how the command line that a shell has may go on, and end."""
    # nothing else needs it
    import argcomplete

    argcomplete.autocomplete(build_parser(COMMANDS))


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
        The exit status: 0, 1 for a failure, 2 for wrong use (argparse exits with it), 130 after Ctrl-C, 141 if nobody
        reads the output any more; commands that compare have 1 for a difference and 2 for a failure, as diff(1).
    """
    check_python(sys.version_info[:2])
    if "_ARGCOMPLETE" in os.environ:
        complete()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # what follows -- is for the program that a command runs
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = argparse.Namespace()
    try:
        return flushed(run, arguments[:end], arguments[end + 1 :], options)
    except BrokenPipeError:
        # who reads has had enough (head); Python would complain at the end once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (EbsifError, OSError) as error:
        print(f"ebsif: {error}", file=sys.stderr)
        return getattr(options, "trouble", EXIT_FAILURE)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def flushed(function, *arguments):
    """Call a function; what it prints reaches whoever reads it, or that fails, before this returns or raises."""
    try:
        return function(*arguments)
    finally:
        sys.stdout.flush()


def run(arguments, more, options):
    """Parse arguments into options, do what they say with what follows --, and return the exit status."""
    _, unknown = build_parser(arguments).parse_known_args(arguments, options)
    options.more = more
    if not options.takes_more:
        unknown += more
    if unknown:
        way = " (write -- before what is for the program)" if options.takes_more else ""
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}{way}")
    output.set_level(output.VERBOSE if options.verbose else output.QUIET if options.quiet else output.NORMAL)
    if options.no_color:
        os.environ["NO_COLOR"] = "1"
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
