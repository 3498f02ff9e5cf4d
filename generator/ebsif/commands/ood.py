"""Write an interactive app for Open OnDemand that starts JupyterLab in the container of a module.

Partitions, accounts, GPUs and memory of nodes come from the site profile. The session gets the module's environment
without loading the module, so the app also works with modules that aren't in MODULEPATH.
"""

from argparse import ArgumentParser, Namespace

from ebsif.commands.options import add_name, add_output, add_settings, names_of, settings_of
from ebsif.installed import places
from ebsif.publish.ondemand import writing
from ebsif.report import output

EXAMPLES = """\
  ebsif ood PyTorch/2.7.1-... --site lumi -o ~/ondemand/dev/jupyter-pytorch
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_name(parser, "module", "the module", only_installed=True)
    add_output(parser, "directory for the app", required=True)
    parser.add_argument(
        "--cluster",
        metavar="ID",
        help="name of the cluster (of its file in /etc/ood/config/clusters.d; default: name of the site)",
    )
    add_settings(parser)


def run(options: Namespace) -> int:
    """Write the files; return 0."""
    site = settings_of(options).site()
    installation = places.with_module_file(names_of(options).installation(options.module))
    writing.write_app(installation, site, options.cluster, options.output, options.overwrite)
    print(options.output)
    output.hint(
        "Open OnDemand lists an app in ~/ondemand/dev for its owner (My Sandbox Apps), and one in "
        "/var/www/ood/apps/sys for everybody"
    )
    return 0
