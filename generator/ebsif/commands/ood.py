"""Write an interactive app for Open OnDemand that starts JupyterLab in the container of a module.

Partitions, accounts, GPUs and memory of nodes come from the site profile. The session gets the module's environment
without loading the module, so the app also works with modules that aren't in MODULEPATH.

With --course, write instead the two files that the app 'Jupyter for courses' of LUMI and CSC reads: a module, and the
default resources. They belong in the directory www_lumi_modules (www_SITE_modules) of the project.
"""

from argparse import ArgumentParser, Namespace

from ebsif.catalogue.settings import read_settings
from ebsif.commands.options import add_name, add_output, add_settings
from ebsif.errors import UsageError
from ebsif.installed import places
from ebsif.installed.names import Names
from ebsif.publish.ondemand import writing
from ebsif.report import output

EXAMPLES = """\
  ebsif ood PyTorch/2.7.1-... --site lumi -o ~/ondemand/dev/jupyter-pytorch
  ebsif ood PyTorch/2.7.1-... --site lumi --course deep-learning \\
      --repository https://github.com/csc-training/intro-to-dl.git \\
      -o /projappl/project_465000001/www_lumi_modules
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_name(parser, "module", "the module", only_installed=True)
    add_output(parser, "directory for the app, or for the files of the course", required=True)
    parser.add_argument("--cluster", metavar="ID",
                        help="Open OnDemand's name of the cluster, that of a file in /etc/ood/config/clusters.d "
                             "(default: name of the site)")
    parser.add_argument("--course", metavar="NAME", help="write the files of a course with this name")
    parser.add_argument("--repository", metavar="URL", help="Git repository with the notebooks of the course")
    parser.add_argument("--ref", help="branch, tag or commit of the repository (default: its default branch)")
    parser.add_argument("--notebook", metavar="PATH", help="notebook in the repository that opens first")
    add_settings(parser)


def run(options: Namespace) -> int:
    """Write the files; return 0."""
    if not options.course and (options.repository or options.ref or options.notebook):
        raise UsageError("--repository, --ref and --notebook are for a course: name it with --course")
    if options.course and options.cluster:
        raise UsageError("--cluster is for an app of its own: the files of a course don't name a cluster")
    site = read_settings(options).site()
    found = places.with_module_file(Names(options).installation(options.module))
    if options.course:
        course = writing.Course(options.course, options.repository, options.ref, options.notebook)
        for path in writing.write_course(found, site, course, options.output, options.overwrite):
            print(path)
        output.hint("members of the project see the course if they can read these files and the module; choose Help, "
                    "Restart Web Server in the web interface if it isn't listed")
    else:
        writing.write_app(found, site, options.cluster, options.output, options.overwrite)
        print(options.output)
        output.hint("Open OnDemand lists an app in ~/ondemand/dev for its owner (My Sandbox Apps), and one in "
                    "/var/www/ood/apps/sys for everybody")
    return 0
