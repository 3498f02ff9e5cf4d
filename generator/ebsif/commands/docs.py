"""Build web pages for choosing a container: one page for each, a search, and a table that can be filtered by component.

The pages are static: open DIR/index.html in a browser, or copy DIR to a web server.
"""

from pathlib import Path

from ebsif import output
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.pages import build

EXAMPLES = """\
  ebsif docs public                            # all sites
  ebsif docs public --site lumi                # one site
  ebsif docs public --catalogue our-sites      # all sites, including your own
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("directory", metavar="DIR", type=Path,
                        help="output directory (created, or replaced if it was made by ebsif docs)")
    add_settings_arguments(parser)


def run(options):
    """Build the pages; return 0."""
    settings = read_settings(options)
    names = [options.site] if options.site else settings.site_names()
    sites = [(profile, settings.containers(profile)) for profile in map(settings.site, names)]
    output.hint(f"building pages for {sum(len(some) for _, some in sites)} containers of {', '.join(names)} ...")
    build.build(sites, options.directory)
    output.hint(f"open {options.directory / 'index.html'}")
    return 0
