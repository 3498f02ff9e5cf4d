"""Print the path of a Python interpreter that runs in the container of a module, for VS Code, PyCharm and others.

The module needn't be loaded. The interpreter uses the image, the user software, the binds and the variables that
loading the module here would give.

With --command, print the command line of the container runtime that is equivalent to loading the module here and now.

With --write, write a short file that starts the interpreter, with the user software (EBSIF_USER_SOFTWARE) and the
environment of make-venv that are in use now. For the name of an extension without its date, the file always starts the
newest one.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ebsif.commands.options import add_name, add_overwrite, names_of
from ebsif.installed import interpreter, places, runtimecommand
from ebsif.installed.names import undated
from ebsif.report import output

EXAMPLES = """\
  ebsif interpreter PyTorch/2.7.1-...
  $(ebsif interpreter PyTorch/2.7.1-...) -m pip list
  ebsif interpreter PyTorch/2.7.1-... --write ~/.local/bin/python-torch
  $(ebsif interpreter mine --command) ls /opt    # any program, without the module
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_name(parser, "module", "the module", only_installed=True)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--write", metavar="PATH", type=Path, help="write a file that starts the interpreter")
    how.add_argument(
        "--command",
        dest="runtime",
        action="store_true",
        help="print the words that run a command in the container",
    )
    add_overwrite(parser, "--write")


def run(options: Namespace) -> int:
    """Print or write the interpreter; return 0."""
    if options.runtime:
        runtimecommand.check_modules_tool()
    installation = names_of(options).installation(options.module)
    if options.runtime:
        installation = places.with_module_file(installation)
        print(runtimecommand.command_line(installation.module, installation.use))
    elif options.write:
        text = interpreter.starting(installation, undated(installation, options.module))
        interpreter.write(options.write, text, options.overwrite)
        print(options.write.absolute())
        output.hint("choose this file as interpreter")
    else:
        print(interpreter.of(installation))
    return 0
