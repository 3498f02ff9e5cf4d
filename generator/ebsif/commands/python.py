"""Print the path of a Python interpreter that runs in the container of a module, for VS Code, PyCharm and others.

The interpreter needs no loaded module: the file is enough. It uses the image, the user software, the binds and the
variables that loading the module here would give.

With --write, write a short file that starts it, which also knows the user software (EBSIF_USER_SOFTWARE) and the
environment of make-venv that are in use now.
"""

from pathlib import Path

from ebsif.installed import interpreter
from ebsif.installed.names import Names, add_name_argument
from ebsif.report import output

EXAMPLES = """\
  ebsif python PyTorch/2.7.1-...
  $(ebsif python PyTorch/2.7.1-...) -m pip list
  ebsif python PyTorch/2.7.1-... --write ~/.local/bin/python-torch
"""


def configure(parser):
    """Add the arguments."""
    add_name_argument(parser, "module", "the module", metavar="MODULE", only_installed=True)
    parser.add_argument("--write", metavar="PATH", type=Path, help="write a file that starts the interpreter")


def run(options):
    """Print or write the interpreter; return 0."""
    found = Names(options).installation(options.module)
    if options.write:
        interpreter.write(found, options.write)
        output.hint(f"wrote {options.write.absolute()}: choose it as interpreter")
    else:
        print(interpreter.of(found))
    return 0
