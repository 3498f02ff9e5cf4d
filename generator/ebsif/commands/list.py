"""List the containers in the catalog of a site, newest first, and which of them are installed here.

With --mine, list the container modules that you have installed, the last one first, with what they extend, the space
that removing them would free, and their state. Type the names in the list; --json has the whole ones, too.
"""

import dataclasses
import json
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Collection
from typing import TYPE_CHECKING

from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS
from easybuild.easyblocks.generic.container.values import format_size, normal_name

from ebsif import modulestool
from ebsif.catalog import selection
from ebsif.catalog.container import Container
from ebsif.catalog.settings import Settings
from ebsif.catalog.summary import as_data, format_components
from ebsif.commands.options import (
    add_all_sites,
    add_json,
    add_names,
    add_settings,
    complete_components,
    named,
    offer,
    settings_of,
)
from ebsif.errors import FOUND, UsageError
from ebsif.packages.condanames import pip_name_of
from ebsif.report import output
from ebsif.report.table import print_table
from ebsif.text import did_you_mean

# packaging is imported only where it is needed
if TYPE_CHECKING:
    from packaging.requirements import Requirement

EXAMPLES = """\
  ebsif list --site lumi
  ebsif list --site lumi pytorch --has 'vllm>=0.8' --has 'flash-attn'
  ebsif list --all-sites --json
  ebsif list --mine
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    add_names(parser)
    parser.add_argument("--mine", action="store_true", help="list the modules that you have installed")
    offer(
        complete_components,
        parser.add_argument(
            "--has",
            metavar="COMPONENT",
            action="append",
            default=[],
            help="list only containers with this component, such as 'vllm>=0.8', or keyword (repeatable)",
        ),
    )
    add_all_sites(parser, "list the containers of all sites")
    parser.add_argument("--archived", action="store_true", help="also list containers that are no longer recommended")
    add_json(parser)


def run(options: Namespace) -> int:
    """Print the matching containers; return 0, or 1 if none matches."""
    settings = settings_of(options)
    if options.mine:
        return print_mine(options, settings)
    wanted = [selection.parse_requirement(text) for text in options.has]
    names = settings.site_names() if options.all_sites else [None]
    containers = settings.containers_of(names)
    sure, unsure = selection.having(containers, wanted)
    everything = containers
    if options.names:
        containers = named(options, containers, options.names)
    containers, unsure = ([one for one in containers if one in some] for some in (sure, unsure))
    hidden = 0
    # a version that is named is listed even if it is archived
    if not (options.archived or any("/" in name for name in options.names)):
        hidden = sum(1 for one in containers if one.archived)
        containers, unsure = ([one for one in some if not one.archived] for some in (containers, unsure))
    containers = selection.newest_first(containers)
    there = modulestool.have_module_files(name for one in containers for name in one.modules)
    installed = {one for one in containers if not there.isdisjoint(one.modules)}
    typed = names_to_type(installed)
    if options.json:
        print(json.dumps([{**as_data(one), "installed": one in installed} for one in containers], indent=2))
    elif containers:
        number = 5 if options.all_sites else 4
        print_table(
            ["container", "installed", "python", "in the image", "site"][:number],
            [
                [
                    typed.get(one, one.module),
                    "here" if one in installed else "",
                    one.python or "",
                    ", ".join(filter(None, [format_components(one), *keywords(one, wanted)])),
                    one.site.name,
                ][:number]
                for one in containers
            ],
        )
    is_searched = bool(wanted or options.names or hidden)
    if not containers:
        output.note(
            none_has(options.has, wanted, everything)
            if wanted
            else "no container matches"
            if is_searched
            else "there are no containers yet: add an image with `ebsif add`"
        )
    if unsure:
        words = [word for one in wanted for word in ("--has", one.name)]
        output.note(
            f"{len(unsure)} more have {', '.join(one.name for one in wanted)}, version not recorded: "
            f"ebsif list {shlex.join(words)}"
        )
    if hidden:
        output.hint(f"{output.format_count(hidden, 'archived container')} not shown (use --archived)")
    if not (is_searched or options.json) and modulestool.has_own_extension():
        output.hint("your own extensions: `ebsif list --mine`")
    return FOUND if is_searched and not containers else 0


def names_to_type(containers: Collection[Container]) -> dict[Container, str]:
    """Return the shortest names that installed containers have here, for `module load`, too (N-01)."""
    if not containers:
        return {}
    from ebsif.installed import places

    # once, because paths are slow on a parallel file system
    searched = modulestool.directories_of_modules()
    found = ((one, places.of_container(one, searched)) for one in containers)
    return {one: places.short(installation, searched=searched) for one, installation in found if installation}


def none_has(texts: list[str], wanted: list["Requirement"], containers: list[Container]) -> str:
    """Return what to say if no container has what was asked for: similar words, or how to add a Python package."""
    sites = {one.site.title: one.site.gpu for one in containers}
    asked = [one.name.lower() for one in wanted if one.name.lower() in GPU_KINDS]
    # as the web pages say it
    if asked and sites and not {"none", asked[0]} & set(sites.values()):
        here = " and ".join(GPU_KINDS[kind].title for kind in dict.fromkeys(sites.values()))
        return f"the GPUs of {', '.join(sites)} don't use {GPU_KINDS[asked[0]].title}: the containers have {here}"
    known = {word for one in containers for word in (*one.versions, *map(normal_name, one.keywords))}
    names = [name for one in wanted if (name := normal_name(one.name)) not in known and not pip_name_of(name)]
    similar = [did_you_mean(name, known) for name in names]
    advice = (
        "; the catalog lists the main components only (`ebsif installed --has NAME` searches installed modules, "
        "`ebsif extend CONTAINER --add NAME` adds a Python package)"
    )
    return f"no container is known to have {', '.join(texts)}{next(filter(None, similar), advice)}"


def keywords(container: Container, wanted: list["Requirement"]) -> list[str]:
    """Return what was asked for and the container has in a version that isn't recorded."""
    unknown = {normal_name(one.name) for one in wanted}.difference(container.versions)
    return [word for word in container.keywords if normal_name(word) in unknown]


def print_mine(options: Namespace, settings: Settings) -> int:
    """Print the installations of this account; return 0, or 1 if none has the names."""
    if options.has or options.all_sites or options.archived:
        raise UsageError("--mine lists installed modules: --has, --all-sites and --archived are for the catalog")
    from ebsif.installed import report

    rows = report.mine(settings.containers(settings.site()), options.names)
    if options.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    elif rows:
        print_table(
            ["name", "extends", "size", "date", "state"],
            [[row.name, row.extends or "", format_size(row.size), row.date, ", ".join(row.state)] for row in rows],
        )
    else:
        output.note("you have installed no container module" + (" of that name" if options.names else ""))
    return FOUND if options.names and not rows else 0
