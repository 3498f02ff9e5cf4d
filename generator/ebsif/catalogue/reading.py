"""Reading the catalogue: what is known about each container of a site, from ``<site>/containers/<Name>.yaml``.

A file has the records of one name and the families they belong to. What a record leaves out comes from its family, then
from the families that one extends, then from the site.
"""

import contextlib
import re
from pathlib import Path

from pydantic import ValidationError

from ebsif.catalogue.container import Container
from ebsif.catalogue.families import explicit_fields, family_values, join_fields
from ebsif.catalogue.records import CatalogueFile
from ebsif.catalogue.site import Site
from ebsif.catalogue.yamlerrors import DocumentError, Problem
from ebsif.catalogue.yamlfile import explained, load

# A file that adds to the one of the same name in the catalogue that comes next.
EXTENDS = re.compile(r"^extends:[ \t]*true[ \t]*(?:#.*)?$", re.MULTILINE)


def read(site: Site, *directories, problems=None):
    """
    Return all containers of a site.

    Parameters
    ----------
    site : Site
        The site.
    directories : Path
        Its directories, with ``containers/``.
    problems : list of Problem, optional
        As for `read_file`.

    Returns
    -------
    list of Container
        Sorted by name; of one name in the order of the file.

    Raises
    ------
    DocumentError
        With what is wrong in each of the files, if there is no list for it.
    """
    found = [] if problems is None else problems
    containers = [container for chain in chains(*directories)
                  for container in read_file(chain[0], site, *chain[1:], problems=found)]
    if found and problems is None:
        raise DocumentError(*found)
    return containers


def read_file(path, site, *extended, problems=None):
    """
    Return the containers of a file of the catalogue.

    Parameters
    ----------
    path : Path
        The file.
    site : Site
        Where they are.
    extended : Path
        The file that it extends, the one that that extends, and so on.
    problems : list of Problem, optional
        Takes what is wrong; the records that are right are returned then.

    Returns
    -------
    list of Container
        In the order of the files; what is extended comes first.

    Raises
    ------
    DocumentError
        If one is not as it should be, and there is no list for what is wrong.
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
                continue
        families = document.families
        values = {name: family_values(document, name) for name in families}
        containers += [
            Container(document.name, join_fields(values[record.family], explicit_fields(record)), site, place, index)
            for index, record in records]
    return containers


def document_of(path, families=None):
    """
    Return what a file of the catalogue holds.

    Parameters
    ----------
    path : Path
        The file.
    families : dict of Family, optional
        Those of the file that it extends.

    Returns
    -------
    CatalogueFile
        With these families as well, if it extends that file.

    Raises
    ------
    DocumentError
        If it is not as it should be.
    """
    content = load(path)
    try:
        document = joined(content, families)
    except ValidationError as error:
        raise explained(error, CatalogueFile, path) from None
    if document.name != path.stem:
        raise DocumentError(Problem(path, 1, f"name: '{document.name}' should be the name of the file, {path.stem}"))
    if document.extends and families is None:
        raise DocumentError(Problem(
            path, 1, f"extends: no other catalogue has a file {path.name} for this site ('extends: true' is a line of "
            "its own, in a catalogue of your own)"))
    return document


def joined(content, families):
    """Return the CatalogueFile of the content of a file, with the families of the file that it extends if it does."""
    document = CatalogueFile.model_validate(content, context={"families": families})
    if document.extends and families is not None:
        return document.model_copy(update={"families": {**families, **document.families}})
    return document


def valid_part(path, families=None):
    """Return a CatalogueFile and its records that are right, with their places: of a file that has wrong ones too."""
    document, right = None, []
    try:
        content = load(path)
        for index, record in enumerate(content["containers"]):
            with contextlib.suppress(ValidationError):
                document = joined({**content, "containers": [record]}, families)
                right.append((index, document.containers[0]))
    except (DocumentError, KeyError, TypeError):
        return None, []
    named = document and document.name == path.stem and not (document.extends and families is None)
    return document, right if named else []


def documents(*directories):
    """Return what the files in the directories of a site say (list of CatalogueFile), each with what it extends."""
    found = []
    for chain in chains(*directories):
        families, containers, document = None, [], None
        for path in reversed(chain):
            document = document_of(path, families)
            families, containers = document.families, containers + document.containers
        found.append(document.model_copy(update={"containers": containers}))
    return found


def chains(*directories):
    """
    Return which files of the catalogue are read together, sorted by name.

    Parameters
    ----------
    directories : Path
        Those of a site, with ``containers/``.

    Returns
    -------
    list of list of Path
        Of files of the same name the one in the first directory, and while one extends the next one, that as well.
    """
    found = {}
    for directory in directories:
        for path in Path(directory).glob("containers/*.yaml"):
            chain = found.setdefault(path.name, [])
            if not chain or extends(chain[-1]):
                chain.append(path)
    return [found[name] for name in sorted(found)]


def extends(path):
    """Tell whether a file of the catalogue extends another one."""
    try:
        return bool(EXTENDS.search(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:  # explicit_fields by who reads it
        return False


def files(*directories):
    """Return the files of the catalogue in the directories of a site (list of Path); see `chains`."""
    return [path for chain in chains(*directories) for path in chain]
