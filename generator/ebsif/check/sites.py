"""Check the catalogs of sites and their easyconfigs; each problem becomes a finding with file and line."""

import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Optional, Union

from ebsif.catalog import merge, reading, site
from ebsif.catalog.container import CatalogError, Container, ContainerRecordError
from ebsif.catalog.selection import duplicates, repeated_aliases, repeated_defaults
from ebsif.catalog.settings import Settings
from ebsif.catalog.site import Site
from ebsif.catalog.yamlerrors import Problem
from ebsif.check.contents import check_contents, inspect
from ebsif.check.easyconfigs import EasyconfigReader, check_style
from ebsif.check.records import (
    Creator,
    check_record,
    check_requirements,
    check_reviews,
    check_rocm,
    is_here,
    missing_in,
)
from ebsif.errors import EbsifError
from ebsif.images import inspection
from ebsif.render import easyconfig, rendering
from ebsif.report.findings import ERROR, NOTE, WARNING, Finding, findings_of
from ebsif.report.output import format_count

# Easyconfigs with more lines than this are hard to read; those with stages or with many binds may be longer.
LONG = 60

# If more easyconfigs than this are missing, one finding says so, not one for each.
FEW = 5

# How messages of the easyblocks name a parameter; the field of the record has the same name.
PARAMETER = re.compile(r"Easyconfig parameter '(\w+)'")


def check_sites(
    settings: Settings, names: Iterable[Optional[str]], quick: bool = False, images: bool = False, deep: bool = False
) -> Iterator[Union[Container, Finding]]:
    """Yield each container of sites (None: the chosen one) and the findings on them; see `check`."""
    for name in names:
        containers = []
        try:
            profile = settings.site(name)
            chains = reading.chains(*settings.directories_of(profile))
        except EbsifError as error:
            yield from findings_of(error)
            continue
        problems: list[Problem] = []
        for level in site.chain(profile.name, settings.directories):
            yield from check_reviews(level.path)
        if not chains:
            yield Finding(
                WARNING,
                profile.name,
                "the site has no containers yet: add an image with "
                + shlex.join(["ebsif", "add", "IMAGE.sif", *settings.options_for(profile.name, True)]),
            )
        for chain in chains:
            containers += reading.read_file(chain[0], profile, *chain[1:], problems=problems)
            for path in chain:
                yield from check_reviews(path)
        problems += reading.unread(*settings.directories_of(profile))
        for path, line, text in problems:
            yield Finding(ERROR, "", text, str(path), line or 1)
        yield from containers
        options = settings.options_for(profile.name, True)
        yield from check(
            containers, settings.output_of(profile.name), profile, options, not problems, quick, images, deep
        )


def check(
    containers: Sequence[Container],
    output: Path,
    profile: Site,
    options: Sequence[str] = (),
    is_complete: bool = True,
    quick: bool = False,
    images: bool = False,
    deep: bool = False,
) -> Iterator[Finding]:
    """
    Yield findings on all containers of a site and their easyconfigs, which are in a directory.

    `options` name site, catalog and directory, for messages. Easyconfigs without a record are reported if all records
    could be read (`is_complete`). `quick` leaves out what needs EasyBuild: parameters, style. With `images` their
    checksums are compared, with `deep` their contents.
    """
    reader = None if quick else EasyconfigReader()
    digest = cache(inspection.sha256) if images else None
    inspector = cache(inspect) if deep else None
    wanted, valid = [], []
    if images or deep:
        yield from not_examined(containers, images)
    command = shlex.join(["ebsif", "render", *options])
    missing = [one for one in containers if is_missing(one, output)]
    in_one = len(missing) > FEW
    if in_one:
        which = (
            "no container has"
            if len(missing) == len(containers)
            else f"{len(missing)} of the {len(containers)} containers don't have"
        )
        yield Finding(
            ERROR, profile.name, f"{which} an easyconfig in {output} yet: run {command}", str(missing[0].path.parent), 0
        )
    yield from repetitions(containers)
    for container in containers:
        finding = finding_on(container)
        try:
            yield from check_record(container, finding, digest)
            if inspector:
                yield from check_contents(container, finding, inspector)
            text = easyconfig.render(container)
            path = rendering.place(container, output)
        except CatalogError as error:
            yield finding(ERROR, error.text if isinstance(error, ContainerRecordError) else str(error))
            # its easyconfig is unknown, so no easyconfig can be reported as obsolete
            is_complete = False
            continue
        wanted.append(path)
        on_record = [*check_requirements(container, finding), *check_rocm(container, finding)]
        on_file = list(check_easyconfig(container, path, text, finding, command)) if path.is_file() else []
        if container in missing and not in_one:
            on_file.append(finding(ERROR, f"{path} does not exist: run {command}"))
        yield from on_record + on_file
        if container not in missing and not any(one.level == ERROR for one in on_file):
            valid.append(path)
        if reader:
            known = {one.text for one in on_record}
            yield from (finding(ERROR, problem) for problem in reader.problems(container, text) if problem not in known)
    if is_complete:
        places = {path.name: path for path in wanted}
        for path in rendering.left_over(wanted, output, profile):
            place = places.get(path.name)
            text = (
                f"its place is {place.parent} now: run {command}, which moves it"
                if place
                else "is no longer in the catalog: remove it"
            )
            yield Finding(ERROR, path.stem, text, str(path))
    if reader and valid:
        yield from check_style(valid)


def repetitions(containers: Sequence[Container]) -> Iterator[Finding]:
    """Yield a finding for each container with a name of another one, or that is a second default."""
    for container, other in duplicates(containers).items():
        yield finding_on(container)(
            ERROR,
            f"another container has the same name and suffix ({other.place}): give one "
            "of them a 'label', because installing one would replace the other",
        )
    for container, alias, other in repeated_aliases(containers):
        yield finding_on(container)(
            ERROR,
            f"alias '{alias}' is also a name of {other.module} ({other.place}): the one "
            "that is installed last would have it, so remove it from one of them",
        )
    for container, other in repeated_defaults(containers).items():
        yield finding_on(container)(
            ERROR, f"'default' is true here and in {other.place}, so '{container.name}' is ambiguous: keep one of them"
        )


def not_examined(containers: Iterable[Container], images: bool) -> Iterator[Finding]:
    """Yield a note for each file on the containers whose images aren't here, and not reported as missing either."""
    of_file: dict[Path, list[str]] = {}
    for container in containers:
        with contextlib.suppress(CatalogError):  # reported with the other problems of the record
            if not is_here(container) and not missing_in(container, images):
                of_file.setdefault(container.path, []).append(container.module)
    for path, modules in of_file.items():
        yield Finding(
            NOTE,
            "",
            f"{format_count(len(modules), 'container')} not examined, because the image is in no "
            f"image directory here: {', '.join(modules)}",
            str(path),
            0,
        )


def finding_on(container: Container) -> Creator:
    """Return a function that creates a Finding on a container from level and text, with the line of its parameter."""

    def finding(level: str, text: str) -> Finding:
        parameter = PARAMETER.match(text)
        return Finding(
            level,
            container.module_or_version,
            text,
            str(container.path),
            container.line_of(parameter and parameter.group(1)),
        )

    return finding


def is_missing(container: Container, output: Path) -> bool:
    """Return whether the easyconfig of a container should be in a directory, and isn't."""
    # `ebsif install` renders those of one's own records
    if container.is_own:
        return False
    try:
        return not rendering.place(container, output).is_file()
    except CatalogError:
        # reported with the other problems of the record
        return False


def check_easyconfig(container: Container, path: Path, text: str, finding: Creator, command: str) -> Iterator[Finding]:
    """Yield findings on the easyconfig at a path, which should have this text; `command` renders it."""
    try:
        there = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        yield finding(ERROR, f"{path} can't be read: {error}")
        return
    if there != text:
        yield finding(ERROR, f"{path} differs from the catalog: run {command}, or change the catalog")
    if len(text.splitlines()) > LONG and not (
        merge.is_stages(container.requirements) or "binds" in container.not_inherited
    ):
        yield finding(WARNING, f"{path} has {len(text.splitlines())} lines, which is hard to read")
