"""List the containers of the catalogue of a site, newest last as the catalogue has them."""

import json

from ebsif import output
from ebsif.catalogue import selection
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.catalogue.summary import as_data, format_components
from ebsif.table import print_table

EXAMPLES = """\
  ebsif list --site lumi                       all of a site
  ebsif list --site lumi pytorch --has 'vllm>=0.8' --has 'flash-attn'
  ebsif list --all-sites --json                for a program
"""


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    parser.add_argument("names", metavar="NAME", nargs="*", help="NAME or NAME/VERSION (default: all)")
    parser.add_argument("--has", metavar="COMPONENT", action="append", default=[],
                        help="only those that have this, like 'vllm>=0.8'; may be repeated")
    parser.add_argument("--all-sites", action="store_true", help="of every site")
    parser.add_argument("--archived", action="store_true", help="also those that are no longer recommended")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options):
    """Print what is chosen; return 0."""
    settings = read_settings(options)
    wanted = [selection.parse_requirement(text) for text in options.has]
    names = settings.site_names() if options.all_sites else [None]
    containers = settings.containers_of(names)
    if options.names:
        containers = list(dict.fromkeys(one for name in options.names for one in selection.find(containers, name)))
    containers = [one for one in containers if all(selection.satisfies(one, requirement) for requirement in wanted)]
    hidden = 0
    # who names a version means that one
    if not (options.archived or any("/" in name for name in options.names)):
        hidden = sum(1 for one in containers if one.archived)
        containers = [one for one in containers if not one.archived]
    if options.json:
        print(json.dumps([as_data(one) for one in containers], indent=2))
        return 0
    if containers:
        print_table(["container", "python", "in the image", "site"][: 4 if options.all_sites else 3],
                    [[one.module, one.python or "", format_components(one),
                      one.site.name][: 4 if options.all_sites else 3]
                     for one in containers])
    else:
        print("no container matches")
    if hidden:
        output.hint(f"{hidden} more are archived: --archived shows them")
    return 0
