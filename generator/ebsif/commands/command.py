"""Print the command line of the container runtime that is equivalent to loading a module here and now."""

from ebsif.installed import runtimecommand

EXAMPLES = """\
  # print the words to put before a command that runs in the container
  ebsif command PyTorch/2.13.0-cpu-python-3.11-singularity-20261121
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("module", metavar="MODULE", help="name of the module, as for `module load`")


def run(options):
    """Print the command line that is equivalent to a module; return 0."""
    print(runtimecommand.command_line(options.module))
    return 0
