"""Read the catalogue: the containers of a site, from ``<site>/containers/<Name>.yaml``.

A file contains the records of one software and their families. Fields that a record lacks come from its family, then
from the families that this one extends, then from the site.
"""

import contextlib
import re
from pathlib import Path
from typing import Optional

from pydantic import ValidationError

from ebsif.catalogue.container import Container
from ebsif.catalogue.families import explicit_fields, family_values, join_fields
from ebsif.catalogue.records import CatalogueFile, Family
from ebsif.catalogue.site import Site
from ebsif.catalogue.yamlerrors import DocumentError, Problem
from ebsif.catalogue.yamlfile import document_error, line_of, load

# The line in a file that extends the file of the same name in the next catalogue.
EXTENDS = re.compile(r"^extends:[ \t]*true[ \t]*(?:#.*)?$", re.MULTILINE)


def read(site: Site, *directories: Path, problems: Optional[list[Problem]] = None) -> list[Container]:
    """
    Return all containers of a site.

    Parameters
    ----------
    site
        The site.
    directories
        The directories of the site, with ``containers/``.
    problems
        See `read_file`.

    Returns
    -------
    list of Container
        Sorted by name, then in the order of the file.

    Raises
    ------
    DocumentError
        If a file is invalid and `problems` is None; it has the problems of all files.
    """
    found = [] if problems is None else problems
    containers = [container for chain in chains(*directories)
                  for container in read_file(chain[0], site, *chain[1:], problems=found)]
    if found and problems is None:
        raise DocumentError(*found)
    return containers


def read_file(path: Path, site: Optional[Site], *extended: Path,
              problems: Optional[list[Problem]] = None) -> list[Container]:
    """
    Return the containers in a file of the catalogue.

    Parameters
    ----------
    path
        The file.
    site
        The site; None if only the records matter.
    extended
        The file that it extends, the file that this one extends, and so on.
    problems
        If given, problems are added to this list instead of raised, and the valid records are returned.

    Returns
    -------
    list of Container
        In the order of the files, beginning with the extended ones.

    Raises
    ------
    DocumentError
        If a file is invalid and `problems` is None.
    """
    families, containers = None, []
    for place in reversed((path, *extended)):
        try:
            document = document_of(place, families)
            records = list(enumerate(document.containers))
        except DocumentError as error:
            if problems is None:
                raise
            problems += error.problems
            document, records = valid_part(place, families)
            if not records:
                # without it, the files that extend it can't be judged
                break
        families = document.families
        values = {name: family_values(document, name) for name in families}
        containers += [
            Container(document.name, join_fields(values[record.family], explicit_fields(record)), site, place, index)
            for index, record in records]
    return containers


def document_of(path: Path, families: Optional[dict[str, Family]] = None) -> CatalogueFile:
    """
    Return the model of a file of the catalogue.

    Parameters
    ----------
    path
        The file.
    families
        The families of the extended file.

    Returns
    -------
    CatalogueFile
        With the families of the extended file, if it extends one.

    Raises
    ------
    DocumentError
        If the file is invalid.
    """
    content = load(path)
    try:
        document = validated(content, families, path)
    except ValidationError as error:
        raise document_error(error, CatalogueFile, path) from None
    if document.name != path.stem:
        raise DocumentError(Problem(path, 1, f"name: '{document.name}' should be the name of the file, {path.stem}"))
    if document.extends and families is None:
        raise DocumentError(Problem(
            path, line_of(path, "extends"), f"extends: no other catalogue has a file {path.name} for this site "
            "('extends: true' has to be on a line of its own, in your own catalogue)"))
    return document


def validated(content, families, path):
    """Return the model of a file's content (CatalogueFile), with the families of the file that it extends."""
    context = {"families": families, "files": path.parent.parent / "files"}
    document = CatalogueFile.model_validate(content, context=context)
    if document.extends and families is not None:
        return document.model_copy(update={"families": {**families, **document.families}})
    return document


def valid_part(path, families=None):
    """Return the model of a partly invalid file (CatalogueFile) and its valid records (list of (index, Record))."""
    document, valid = None, []
    try:
        content = load(path)
        for index, record in enumerate(content["containers"]):
            with contextlib.suppress(ValidationError):
                document = validated({**content, "containers": [record]}, families, path)
                valid.append((index, document.containers[0]))
    except (DocumentError, KeyError, TypeError):
        return None, []
    usable = document and document.name == path.stem and not (document.extends and families is None)
    return document, valid if usable else []


def documents(*directories: Path) -> list[CatalogueFile]:
    """Return the files in the directories of a site, joined with the files they extend."""
    found = []
    for chain in chains(*directories):
        families, containers, document = None, [], None
        for path in reversed(chain):
            document = document_of(path, families)
            families, containers = document.families, containers + document.containers
        found.append(document.model_copy(update={"containers": containers}))
    return found


def chains(*directories: Path) -> list[list[Path]]:
    """
    Return the files of the catalogue that are read together, sorted by name.

    Parameters
    ----------
    directories
        The directories of a site, with ``containers/``.

    Returns
    -------
    list of list of Path
        For each name, the file in the first directory, followed by the files that it extends.
    """
    found = {}
    for directory in directories:
        for path in Path(directory).glob("containers/*.yaml"):
            chain = found.setdefault(path.name, [])
            if not chain or extends(chain[-1]):
                chain.append(path)
    return [found[name] for name in sorted(found)]


def extends(path):
    """Return whether a file of the catalogue extends another one."""
    try:
        return bool(EXTENDS.search(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:  # reported when the file is read
        return False


def files(*directories: Path) -> list[Path]:
    """Return the files of the catalogue in the directories of a site; see `chains`."""
    return [path for chain in chains(*directories) for path in chain]
