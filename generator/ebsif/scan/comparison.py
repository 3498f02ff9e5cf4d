"""Compare the catalog of a site with the images in directories, and propose records for those it doesn't have."""

import contextlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import NamedTuple, Optional, Union

from easybuild.easyblocks.generic.container.image.source import HTTPS, ImageSource

from ebsif.catalog.container import Container
from ebsif.catalog.entry import Entry, complete
from ebsif.catalog.guess import adding
from ebsif.catalog.proposal import AddingError
from ebsif.catalog.records import CatalogFile
from ebsif.catalog.settings import Settings
from ebsif.catalog.site import Site
from ebsif.errors import EbsifError
from ebsif.files import IMAGES, is_there
from ebsif.images import inspection
from ebsif.images.checksum import of_size
from ebsif.images.checksum import sha256 as sha256_of
from ebsif.images.inspection import Inspection, read_packages
from ebsif.images.remote import Remote
from ebsif.report.findings import NOTE, WARNING, Finding
from ebsif.report.steps import Steps
from ebsif.scan.places import Survey, images_of
from ebsif.scan.sourced import fits, is_copy

# A line of sha256sum.
SUM = re.compile(r"^([0-9a-f]{64}) [ *](?:\./)?([^\n]+?)\r?$", re.MULTILINE)

LARGEST = 64_000_000  # bytes of a file that is read


class Stated(NamedTuple):
    """The SHA256 of an image, and the file or URL that states it."""

    sha256: str
    place: Union[Path, str]


@dataclass
class Comparison:
    """
    The comparison of the containers of a site, and the files of its catalog, with images.

    It collects `entries`, the proposed records, and `findings`, what else differs.
    """

    settings: Settings
    profile: Site
    containers: list[Container]
    documents: list[CatalogFile]
    entries: list[Entry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @cached_property
    def known(self) -> dict[str, list[Container]]:
        """The containers by the file names of their images."""
        known: dict[str, list[Container]] = {}
        for container in self.containers:
            known.setdefault(container.file_name, []).append(container)
        return known

    @cached_property
    def ignored(self) -> list[str]:
        """The patterns of names of images that are left out."""
        return [pattern for images in images_of(self.profile, self.documents) for pattern in images.ignored]

    def is_image(self, name: str) -> bool:
        """Return whether a file name is that of an image that counts."""
        return (name.endswith(IMAGES) or fits(self.documents, name)) and not self.is_ignored(name)

    def is_ignored(self, name: str) -> bool:
        """Return whether a file name or tag is left out."""
        return any(fnmatchcase(name, pattern) for pattern in self.ignored)

    def say(self, level: str, text: str, path: object) -> None:
        """Add a finding on a file or directory, or a URL."""
        self.findings.append(Finding(level, "", text, str(path), 0))

    def say_unadded(self, error: Exception, subject: str = "", path: str = "") -> None:
        """Say why an image can't be added; a record that has to be completed by hand is shown as it is in a file."""
        text, record = (error.message, error.record) if isinstance(error, AddingError) else (str(error), "")
        self.findings.append(
            Finding(WARNING, subject, f"is not in the catalog, and can't be added: {text}", path, 0, record)
        )

    def say_of(self, level: str, container: Container, text: str) -> None:
        """Add a finding on a record."""
        self.findings.append(
            Finding(level, container.module_or_version, text, str(container.path), container.line_of())
        )

    def compare(self, survey: Survey) -> None:
        """Compare the catalog with the images in directories."""
        self.findings += survey.findings
        recorded = list(self.containers)
        # a link that a record names is meant
        links = [link for link in survey.links if link.name not in self.known]
        # an image in two directories counts once
        for path in dict.fromkeys([*survey.images, *map(target_of, links)]):
            if path.name not in self.known and is_there(path):
                self.propose(path)
        for link in links:
            self.name_link(link)
        for container in recorded:
            # what has a source needn't be in a directory
            if not container.archived and not container.source:
                self.check_record(container, survey)

    def propose(self, path: Path) -> None:
        """Propose the record of an image; if that is impossible, say why."""
        if not fits(self.documents, path.name):
            self.say(
                WARNING,
                "is not in the catalog, and no family has images with such names: start one "
                f"with `ebsif add {shlex.quote(str(path))} --name NAME`, or add the name to 'ignored' of 'images'",
                path,
            )
            return
        try:
            found = inspected(path)
            programs = partial(inspection.programs, found)
            proposal = adding.propose(found, self.documents, programs=programs)
            entry = complete(proposal, path.name, self.settings, self.profile, self.containers, programs, path)
            check_place(entry, path)
        except (EbsifError, OSError) as error:
            self.say_unadded(error, path=str(path))
            return
        copy = is_copy(found, self.containers)
        if copy:
            self.say(NOTE, copy, path)
        self.add(entry, path.name)

    def propose_remote(self, found: Remote, name: str) -> Container:
        """Propose the record of an image that is not here, with a name for its SIF file, and return its container.

        Raise EbsifError if that is impossible.
        """
        if name in self.known:
            raise AddingError(f"{self.known[name][0].module} has an image of that name, {name}")
        if not fits(self.documents, name):
            raise AddingError(
                f"no family has images with such names: `ebsif add {shlex.quote(str(found.source))}` "
                "fetches it, to look into it; or add the name to 'ignored' of 'images'"
            )
        proposal = adding.propose(found.named(name), self.documents, programs=found.programs)
        entry = complete(proposal, name, self.settings, self.profile, self.containers, found.programs)
        self.add(entry, name)
        return entry.container

    def add(self, entry: Entry, file_name: str) -> None:
        """Add a proposed record."""
        self.entries.append(entry)
        self.containers.append(entry.container)
        self.known.setdefault(file_name, []).append(entry.container)

    def check_record(self, container: Container, survey: Survey) -> None:
        """Say whether the image of a record is gone, has moved, or is another one."""
        places = [place for _, place in container.image_places]
        there = next(filter(is_there, places), None)
        if there:
            self.check_image(container, there)
        elif places and all(survey.is_gone(place) for place in places):
            self.say_of(WARNING, container, where_gone(container, places, survey))

    def check_image(self, container: Container, path: Path) -> None:
        """Say whether an image is another one than that of its record, without reading all of it."""
        if self.has_size(container, path, path.stat().st_size):
            self.check_sum(container, path, stated_beside(path))

    def has_size(self, container: Container, place: object, size: int) -> bool:
        """Return whether an image (path or URL) has the size in its record, if that has one; if not, say so."""
        if container.size in (None, size):
            return True
        differs = of_size(size, container.size)
        signed = "; if it was only signed, correct 'sha256' and 'size'" if differs.how == "replaced" else ""
        self.say_of(
            WARNING,
            container,
            f"its image {place} was {differs.how}: {differs.figures}. Put the right one "
            f"there, or give the other one a name of its own{signed}",
        )
        return False

    def check_sum(self, container: Container, place: object, stated: Optional[Stated]) -> None:
        """Say whether a release states another SHA256 for an image (path or URL) than its record, which may lack it."""
        recorded = sha256_in(container)
        if stated and not recorded:
            self.say_of(NOTE, container, f"the record has no SHA256; {stated.place} states {stated.sha256}")
        elif stated and stated.sha256 != recorded:
            self.say_of(
                WARNING,
                container,
                f"{stated.place} states another SHA256 for its image than the record, "
                f"{stated.sha256}: if {place} was replaced, give the other one a name of its own",
            )

    def name_link(self, link: Path) -> None:
        """Say what a link stands for, and that it may change (R-12)."""
        target = target_of(link)
        if not target.is_file():
            self.say(WARNING, f"is a link to {target}, which does not exist: remove it, or correct it", link)
            return
        records = self.known.get(target.name, [])
        stated = stated_beside(target)
        sha256 = next((one.sha256 for one in records if one.sha256), stated and stated.sha256)
        digest = f"SHA256 {sha256}" if sha256 else "its SHA256 is not recorded"
        module = f", of {records[0].module}" if records else ", which is not in the catalog"
        self.say(NOTE, f"is a link to {target}{module} ({digest}). The link can change, so records use the file", link)


def target_of(link: Path) -> Path:
    """Return what a link leads to; of links that lead to each other, one of them (pathlib raises an error)."""
    return Path(os.path.realpath(link))


def inspected(path: Path) -> Inspection:
    """Return the inspection of an image, with the SHA256 that its release states, if it does, else computed."""
    with Steps() as steps:
        steps.begin(f"looking into {path.name}", important=False)
        found = inspection.inspect(path, checksum=False)
    stated = stated_beside(path)
    found = replace(found, sha256=stated.sha256 if stated else sha256_of(path))
    if not found.listed:
        listed, bill = packages_beside(path)
        found = replace(found, listed=listed, listed_in=str(bill) if listed else "")
    return found


def check_place(entry: Entry, path: Path) -> None:
    """Raise AddingError if an image is not where its record says that it is."""
    places = [place for stability, place in entry.container.image_places if stability != "moving"]
    if not any(is_there(place) for place in places):
        listed = ", ".join(str(place.parent) for place in places) or "none"
        raise AddingError(
            f"it would be looked for in other directories ({listed}): put it there, or add "
            f"{path.parent} to the directories of 'images'"
        )


def where_gone(container: Container, places: list[Path], survey: Survey) -> str:
    """Return what to do about an image that is gone: where it is, if it is somewhere near."""
    name = container.file_name
    where = ", ".join(str(place.parent) for place in places)
    found = next((path for path in [*survey.images, *below(survey.looked_in)] if path.name == name), None)
    if found:
        return (
            f"its image {name} was moved from {where} to {found.parent}: add that directory to 'images' of "
            "the profile or of the family, or move it back"
        )
    return f"its image {name} is no longer in {where}: bring it back, or archive the record ('archived')"


def sha256_in(container: Container) -> Optional[str]:
    """Return the SHA256 of an image in its record, which may be in its source; None without one."""
    source = ImageSource.parse(container.source) if container.source else None
    digest = source.digest if source and source.kind == HTTPS else None
    return digest.partition(":")[2] if digest else container.sha256


def below(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the images one or two levels below directories, as far as they can be read."""
    for folder in sorted(folders):
        for pattern in ("*/*", "*/*/*"):
            yield from (path for path in folder.glob(pattern) if path.name.endswith(IMAGES))


# --- files beside an image; the LUMI AI Factory publishes NAME.md with the output of sha256sum, and NAME.json


def stated_beside(image: Path) -> Optional[Stated]:
    """Return the SHA256 of an image that a file beside it states; None if none does, or if two disagree."""
    names = (f"{image.stem}.md", f"{image.name}.sha256", f"{image.stem}.sha256", "SHA256SUMS", "sha256sum.txt")
    found = [
        Stated(digest, file)
        for file in map(image.with_name, names)
        for digest, name in SUM.findall(text_of(file))
        if PurePath(name).name == image.name
    ]
    return found[0] if len({one.sha256 for one in found}) == 1 else None


def packages_beside(image: Path) -> tuple[dict[str, dict[str, str]], Path]:
    """Return the versions of the packages that a file beside an image lists, by kind and name, and that file."""
    bill = image.with_suffix(".json")
    return read_packages(text_of(bill)), bill


def text_of(path: Path) -> str:
    """Return the text of a file; '' if there is none, or it can't be read or is too large."""
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size <= LARGEST:
            return path.read_text(encoding="utf-8", errors="replace")
    return ""
