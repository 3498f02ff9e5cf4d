"""Find the images in the directories that the profile of a site and its families name."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NamedTuple

from easybuild.easyblocks.generic.container.newest import natural

from ebsif.catalog.fieldtypes import PLACEHOLDER
from ebsif.catalog.guess.template import read_fields
from ebsif.catalog.records import CatalogFile
from ebsif.catalog.site import Images, Site
from ebsif.files import how_to_get_access
from ebsif.report.findings import NOTE, WARNING, Finding


class ImagePlace(NamedTuple):
    """A directory with images, with placeholders where there are several, and whether its images stay."""

    template: str
    stability: str


@dataclass
class Survey:
    """
    What there is in the directories of a site: images, without links, and links to images.

    `looked_in` are the directories whose content is known, `unreadable` those that exist and can't be read, `findings`
    what has to be said of directories and files.
    """

    images: list[Path] = field(default_factory=list)
    links: list[Path] = field(default_factory=list)
    looked_in: set[Path] = field(default_factory=set)
    unreadable: set[Path] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    def say(self, level: str, path: Path, text: str) -> None:
        """Add a finding on a file or directory."""
        self.findings.append(Finding(level, "", text, str(path), 0))

    def is_gone(self, path: Path) -> bool:
        """Return whether it is certain that there is no such file, because what is above it is known."""
        above = next((folder for folder in path.parents if folder in self.looked_in | self.unreadable), None)
        return above in self.looked_in and not os.path.lexists(path)


def images_of(profile: Site, documents: Iterable[CatalogFile]) -> list[Images]:
    """Return where a site and the families in its catalog have images."""
    found = [
        profile.images,
        *(document.family_values(family)["images"] for document in documents for family in document.families),
    ]
    return [one for one in found if one]


def places_of(profile: Site, documents: Iterable[CatalogFile]) -> list[ImagePlace]:
    """Return the directories with images of a site and of the families in its catalog, each once."""
    return list(
        dict.fromkeys(
            ImagePlace(str(one.current_root / directory.path), directory.stability)
            for one in images_of(profile, documents)
            for directory in one.directories
        )
    )


def survey(places: Iterable[ImagePlace], is_image: Callable[[str], bool]) -> Survey:
    """Look into directories for files whose name is that of an image."""
    found = Survey()
    for place in places:
        above, folders = expanded(place.template, found)
        for folder in above:
            # links to the newest release are beside the releases
            found.links += [
                Path(entry.path) for entry in entries(folder, found) if entry.is_symlink() and is_image(entry.name)
            ]
        for folder in folders:
            for entry in entries(folder, found):
                if not is_image(entry.name):
                    continue
                if entry.is_symlink():
                    found.links.append(Path(entry.path))
                elif entry.is_file() and place.stability == "moving":
                    found.say(
                        NOTE,
                        Path(entry.path),
                        "was skipped: a plain file in a directory of links that change. "
                        "If it stays, move it to another directory",
                    )
                elif entry.is_file():
                    found.images.append(Path(entry.path))
    for paths in (found.images, found.links):
        paths[:] = sorted(dict.fromkeys(paths), key=lambda path: natural(str(path)))
    found.findings = list(dict.fromkeys(found.findings))
    return found


def expanded(template: str, found: Survey) -> tuple[list[Path], list[Path]]:
    """Return the directories above those with placeholders, and the directories of a template."""
    above: list[Path] = []
    folders = [Path("/")]
    for part in PurePath(template).parts[1:]:
        if not PLACEHOLDER.search(part):
            folders = [folder / part for folder in folders]
            continue
        above += folders
        # a link to a directory would show the same images twice
        folders = [
            Path(entry.path)
            for folder in folders
            for entry in entries(folder, found)
            if entry.is_dir(follow_symlinks=False) and read_fields(part, entry.name) is not None
        ]
    return above, folders


def entries(folder: Path, found: Survey) -> list["os.DirEntry[str]"]:
    """Return what is in a directory; a directory that can't be read becomes a finding."""
    try:
        with os.scandir(folder) as listed:
            content = list(listed)
    except FileNotFoundError:
        found.say(WARNING, folder, "does not exist on this machine")
        return []
    except NotADirectoryError:
        found.say(WARNING, folder, "is not a directory: correct 'images' of the profile or of the family")
        return []
    except OSError as error:
        found.unreadable.add(folder)
        found.say(
            WARNING, folder, f"can't be read ({error.strerror}), so its images are unknown: {how_to_get_access(folder)}"
        )
        return []
    found.looked_in.add(folder)
    return content
