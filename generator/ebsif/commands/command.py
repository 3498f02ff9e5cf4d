"""Print the command line of the container runtime that is equivalent to loading a module here and now."""

from ebsif.installed import places, runtimecommand
from ebsif.installed.names import Names, add_name_argument

EXAMPLES = """\
  # print the words to put before a command that runs in the container
  ebsif command PyTorch/2.13.0-cpu-python-3.11-singularity-20261121
  ebsif command mine
"""


def configure(parser):
    """Add the arguments."""
    add_name_argument(parser, "module", "the module", only_installed=True)


def run(options):
    """Print the command line that is equivalent to a module; return 0."""
    runtimecommand.check_modules_tool()
    found = places.with_module_file(Names(options).installation(options.module))
    print(runtimecommand.command_line(found.module, found.use))
    return 0
