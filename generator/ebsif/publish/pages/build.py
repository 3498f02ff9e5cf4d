"""Build web pages about the containers of sites, from the catalogue and the records of installations."""

import json
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.lockfile import Record
from easybuild.easyblocks.generic.container.requirements import requirement_text, stages_of
from easybuild.easyblocks.generic.container.texts import format_size, normal_name

from ebsif import files, version
from ebsif.catalogue import selection
from ebsif.catalogue.container import Container
from ebsif.catalogue.records import as_parameter
from ebsif.catalogue.site import Account, Site
from ebsif.installed import places
from ebsif.jobs import job
from ebsif.publish.pages import layout
from ebsif.publish.pages.entry import Page, kind_of, pages, public
from ebsif.render import easyconfig
from ebsif.report.output import format_count

BRAND = "Containers"


def build(sites: list[tuple[Site, list[Container]]], directory: Path,
          records: Optional[Mapping[str, Record]] = None, overwrite: bool = False) -> None:
    """Build the pages of sites in a directory; files that this function has not written are only lost on request."""
    with files.filled(directory, "docs", overwrite) as made:
        write_pages([(site, pages(containers, records)) for site, containers in sites], made)


def records_of(containers: Iterable[Container]) -> dict[str, Record]:
    """Return the records of the installed modules that have the images of containers, by module."""
    names = {one.module: one.file_name for one in containers}
    return {one.module: one.record for one in places.known(places.directories_of_modules())
            if one.module in names and not one.damage and one.record.image.file == names[one.module]}


def write_pages(sites: list[tuple[Site, list[Page]]], directory: Path) -> None:
    """Write all pages to a directory."""
    layout.copy_static(directory)
    common = {"brand": BRAND, "version": version(), "name_of": name_of,
              "links": [(f"About {name_of(site)}", f"{site.name}/index.html") for site, _ in sites]}
    everything = [page for _, some in sites for page in some]
    versions = versions_of(everything)
    layout.write(directory, "index.html", "index.html", title=BRAND, number=counted(everything),
                 versions=json.dumps(versions), inside=lambda page: json.dumps(inside_of(page, versions)),
                 aliases=json.dumps({page.alias: normal_name(page.container.package) for page in everything
                                     if page.alias and page.container.package}, sort_keys=True),
                 sites=[(site, *grouped(some)) for site, some in sites], **common)
    for site, some in sites:
        layout.write(directory, f"{site.name}/index.html", "site.html", title=f"Containers on {name_of(site)}",
                     site=site, number=counted(some), **common)
        for page, near in zip(some, neighbors(some)):
            layout.write(directory, page.address, "container.html", title=page.short_name, **values_of(page), **near,
                         **common)


def name_of(site: Site) -> str:
    """Return the name of a site as its description begins, for people: LUMI, whose name is lumi."""
    written = re.match(rf"{re.escape(site.name)}\b", site.description, re.IGNORECASE)
    return written[0] if written else site.name


def counted(some: list[Page]) -> str:
    """Return how many current and archived containers pages are about: "43 containers, and 2 archived"."""
    archived = sum(bool(page.container.archived) for page in some)
    return format_count(len(some) - archived, "container") + (f", and {archived} archived" if archived else "")


def grouped(some: list[Page]) -> list[list[tuple[str, list[Page]]]]:
    """Return pages by software, newest first: the current containers and the archived ones."""
    newest = sorted(some, key=lambda page: selection.date_key(page.container), reverse=True)
    order = list(dict.fromkeys(page.container.name for page in newest))
    by_name = sorted(newest, key=lambda page: order.index(page.container.name))
    return [[(name, list(group)) for name, group in groupby(
        (page for page in by_name if bool(page.container.archived) is archived), lambda page: page.container.name)]
        for archived in (False, True)]


def versions_of(some: list[Page]) -> dict[str, list[str]]:
    """Return all versions of each component, oldest first, without what identifies builds."""
    found: dict[str, set[str]] = {}
    for page in some:
        for name, one in page.contents.items():
            found.setdefault(name, set()).update([public(one)] if one else [])
    return {name: sorted(found[name], key=selection.version_key) for name in sorted(found)}


def inside_of(page: Page, versions: dict[str, list[str]]) -> dict[str, Optional[int]]:
    """Return the contents of a container: the place of each version in the list of its component, None if unknown."""
    return {name: versions[name].index(public(one)) if one else None for name, one in page.contents.items()}


def neighbors(some: list[Page]) -> list[dict[str, Any]]:
    """Return the previous page and the next one, for each page."""
    by_container = {page.container: page for page in some}
    newer: dict[Optional[Container], Page] = {}
    # those of the same kind first
    for page in sorted(some, key=lambda page: bool(page.before and kind_of(page.before) != kind_of(page.container))):
        newer.setdefault(page.before, page)
    return [{"previous": by_container.get(page.before) if page.before else None, "newer": newer.get(page.container)}
            for page in some]


def values_of(page: Page) -> dict[str, Any]:
    """Return the values for the template of a container's page, without its neighbors."""
    container = page.container
    size = container.size or page.image.size
    return {
        "page": page, "container": container, "parameters": easyconfig.parameters(container),
        "script": job_script(container), "size": format_size(size) if size else None,
        "inside": [("component", page.components), *page.packages.items()],
        "sha256": container.sha256 or page.image.sha256,
        "requirements": requirements(container),
    }


def requirements(container: Container) -> str:
    """Return the requirements of a container as text, with a heading for each stage."""
    if not container.venv or not container.requirements:
        return ""
    stages = stages_of(as_parameter(container.requirements))
    texts = [requirement_text(stage.get("requirements")).strip() for stage in stages]
    if not container.stages:
        return "\n".join(texts)
    return "\n\n".join(f"# stage {stage.get('name', number)}\n{text}".rstrip()
                       for number, (stage, text) in enumerate(zip(stages, texts), 1))


def job_script(container: Container) -> str:
    """Return an example of a batch script: a training on two nodes, with a placeholder for the account."""
    site = container.site
    account = "your_account" if site.scheduler.account.required else None
    # don't publish the account of the user who builds the pages
    anybody = site.model_copy(update={"scheduler": site.scheduler.model_copy(update={"account": Account()})})
    request = job.Request(module=container.module, command=("train.py",), nodes=2, account=account)
    return job.script(request, anybody)
