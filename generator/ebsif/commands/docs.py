"""Build web pages for choosing a container: a table that can be searched, and a page for each.

The pages are static: open index.html in a browser, or copy the directory to a web server. Containers that are installed
here are shown with all their packages, others with what the catalogue says.
"""

import argparse
from pathlib import Path

from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.commands.options import add_overwrite
from ebsif.errors import UsageError
from ebsif.publish.pages import build
from ebsif.report import output

EXAMPLES = """\
  ebsif docs -o pages                             # the configured site; without one, all sites
  ebsif docs -o pages --site lumi                 # one site
  ebsif docs -o pages --all-sites --catalogue our-sites    # all sites, including your own
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("-o", "--output", metavar="DIRECTORY", type=Path,
                        help="directory for the pages; other files in it stay")
    add_overwrite(parser)
    # the earlier way to name it
    parser.add_argument("earlier", metavar="DIRECTORY", type=Path, nargs="?", help=argparse.SUPPRESS)
    add_settings_arguments(parser)
    parser.add_argument("--all-sites", action="store_true",
                        help="build the pages of all sites (default without a site)")


def run(options):
    """Build the pages; return 0."""
    if options.earlier:
        output.note("the directory is now named with -o DIRECTORY")
    directory = options.output or options.earlier
    if not directory:
        raise UsageError("name a directory for the pages: -o DIRECTORY")
    settings = read_settings(options)
    names = [settings.site_name] if settings.site_name and not options.all_sites else settings.site_names()
    sites = [(profile, settings.containers(profile, strict=True)) for profile in map(settings.site, names)]
    number = output.format_count(sum(len(some) for _, some in sites), "container")
    output.hint(f"building pages for {number} of {', '.join(names)} ...")
    records = build.records_of(one for _, some in sites for one in some)
    build.build(sites, directory, records, options.overwrite)
    if records:
        output.hint(f"with all packages of {output.format_count(len(records), 'installed module')}")
    output.hint(f"open {directory / 'index.html'}")
    return 0
