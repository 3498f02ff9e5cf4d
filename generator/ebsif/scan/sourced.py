"""Find out what a record needs to know of an image that is not here; fetch it only if that is necessary."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Optional
from urllib.parse import urlsplit

from easybuild.easyblocks.generic.container.image.source import CONVERTED, HTTPS, ImageSource

from ebsif.catalog.container import Container
from ebsif.catalog.guess.familymatch import families_named
from ebsif.catalog.guess.programs import Programs
from ebsif.catalog.proposal import AddingError
from ebsif.catalog.records import CatalogFile
from ebsif.files import IMAGES
from ebsif.images import fetching, inspection, remote
from ebsif.images.inspection import Inspection
from ebsif.images.remote import Remote

# What a tag looks like that is a version.
VERSION = re.compile(r"v?(\d[\w.+-]*)")


@dataclass(frozen=True)
class Sourced:
    """An image from a source (with its digest), what is known of it, and the file if it was fetched."""

    source: ImageSource
    found: Inspection
    programs: Programs
    path: Optional[Path] = None

    @property
    def name(self) -> str:
        """Name of the software, if no family has such images: that of the repository."""
        return (self.source.repository or "").rpartition("/")[2]

    @property
    def version(self) -> Optional[str]:
        """Version of the software, if no family has such images: the tag, if it looks like one."""
        match = VERSION.fullmatch(self.source.tag or "")
        return match.group(1) if match else None


def fits(documents: Iterable[CatalogFile], name: str) -> bool:
    """Return whether a family has images with such a name."""
    return any(True for document in documents for _ in families_named(document, name))


def name_of(found: Remote, documents: Iterable[CatalogFile]) -> str:
    """Return the name for the SIF file: one that a family has, if there is one, else that of the tag."""
    documents = list(documents)
    return next((name for name in found.names if fits(documents, name)), found.default)


def sourced(
    source: ImageSource,
    documents: list[CatalogFile],
    folder: Optional[Path] = None,
    whole: bool = False,
    named: bool = True,
) -> Sourced:
    """
    Return what is known of an image; fetch it if it is wanted whole, or what a registry or layout tells is too little.

    It is fetched into a folder (default: EasyBuild's source path). `named` is whether the software has a name even if
    no family has such images. Raise EbsifError if that is impossible; without a name, before anything is fetched.
    """
    known = remote.look(source) if remote.is_readable(source) else None
    name = name_of(known, documents) if known else file_name(source)
    is_of_family = fits(documents, name)
    if known and is_of_family and not whole:
        return Sourced(known.source, known.named(name), known.programs)
    if not (named or is_of_family or source.repository):
        raise AddingError(f"no family of the catalog has images named like {name}: start one with --name NAME")
    return fetched(known.source if known else source, name, folder, known)


def fetched(source: ImageSource, name: str, folder: Optional[Path], known: Optional[Remote]) -> Sourced:
    """Return what is known of an image after fetching it; `known` is what a registry or layout tells."""
    sha256 = known.found.sha256 if known else None
    path, resolved = fetching.fetch(source, name, folder, known.layers if known else 0, sha256)
    found = inspection.inspect(path, checksum=not sha256)
    # another conversion makes another file
    digest = None if resolved.kind in CONVERTED else sha256 or found.sha256
    found = replace(found, source=str(resolved), sha256=digest)
    if known:
        found = replace(found, created=known.found.created)
        if not found.listed:
            found = replace(found, listed=known.found.listed, listed_in=known.found.listed_in)
    return Sourced(resolved, found, partial(inspection.programs, found), path)


def file_name(source: ImageSource) -> str:
    """Return the name for the SIF file of a source that tells nothing before it is fetched."""
    name = Path(urlsplit(source.path).path if source.kind == HTTPS else source.path).name
    return name if name.endswith(IMAGES) else f"{name.partition('.tar')[0]}.sif"


def same_image(container: Container, found: Inspection) -> Optional[bool]:
    """Return whether the image of a record is one from a source, None if the record doesn't say."""
    digest = ImageSource.parse(container.source).digest if container.source else None
    if digest and found.source:
        return digest == ImageSource.parse(found.source).digest
    return container.sha256 == found.sha256 if container.sha256 and found.sha256 else None


def is_copy(found: Inspection, containers: Iterable[Container]) -> Optional[str]:
    """Return what to say about an image that is the same as that of a record, under another name; None for others."""
    same = next((one for one in containers if same_image(one, found)), None)
    if same is None:
        return None
    return (
        f"is a copy of {same.file_name}, the image of {same.module} ({same.place}): the new record makes a second "
        "module of it"
    )
