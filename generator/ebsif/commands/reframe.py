"""Write checks for ReFrame: do the modules in the catalog work on the nodes of the site?

For each container that isn't archived, they check four things: Python imports the packages, in the recorded versions;
commands and wrappers run in the image; each rank on a node has a GPU of its own; ranks on two nodes do an all-reduce,
started with the module's run script (with GPUs, the bandwidth is reported). The modules must be installed and on
MODULEPATH.

Run the command again when the catalog has changed. It doesn't need ReFrame.
"""

from argparse import ArgumentParser, Namespace

from ebsif.commands.options import add_names, add_output, add_settings, named, settings_of
from ebsif.publish.reframe import writing
from ebsif.report import output

EXAMPLES = """\
  ebsif reframe --site lumi -o reframe
  reframe -C reframe/settings.py -c reframe/checks.py -r         # all checks
  reframe -C reframe/settings.py -c reframe/checks.py -r -n 'AllReduce.*torch'
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_names(parser, "all that aren't archived")
    add_output(parser, "directory for the checks and ReFrame's configuration", required=True)
    parser.add_argument(
        "--partition",
        metavar="NAME",
        action="append",
        default=[],
        help="a partition on which to run them (repeatable; default: the site's default partition)",
    )
    add_settings(parser)


def run(options: Namespace) -> int:
    """Write the checks; return 0."""
    settings = settings_of(options)
    site = settings.site()
    chosen = settings.containers(site, strict=True)
    if options.names:
        chosen = named(options, chosen, options.names)
    number = writing.write(site, chosen, options.partition, options.output, options.overwrite)
    output.hint(
        f"checks of {output.format_count(number, 'module')} in {options.output}. To run them where jobs are "
        f"submitted:\nreframe -C {options.output}/settings.py -c {options.output}/checks.py -r"
    )
    if not writing.is_available():
        output.note("there is no reframe on PATH: load the site's module, or pip install reframe-hpc")
    return 0
