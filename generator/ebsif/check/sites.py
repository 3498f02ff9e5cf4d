"""Checking the catalogue of sites and their easyconfigs: what is wrong is a finding, with file and line."""

import re
from functools import cache

from ebsif.catalogue import reading, site
from ebsif.catalogue.container import CatalogueError, RecordError
from ebsif.catalogue.selection import duplicates
from ebsif.check.easyconfigs import Reader, check_style
from ebsif.check.findings import ERROR, WARNING, Finding, findings_of
from ebsif.check.records import check_record, check_requirements, check_reviews, check_rocm
from ebsif.errors import EbsifError
from ebsif.image import inspection
from ebsif.render import easyconfig, rendering

# Lines of an easyconfig that a person likes to read; stages take what they take.
LONG = 80

# How the easyblocks name a parameter, which has the name of a field of the record.
PARAMETER = re.compile(r"Easyconfig parameter '(\w+)'")


def check_sites(settings, names, deep=True, images=False):
    """
    Yield what is wrong with the catalogue of sites and their easyconfigs; see `check`.

    Parameters
    ----------
    settings : Settings
        Where catalogue and easyconfigs are.
    names : list of str
        The sites; None is the chosen one.
    deep, images : bool
        As for `check`.

    Yields
    ------
    Container or Finding
        Each container that is checked, and what is wrong.
    """
    for name in names:
        containers = []
        try:
            profile = settings.site(name)
            chains = reading.chains(*site.directories_of(profile.name, settings.directories))
        except EbsifError as error:
            yield from findings_of(error)
            continue
        problems = []
        for chain in chains:
            containers += reading.read_file(chain[0], profile, *chain[1:], problems=problems)
            for path in chain:
                yield from check_reviews(path)
        for path, line, text in problems:
            yield Finding(ERROR, str(path), line or 1, "", text)
        yield from containers
        yield from check(containers, settings.output_of(profile.name), profile, deep, images, not problems)


def check(containers, output, profile, deep=True, images=False, complete=True):
    """
    Yield what is wrong with the containers of a site and their easyconfigs.

    Parameters
    ----------
    containers : list of Container
        All of them.
    output : Path
        Directory of the easyconfigs.
    profile : Site
        The site.
    deep : bool
        Also what takes EasyBuild: reading easyconfigs back, their style.
    images : bool
        Also what takes reading images: their checksums.
    complete : bool
        Whether all records could be read, so that easyconfigs of none of them are left over.

    Yields
    ------
    Finding
    """
    others = duplicates(containers)
    reader = Reader() if deep else None
    digest = cache(inspection.sha256) if images else None
    wanted, right = [], []
    for container in containers:
        finding = about(container)
        if container in others:
            yield finding(ERROR, f"another container has this name and suffix ({others[container].place}): give one "
                                 "a 'label' of its own, or installing one replaces the other")
        try:
            yield from check_record(container, finding, digest)
            text = easyconfig.render(container)
            path = rendering.place(container, output)
        except CatalogueError as error:
            yield finding(ERROR, error.text if isinstance(error, RecordError) else str(error))
            # nobody knows which easyconfig it would be
            complete = False
            continue
        wanted.append(path)
        wrong = [*check_requirements(container, finding), *check_rocm(container, finding)]
        of_file = list(check_easyconfig(container, path, text, finding))
        yield from wrong + of_file
        if not any(one.level == ERROR for one in of_file):
            right.append(path)
        if reader:
            told = {one.text for one in wrong}
            yield from (finding(ERROR, problem) for problem in reader.problems(container, text) if problem not in told)
    if complete:
        for path in rendering.left_over(wanted, output, profile):
            yield Finding(ERROR, str(path), 1, path.stem, "is in the catalogue no more: remove it")
    if deep and right:
        yield from check_style(right)


def about(container):
    """Return what makes a Finding on a container, of level and text, with the line of the parameter it is about."""
    def finding(level, text):
        parameter = PARAMETER.match(text)
        return Finding(level, str(container.path), container.line_of(parameter and parameter.group(1)),
                       container.module_or_version, text)

    return finding


def check_easyconfig(container, path, text, finding):
    """Yield findings on the easyconfig of a container at a path, which should be a text."""
    command = f"ebsif render --site {container.site.name}"
    try:
        there = path.read_text(encoding="utf-8") if path.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        yield finding(ERROR, f"{path} can't be read: {error}")
        return
    if there is None:
        yield finding(ERROR, f"{path} is not there: {command}")
    elif there != text:
        yield finding(ERROR, f"{path} is not what the catalogue says: {command}, or change the catalogue")
    if len(text.splitlines()) >= LONG and not container.stages:
        yield finding(WARNING, f"{path} has {len(text.splitlines())} lines; a record says what differs only")
