"""Print the command line of the runtime that does what the module of a container does, as loaded here and now."""

from ebsif.installed import runtimecommand

EXAMPLES = """\
  ebsif command PyTorch/2.13.0-cpu-python-3.11-singularity-20261121     the line to put before a command
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("module", metavar="MODULE", help="name of the module, as for `module load`")


def run(options):
    """Print the command line that does the same as a module; return 0."""
    print(runtimecommand.of_module(options.module))
    return 0
