"""Build web pages about the containers of sites, from the catalog and the records of installations."""

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.record.lockfile import Record
from easybuild.easyblocks.generic.container.requirements import requirement_text
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS
from easybuild.easyblocks.generic.container.values import format_size, normal_name

from ebsif import filling, version
from ebsif.catalog import merge, selection
from ebsif.catalog.container import Container
from ebsif.catalog.packagenames import OTHER_NAMES
from ebsif.catalog.site import Account, Site
from ebsif.installed import places
from ebsif.jobs import job
from ebsif.publish.pages import layout
from ebsif.publish.pages.entry import Page, kind_of, pages, public
from ebsif.render import easyconfig

# A placeholder that readers replace.
ACCOUNT = "your_account"

# How a page calls the packages of each kind, in its order.
HEADINGS = {
    "image package": "Python packages",
    "package": "User software",
    "Conda package": "Conda packages",
    "system package": "System packages",
}


def build(
    sites: list[tuple[Site, list[Container]]],
    directory: Path,
    records: Optional[Mapping[str, Record]] = None,
    overwrite: bool = False,
) -> None:
    """Build the pages of sites in a directory; files that this function has not written are only lost on request."""
    with filling.filled(directory, "docs", overwrite) as made:
        write_pages([(site, pages(containers, records)) for site, containers in sites], made)


def records_of(containers: Iterable[Container]) -> dict[str, Record]:
    """Return the records of the installed modules that have the images of containers, by module."""
    names = {one.module: one.file_name for one in containers}
    return {
        one.module: one.record
        for one in places.known(places.directories_of_modules())
        if one.module in names and not one.damage and one.record.image.file == names[one.module]
    }


def write_pages(sites: list[tuple[Site, list[Page]]], directory: Path) -> None:
    """Write all pages to a directory."""
    layout.copy_static(directory)
    everything = [page for _, some in sites for page in some]
    names = [site.title for site, _ in sites]
    common = {
        "brand": "Containers on " + " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names),
        "version": version(),
    }
    layout.write(
        directory,
        "index.html",
        "index.html",
        title=common["brand"],
        links=[],
        inside_of=inside_of,
        aliases=json.dumps(aliases(everything), sort_keys=True),
        example=example(everything),
        gpus=json.dumps({site.name: {"title": site.title, "kind": site.gpu} for site, _ in sites}),
        gpu_titles=json.dumps({kind: one.title for kind, one in GPU_KINDS.items()}),
        suggestions=suggestions(everything),
        sites=[(site, *grouped(some)) for site, some in sites],
        **common,
    )
    for _, some in sites:
        for page, near in zip(some, neighbors(some)):
            title = f"{page.short_name} {page.date}".strip()
            layout.write(
                directory,
                page.address,
                "container.html",
                title=title,
                links=[("All containers", "index.html")],
                **values_of(page),
                **near,
                **common,
            )


def newest_first(some: list[Page]) -> list[Page]:
    """Return pages in the order of their containers, newest first."""
    order = {
        container: number for number, container in enumerate(selection.newest_first(page.container for page in some))
    }
    return sorted(some, key=lambda page: order[page.container])


def grouped(some: list[Page]) -> list[list[tuple[str, list[list[Page]]]]]:
    """Return pages by software and kind, newest first: the current containers and the archived ones."""
    found: tuple[dict[str, dict[Any, list[Page]]], ...] = ({}, {})
    for page in newest_first(some):
        kinds = found[bool(page.container.archived)].setdefault(page.container.name, {})
        # earlier containers are folded, but never the recommended one
        others = [badge.name for badge in page.columns[-1]]
        kind = page.short_name, str(page.columns[:-1]), str(others), page.is_recommended
        kinds.setdefault(kind, []).append(page)
    return [[(name, list(kinds.values())) for name, kinds in one.items()] for one in found]


def inside_of(page: Page) -> str:
    """Return the contents of a container for the filter: versions by name, null where they are unknown."""
    return json.dumps({name: version and public(version) for name, version in page.contents.items()})


def aliases(some: list[Page]) -> dict[str, str]:
    """Return the packages of software with other names, which containers of another name have, too."""
    return {
        **OTHER_NAMES,
        **{page.alias: normal_name(page.container.package) for page in some if page.alias and page.container.package},
    }


def example(some: list[Page]) -> list[str]:
    """Return what people can type to find the newest container: torch 2.11, rocm>=7.2."""
    for page in newest_first(some):
        known = [badge for badge in page.badges if badge.version and not page.container.archived]
        if known[1:]:
            return [f"{known[0].name} {known[0].version}", f"{known[1].name}>={known[1].version}"]
    return []


def suggestions(some: list[Page]) -> list[str]:
    """Return up to ten components that some current containers have and others lack, by their number."""
    current = newest_first([page for page in some if not page.container.archived])
    written: dict[str, str] = {}
    number: dict[str, int] = {}
    for page in current:
        packages = [
            name
            for name in map(normal_name, page.container.python_packages or [])
            if name in page.contents and name not in page.labels
        ]
        # of ROCm and Python, each container has some version: people look for the newest
        texts = [badge.label for part in (page.columns[0], page.columns[-1]) for badge in part]
        texts += [f"{badge.label} {badge.version}" for part in page.columns[1:-1] for badge in part if badge.version]
        for name, text in {normal_name(text): text for text in [*packages, *page.container.keywords, *texts]}.items():
            written.setdefault(name, text)
            number[name] = number.get(name, 0) + 1
    often = sorted(number, key=lambda name: (written[name].endswith(tuple("0123456789")), -number[name]))
    return [written[name] for name in often if 1 < number[name] < len(current)][:10]


def neighbors(some: list[Page]) -> list[dict[str, Any]]:
    """
    Return the pages that each page leads to: the previous one, the newest of its kind, and what supersedes it.

    The newest one is left out unless it is newer and not archived.
    """
    by_container = {page.container: page for page in some}
    later: dict[Optional[Container], Page] = {}
    # those of the same kind first
    for page in sorted(some, key=lambda page: bool(page.before and kind_of(page.before) != kind_of(page.container))):
        later.setdefault(page.before, page)

    def newest(page: Page) -> Optional[Page]:
        following = later.get(page.container)
        if not following:
            return None
        return newest(following) or (None if following.container.archived else following)

    def instead(page: Page) -> Optional[Page]:
        name = page.container.superseded_by
        current = [one for one in some if one.container.name == name and not one.container.archived]
        return next(iter(newest_first(current)), None)

    # the message of an archived container may recommend a container of another name
    return [
        {
            "previous": by_container.get(page.before) if page.before else None,
            "instead": instead(page),
            "newest": newest(page) if page.container.replacement in (None, page.container.name) else None,
        }
        for page in some
    ]


def values_of(page: Page) -> dict[str, Any]:
    """Return the values for the template of a container's page, without its neighbors."""
    container = page.container
    parameters = easyconfig.parameters(container)
    return {
        "page": page,
        "container": container,
        "parameters": parameters,
        "facts": facts(page),
        "script": job_script(container),
        "account": ACCOUNT if container.site.scheduler.account.required else None,
        "usage": paragraphs(parameters.get("usage") or ""),
        "inside": [
            ("Main components", page.components),
            *((heading, page.packages.get(kind, {})) for kind, heading in HEADINGS.items()),
        ],
        "requirements": requirements(container),
    }


def facts(page: Page) -> list[tuple[str, Optional[str]]]:
    """Return what is known of an image, each with its name."""
    container = page.container
    size = container.size or page.image.size
    signature = page.signature
    if easyconfig.signature_keys(container):
        rule = f"{container.site.title} accepts only images with a trusted signature."
        signature = f"{signature} {rule}" if signature else rule
    built = f"built from {', '.join(container.definition_files)}" if container.definition_files else None
    return [
        ("History", container.history),
        ("Homepage", container.homepage),
        ("License", page.license),
        ("Image", container.file_name),
        ("Size", format_size(size) if size else None),
        ("SHA256", container.sha256 or page.image.sha256),
        ("Signature", signature),
        ("Source", page.source or built),
    ]


def paragraphs(text: str) -> list[tuple[bool, str]]:
    """Return the paragraphs of a text, each with whether it has indented lines, such as commands."""
    return [
        (bool(re.search("^ ", part, re.MULTILINE)), textwrap.dedent(part))
        for part in re.split(r"\n\s*\n", text.strip("\n"))
        if part
    ]


def requirements(container: Container) -> str:
    """Return the requirements of a container as text, with a heading for each stage."""
    if not container.venv or not container.requirements:
        return ""
    stages = container.stages
    texts = [requirement_text(stage.requirements).strip() for stage in stages]
    if not merge.is_stages(container.requirements):
        return "\n".join(texts)
    return "\n\n".join(
        f"# stage {stage.name or number}\n{text}" for number, (stage, text) in enumerate(zip(stages, texts), 1) if text
    )


def job_script(container: Container) -> str:
    """Return an example of a batch script: a training on two nodes, with a placeholder for the account."""
    site = container.site
    account = ACCOUNT if site.scheduler.account.required else None
    # don't publish the account of the user who builds the pages
    anybody = site.model_copy(update={"scheduler": site.scheduler.model_copy(update={"account": Account()})})
    request = job.JobRequest(module=container.module, command=("train.py",), nodes=2, account=account)
    return job.script(request, anybody)
