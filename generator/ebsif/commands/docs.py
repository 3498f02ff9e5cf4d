"""Make browsable pages about the containers of sites: a page for each, a search, a table to choose by what is inside.

What is made needs no server: open DIR/index.html, or copy DIR to where your web pages are.
"""

from pathlib import Path

from ebsif import output
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.pages import build

EXAMPLES = """\
  ebsif docs public                            all sites there are
  ebsif docs public --site lumi                one
  ebsif docs public --catalogue our-sites      with your own
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="made, or replaced if it was made by this")
    add_settings_arguments(parser)


def run(options):
    """Make the pages; return 0."""
    settings = read_settings(options)
    names = [options.site] if options.site else settings.site_names()
    sites = [(profile, settings.containers(profile)) for profile in map(settings.site, names)]
    output.hint(f"making pages about {sum(len(some) for _, some in sites)} containers of {', '.join(names)} ...")
    build.build(sites, options.directory)
    output.hint(f"open {options.directory / 'index.html'}")
    return 0
