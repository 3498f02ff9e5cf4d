"""Build web pages for choosing a container: a table that can be searched, and a page for each.

The pages are static: open index.html in a browser, or copy the directory to a web server. Containers that are installed
here are shown with all their packages, others with the components in the catalog.
"""

from argparse import ArgumentParser, Namespace

from ebsif.commands.options import add_all_sites, add_output, add_settings, settings_of
from ebsif.publish.pages import build
from ebsif.report import output

EXAMPLES = """\
  ebsif docs -o pages                             # the configured site; without one, all sites
  ebsif docs -o pages --site lumi                 # one site
  ebsif docs -o pages --all-sites --catalog our-sites    # all sites, including your own
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_output(parser, "directory for the pages; other files in it stay", required=True)
    add_settings(parser)
    add_all_sites(parser, "build the pages of all sites (default without a site)")


def run(options: Namespace) -> int:
    """Build the pages; return 0."""
    settings = settings_of(options)
    names = [settings.site_name] if settings.site_name and not options.all_sites else settings.site_names()
    sites = [(profile, settings.containers(profile, strict=True)) for profile in map(settings.site, names)]
    number = output.format_count(sum(len(some) for _, some in sites), "container")
    output.hint(f"building pages for {number} of {', '.join(names)} ...")
    records = build.records_of(one for _, some in sites for one in some)
    build.build(sites, options.output, records, options.overwrite)
    if records:
        output.hint(f"with all packages of {output.format_count(len(records), 'installed module')}")
    print(options.output / "index.html")
    return 0
