"""List the containers in the catalogue of a site, newest first, and which of them are installed here.

With --mine, list the container modules that you have installed, newest first, with what they extend, the space that
removing them would free, and their state.
"""

import dataclasses
import json

from easybuild.easyblocks.generic.container.texts import format_size

from ebsif import modulestool
from ebsif.catalogue import selection
from ebsif.catalogue.settings import read_settings
from ebsif.catalogue.summary import as_data, format_components
from ebsif.commands.options import add_all_sites, add_json, add_names, add_settings, complete_components
from ebsif.errors import FOUND, UsageError
from ebsif.report import output
from ebsif.report.table import is_too_wide, print_columns, print_table

EXAMPLES = """\
  ebsif list --site lumi
  ebsif list --site lumi pytorch --has 'vllm>=0.8' --has 'flash-attn'
  ebsif list --all-sites --json
  ebsif list --mine
"""


def configure(parser):
    """Add the arguments."""
    add_settings(parser)
    add_names(parser)
    parser.add_argument("--mine", action="store_true", help="list the modules that you have installed")
    parser.add_argument("--has", metavar="COMPONENT", action="append", default=[],
                        help="list only containers with this component, such as 'vllm>=0.8', or keyword (repeatable)"
                        ).completer = complete_components
    add_all_sites(parser, "list the containers of all sites")
    parser.add_argument("--archived", action="store_true", help="also list containers that are no longer recommended")
    add_json(parser)


def run(options):
    """Print the matching containers; return 0, or 1 if none matches."""
    settings = read_settings(options)
    if options.mine:
        return print_mine(options, settings)
    wanted = [selection.parse_requirement(text) for text in options.has]
    names = settings.site_names() if options.all_sites else [None]
    containers = settings.containers_of(names)
    if options.names:
        containers = list(dict.fromkeys(one for name in options.names for one in selection.find(containers, name)))
    containers = [one for one in containers if all(
        selection.satisfies(one, requirement) or selection.has_keyword(one, requirement) for requirement in wanted)]
    hidden = 0
    # a version that is named is listed even if it is archived
    if not (options.archived or any("/" in name for name in options.names)):
        hidden = sum(1 for one in containers if one.archived)
        containers = [one for one in containers if not one.archived]
    containers = selection.newest_first(containers)
    installed = modulestool.have_module_files(one.module for one in containers)
    if options.json:
        print(json.dumps([{**as_data(one), "installed": one.module in installed} for one in containers], indent=2))
    elif containers:
        print_containers(containers, installed, options.all_sites)
    is_searched = bool(wanted or options.names or hidden)
    if not containers:
        output.note("no container matches" if is_searched else
                    "there are no containers yet: add an image with `ebsif add`")
    if hidden:
        output.hint(f"{output.format_count(hidden, 'archived container')} not shown (use --archived)")
    return FOUND if is_searched and not containers else 0


def print_containers(containers, installed, with_site):
    """Print containers in a table; at a narrow terminal, what is in each of them in lines below its name."""
    number = 5 if with_site else 4
    headings = ["container", "installed", "python", "in the image", "site"][:number]
    cells = [[one.module, "here" if one.module in installed else "", one.python or "", format_components(one),
              one.site.name][:number] for one in containers]
    if not is_too_wide(headings, cells, wrapped=4, least=40):
        print_table(headings, cells)
        return
    for module, here, python, inside, *site in cells:
        print(output.escape(module))
        texts = [here and "installed here", *(f"site {name}" for name in site), f"python {python}" if python else "",
                 inside]
        output.print_wrapped(", ".join(filter(None, texts)), "    ")


def print_mine(options, settings):
    """Print the installations of this account; return 0, or 1 if none has the names."""
    if options.has or options.all_sites or options.archived:
        raise UsageError("--mine lists installed modules: --has, --all-sites and --archived are for the catalogue")
    from ebsif.installed import report

    rows = report.mine(settings.containers(settings.site()), options.names)
    if options.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    elif rows:
        headings = ["module", "extends", "size", "date", "state"]
        cells = [[row.module, row.base or "", format_size(row.size), row.date, ", ".join(row.state)] for row in rows]
        if is_too_wide(headings, cells):
            print_columns(["module", "size", "date"], tree(report.as_tree(rows)))
        else:
            print_table(headings, cells)
    if not rows:
        output.note("you have installed no container module" + (" of that name" if options.names else ""))
    return FOUND if options.names and not rows else 0


def tree(labeled):
    """Return the cells of a narrow table: modules below what they extend, the state in a line of its own."""
    cells = []
    for label, row in labeled:
        cells.append([label, format_size(row.size), row.date] if row else [label, "", ""])
        if row and row.state:
            cells.append([f"      {', '.join(row.state)}", "", ""])
    return cells
