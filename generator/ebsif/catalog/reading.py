"""Read the catalog: the containers of a site, from ``<site>/containers/<Name>.yaml``.

A file contains the records of one software and their families. Fields that a record lacks come from its family, then
from the families that this one extends, then from the site.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from pydantic import ValidationError

from ebsif.catalog.container import Container, ContainerRecordError
from ebsif.catalog.records import CatalogFile, ContainerRecord, Family
from ebsif.catalog.site import Site
from ebsif.catalog.yamlerrors import DocumentError, Problem
from ebsif.catalog.yamlfile import document_error, line_of, load

# How the names of files with records end.
ENDING = ".yaml"

# The line in a file that extends the file of the same name in the next catalog.
EXTENDS = re.compile(r"^extends:[ \t]*true[ \t]*(?:#.*)?$", re.MULTILINE)


def read(site: Site, *directories: Path, problems: Optional[list[Problem]] = None) -> list[Container]:
    """Return the containers of a site by name. Raise DocumentError, or add what is wrong to `problems`."""
    noted: list[Problem] = [] if problems is None else problems
    containers = [
        container
        for chain in chains(*directories)
        for container in read_file(chain[0], site, *chain[1:], problems=noted)
    ]
    noted += unread(*directories)
    if noted and problems is None:
        raise DocumentError(*noted)
    return containers


def read_file(
    path: Path, site: Optional[Site], *extended: Path, problems: Optional[list[Problem]] = None
) -> list[Container]:
    """Return the containers in a file, after those of the files that it extends (nearest first); see `read`."""
    containers: list[Container] = []
    for place, document, records in documents_in([path, *extended], problems):
        common = {
            name: Container.of(document.name, document.family_values(name), site, place) for name in document.families
        }
        for index, record in records:
            container = common[record.family].of_record(record, index)
            try:
                container.require_names()
                containers.append(container)
            except ContainerRecordError as error:
                problem = Problem(place, container.line_of(), f"{container.name} {container.version}: {error.text}")
                if problems is None:
                    raise DocumentError(problem) from None
                problems.append(problem)
    return containers


def documents_in(
    chain: Sequence[Path], problems: Optional[list[Problem]] = None
) -> Iterator[tuple[Path, CatalogFile, list[tuple[int, ContainerRecord]]]]:
    """Yield the files of a chain, the extended ones first: path, model, records with their indexes; see `read`."""
    families: Optional[dict[str, Family]] = None
    for path in reversed(chain):
        try:
            document = document_of(path, families)
            records = list(enumerate(document.containers))
        except DocumentError as error:
            if problems is None:
                raise
            problems += error.problems
            partly, records = valid_part(path, families)
            if not partly or not records:
                # without it, the files that extend it can't be judged
                return
            document = partly
        families = document.families
        yield path, document, records


def document_of(path: Path, families: Optional[dict[str, Family]] = None) -> CatalogFile:
    """Return the model of a file, given the families that it extends. Raise DocumentError if it is invalid."""
    content = load(path)
    try:
        document = validated(content, families, path)
    except ValidationError as error:
        raise document_error(error, CatalogFile, path) from None
    if document.name != path.stem:
        raise DocumentError(Problem(path, 1, f"name: '{document.name}' should be the name of the file, {path.stem}"))
    if document.extends and families is None:
        raise DocumentError(
            Problem(
                path,
                line_of(path, "extends"),
                f"extends: no other catalog has a file {path.name} for this site "
                "('extends: true' has to be on a line of its own, in your own catalog)",
            )
        )
    return document


def validated(content: Any, families: Optional[dict[str, Family]], path: Path) -> CatalogFile:
    """Return the model of a file's content, with the families of the file that it extends."""
    context = {"families": families, "files": path.parent.parent / "files"}
    document = CatalogFile.model_validate(content, context=context)
    if document.extends and families is not None:
        return document.model_copy(update={"families": {**families, **document.families}})
    return document


def valid_part(
    path: Path, families: Optional[dict[str, Family]] = None
) -> tuple[Optional[CatalogFile], list[tuple[int, ContainerRecord]]]:
    """Return the model of a partly invalid file, and its valid records with their indexes."""
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


def documents(*directories: Path) -> list[CatalogFile]:
    """Return the files in the directories of a site, joined with the files they extend."""
    joined = []
    for chain in chains(*directories):
        parts = [document for _, document, _ in documents_in(chain)]
        joined.append(parts[-1].model_copy(update={"containers": [one for part in parts for one in part.containers]}))
    return joined


def chains(*directories: Path) -> list[list[Path]]:
    """
    Return the files that are read together, by name: the one in the first directory, and those that it extends.

    Raise DocumentError if a directory can't be read: what it contains mustn't count as removed.
    """
    by_name: dict[str, list[Path]] = {}
    for directory in directories:
        for path in yaml_files(Path(directory, "containers")):
            chain = by_name.setdefault(path.name, [])
            if not chain or extends(chain[-1]):
                chain.append(path)
    return [by_name[name] for name in sorted(by_name)]


def unread(*directories: Path) -> list[Problem]:
    """Return the files with records that aren't read, though whoever wrote them means them to be."""
    found = [
        Problem(path, 1, f"isn't read, because its name doesn't end in {ENDING}: rename it, or remove it")
        for directory in directories
        for path in files_in(Path(directory, "containers"))
        if path.suffix.lower() in (ENDING, ".yml") and path.suffix != ENDING
    ]
    for chain in chains(*directories):
        last = chain[-1]
        # a site that extends another one may replace its files
        beside = [
            path
            for directory in directories
            if directory.name == last.parent.parent.name
            for path in [directory / "containers" / last.name]
            if path not in chain
        ]
        found += [
            Problem(path, 1, f"isn't read, because {last} replaces it: name this catalog before that one")
            for path in beside
            if path.is_file() and extends(path)
        ]
    return found


def yaml_files(directory: Path) -> list[Path]:
    """Return the YAML files in a directory."""
    return [path for path in files_in(directory) if path.suffix == ENDING]


def files_in(directory: Path) -> list[Path]:
    """Return what is in a directory, which may be missing; raise DocumentError if it can't be read."""
    try:
        return list(directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DocumentError(Problem(directory, None, f"can't be read: {error.strerror}")) from None


def extends(path: Path) -> bool:
    """Return whether a file of the catalog extends another one."""
    try:
        return bool(EXTENDS.search(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:  # reported when the file is read
        return False


def files(*directories: Path) -> list[Path]:
    """Return the files of the catalog in the directories of a site; see `chains`."""
    return [path for chain in chains(*directories) for path in chain]
