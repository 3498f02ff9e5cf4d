"""
The command ``ebsif``: run a subcommand, and turn errors into a message and an exit status.

What the help doesn't need is imported where it is used, because importing takes most of the help's time.
"""

import argparse
import atexit
import contextlib
import gc
import importlib.util
import os
import signal
import sys

from ebsif import version
from ebsif.errors import FAILED, EbsifError, UsageError

EXIT_INTERRUPTED = 130

# What EasyBuild has besides easyblocks.
EASYBUILD = ("easybuild.framework", "easybuild.tools")

STATUSES = """\
exit status:
  0  done; nothing was found, nothing differs
  1  something was found: differences, errors in the catalogue, missing parts
  2  wrong use: the command line is incomplete or contradicts itself
  3  failed; the message says why
"""

# In the order of the help: choose a container, use it, maintain the catalogue, examine installations.
# Each is a module in commands/, loaded only when used: some libraries take longer to load than a command to run.
COMMANDS = {
    "list": "list the containers in the catalogue",
    "show": "show the details of a container",
    "docs": "build web pages for choosing a container",
    "extend": "add your own Python packages on top of a container",
    "upgrade": "move an extension to a newer container",
    "push": "share the environment of a module: put it into a registry or directory",
    "pull": "install an environment from a registry or directory",
    "export": "write the environment of a module as an RO-Crate, for a paper",
    "remove": "remove a module that you have installed",
    "job": "write a batch script for a multi-node run or an installation",
    "kernel": "add a module to the kernels of Jupyter",
    "python": "give editors a Python interpreter that runs in a container",
    "ood": "write an app for JupyterLab in Open OnDemand, or the files of a course",
    "command": "print the runtime's command line that is equivalent to a module",
    "wheelhouse": "collect the wheels for an installation without network access",
    "installed": "list the installed modules, and what is wrong with them",
    "doctor": "check this machine, or whether installed modules still work",
    "site": "start the profile of your own site",
    "inspect": "show what is in an image",
    "add": "add an image to the catalogue",
    "update": "compare the catalogue with the images there are, and add new ones",
    "import": "import existing easyconfigs into the catalogue",
    "render": "write the easyconfigs of the catalogue",
    "check": "check the catalogue and its easyconfigs",
    "reframe": "write checks of the modules for ReFrame",
    "schema": "print the JSON Schemas of the YAML files, for editors",
    "diff": "compare two containers or installations",
    "audit": "list known vulnerabilities of installed modules",
    "lock": "print the lock of an installed module, or its bill of materials",
    "completion": "print a shell completion script",
}


# Commands whose module needs another name.
MODULES = {"import": "import_"}


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wrap the paragraphs of a description to the width of the terminal; leave the examples as they are."""

    def _fill_text(self, text, width, indent):
        keep, wrap = super()._fill_text, argparse.HelpFormatter._fill_text
        if text.startswith("examples:"):
            return keep(text, width, indent)
        return "\n\n".join(keep(paragraph, width, indent) if paragraph.startswith("exit status:")
                           else wrap(self, paragraph, width, indent) for paragraph in text.split("\n\n"))


class Command(argparse.ArgumentParser):
    """A command, with options between its arguments: Python before 3.12.7 takes an optional one only next to others."""

    inside = False

    def parse_known_args(self, args=None, namespace=None):
        """Parse the options first, then the arguments."""
        # completion follows how the parser goes through the words
        if self.inside or "_ARGCOMPLETE" in os.environ:
            return super().parse_known_args(args, namespace)
        self.inside = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self.inside = False


class ShowVersion(argparse.Action):
    """Show the version, which is looked up only on request."""

    def __call__(self, parser, *_):
        """Print the version and exit."""
        print(f"ebsif {version()}")
        parser.exit()


def build_parser(arguments):
    """Return the parser (argparse.ArgumentParser), with the options of those subcommands that the arguments name."""
    parser = argparse.ArgumentParser(
        prog="ebsif",
        description="Install container images as environment modules, with EasyBuild.",
        formatter_class=HelpFormatter,
        epilog="The modules themselves are installed with `eb`. Run `ebsif COMMAND --help` for the options of a "
               f"command.\n\n{STATUSES}",
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and exit")
    common = argparse.ArgumentParser(add_help=False)
    verbosity = common.add_argument_group("output options")
    verbosity.add_argument("-q", "--quiet", action="store_true", help="print results and errors only")
    verbosity.add_argument("-v", "--verbose", action="store_true",
                           help="also print the commands that are run, and the output of eb")
    verbosity.add_argument("--no-color", action="store_true", help="don't use colors (as NO_COLOR=1)")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True,
                                     parser_class=Command)
    for name in COMMANDS.keys() & arguments[:1] or COMMANDS:
        if name in arguments:
            module = importlib.import_module(f"ebsif.commands.{MODULES.get(name, name)}")
            subparser = commands.add_parser(
                name, help=COMMANDS[name], formatter_class=HelpFormatter, parents=[common], description=module.__doc__,
                epilog=f"examples:\n{module.EXAMPLES}")
            module.configure(subparser)
            more = getattr(module, "MORE", None)
            if more:
                subparser.usage = f"{subparser.format_usage()[len('usage: ') :].rstrip()} [-- {more}...]"
            subparser.set_defaults(run=module.run, parser=subparser, takes_more=bool(more))
        else:
            # only for the help of ebsif, and for messages about a wrong name
            commands.add_parser(name, help=COMMANDS[name], add_help=False)
    return parser


def complete():
    """Print the completions of the shell's command line, and exit."""
    # only needed here
    import argcomplete

    # this process ends in a moment
    gc.disable()
    # only the command that is typed: importing all of them takes longer than a person wants to wait
    argcomplete.autocomplete(build_parser(os.environ.get("COMP_LINE", "").split()),
                             validator=lambda name, typed: name.lower().startswith(typed.lower()))


def check_python(version):
    """
    Exit with a message if this Python is too old.

    Parameters
    ----------
    version : tuple of int
        Major and minor version, as in sys.version_info.
    """
    if version < (3, 9):
        sys.exit(f"ebsif: Python 3.9 or newer is needed, this is {version[0]}.{version[1]} ({sys.executable}); "
                 "on a cluster, load a module that has one (module load cray-python, for example)")


def find_easybuild():
    """Let Python find the EasyBuild of eb if it finds none: modules of EasyBuild may set PATH, but not PYTHONPATH."""
    if importlib.util.find_spec(EASYBUILD[0]):
        return
    import shutil
    from pathlib import Path

    prefix = Path(shutil.which("eb") or "/dev/null/bin/eb").resolve().parent.parent
    found = [str(path.parents[1]) for start in ("lib*", "local/lib")
             for path in prefix.glob(f"{start}/python3*/*-packages/easybuild/framework")]
    if found:
        sys.path.append(found[0])
        # it has found our part of the package only
        del sys.modules["easybuild"]


def without_easybuild(arguments):
    """Return what to do if there is no EasyBuild (str); the profile of the site may know the modules."""
    from ebsif.catalogue.settings import add_settings_arguments, read_settings

    # the parser of the command may not be there: its module imports EasyBuild
    parser = argparse.ArgumentParser(add_help=False)
    add_settings_arguments(parser)
    options, _ = parser.parse_known_args(arguments)
    modules = []
    with contextlib.suppress(EbsifError):
        modules = read_settings(options).site().scheduler.install.modules
    remedy = f"run `module load {' '.join(modules)}`" if modules else \
        "load the site's EasyBuild module, or run `pip install easybuild`"
    return f"this command needs EasyBuild, which {sys.executable} can't import: {remedy}"


def main(arguments=None):
    """
    Run the command line.

    Parameters
    ----------
    arguments : list of str, optional
        The arguments (default: those of the process).

    Returns
    -------
    int
        The exit status: see STATUSES; 130 after Ctrl-C, 141 after a broken pipe.
    """
    check_python(sys.version_info[:2])
    # almost all objects stay until the end, so looking for unused ones in cycles takes time for nothing
    gc.set_threshold(500_000)
    atexit.register(gc.freeze)
    if "_ARGCOMPLETE" in os.environ:
        complete()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # arguments after -- are for the program that a command runs
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = argparse.Namespace()
    find_easybuild()
    # in one file with standard error, lines are in the order in which they were printed
    sys.stdout.reconfigure(line_buffering=True)
    try:
        return call_and_flush(run, arguments[:end], arguments[end + 1 :], options)
    except BrokenPipeError:
        # the reader (head, for example) has closed the pipe
        discard_output()
        return 128 + signal.SIGPIPE
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(EASYBUILD):
            raise
        print(f"ebsif: {without_easybuild(arguments[:end])}", file=sys.stderr)
        return FAILED
    except (EbsifError, OSError) as error:
        from ebsif.report.output import printable

        print(f"ebsif: {printable(text_of(error, getattr(options, 'output', None)))}", file=sys.stderr)
        return getattr(error, "status", FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def discard_output():
    """Drop what can't be written to standard output; otherwise Python tries and complains once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def text_of(error, output=None):
    """
    Return the message of an error (str): for a file its path, what is wrong, and who can give permission.

    Parameters
    ----------
    error : Exception
        The error.
    output : Path, optional
        What -o names, for which another directory can be chosen.
    """
    import shutil
    from pathlib import Path

    from easybuild.easyblocks.generic.container.texts import ERRORS, plain_error

    from ebsif.files import how_to_get_access, is_there

    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        # each file that could not be copied; one says enough
        return plain_error(str(error.args[0][0][-1]))
    path = getattr(error, "filename", None)
    if not isinstance(path, str) or error.filename2 or not error.strerror:
        return plain_error(str(error))
    remedy = ""
    if isinstance(error, PermissionError) and not os.access(path, os.R_OK | os.W_OK):
        remedy = f": {how_to_get_access(Path(path))}"
        # commands write a file beside the output first
        place = Path(path).absolute() if is_there(path) else Path(path).absolute().parent
        if output and place in (output.absolute(), *output.absolute().parents):
            path, remedy = place, ": choose another directory with -o"
    return f"{path}: {ERRORS.get(error.errno, error.strerror)}{remedy}"


def call_and_flush(function, *arguments):
    """Call a function and flush its output, so that a broken pipe or a full disk is noticed here and not at exit."""
    try:
        return function(*arguments)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            discard_output()
            raise OSError(f"can't write to standard output: {error.strerror}") from None


def run(arguments, more, options):
    """Parse arguments into options, run the subcommand (`more` is what followed --), and return the exit status."""
    parser = build_parser(arguments)
    if not arguments:
        parser.print_help(sys.stderr)
        return UsageError.status
    _, unknown = parser.parse_known_args(arguments, options)
    options.more = more
    if not options.takes_more:
        unknown += more
    if unknown:
        advice = " (put -- before arguments for the program)" if options.takes_more else ""
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}{advice}")
    from ebsif.report import output

    output.set_level(output.VERBOSE if options.verbose else output.QUIET if options.quiet else output.NORMAL)
    if options.no_color:
        os.environ["NO_COLOR"] = "1"
    try:
        return options.run(options)
    except UsageError as error:
        return options.parser.error(output.printable(error))


if __name__ == "__main__":
    sys.exit(main())
