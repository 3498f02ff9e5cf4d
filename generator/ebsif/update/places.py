"""Find the images in the directories that the profile of a site and its families name."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NamedTuple

from ebsif.catalogue.fieldtypes import PLACEHOLDER
from ebsif.catalogue.guess.template import read_fields
from ebsif.catalogue.records import CatalogueFile
from ebsif.catalogue.selection import natural_key
from ebsif.catalogue.site import Images, Site
from ebsif.files import how_to_get_access
from ebsif.report.findings import NOTE, WARNING, Finding


class Place(NamedTuple):
    """A directory with images, with placeholders where there are several, and whether its images stay."""

    template: str
    stability: str


@dataclass
class Survey:
    """
    What there is in the directories of a site.

    Attributes
    ----------
    images : list of Path
        The images, without links.
    links : list of Path
        Links to images.
    looked_in, unreadable : set of Path
        The directories whose content is known, and those that exist and can't be read.
    findings : list of Finding
        Directories and files about which something has to be said.
    """

    images: list[Path] = field(default_factory=list)
    links: list[Path] = field(default_factory=list)
    looked_in: set[Path] = field(default_factory=set)
    unreadable: set[Path] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    def is_gone(self, path: Path) -> bool:
        """Return whether it is certain that there is no such file, because what is above it is known."""
        above = next((folder for folder in path.parents if folder in self.looked_in | self.unreadable), None)
        return above in self.looked_in and not os.path.lexists(path)


def images_of(profile: Site, documents: Iterable[CatalogueFile]) -> list[Images]:
    """Return where a site and the families in its catalogue have images."""
    found = [profile.images, *(document.family_values(family)["images"] for document in documents
                               for family in document.families)]
    return [one for one in found if one]


def places_of(profile: Site, documents: Iterable[CatalogueFile]) -> list[Place]:
    """Return the directories with images of a site and of the families in its catalogue, each once."""
    return list(dict.fromkeys(Place(str(Path(one.root or "/") / directory.path), directory.stability)
                              for one in images_of(profile, documents) for directory in one.directories))


def survey(places: Iterable[Place], is_image: Callable[[str], bool]) -> Survey:
    """
    Look into directories.

    Parameters
    ----------
    places
        The directories.
    is_image
        Returns whether a file name is that of an image.
    """
    found = Survey()
    for place in places:
        above, folders = expanded(place.template, found)
        for folder in above:
            # links to the newest release are beside the releases
            found.links += [Path(entry.path) for entry in entries(folder, found)
                            if entry.is_symlink() and is_image(entry.name)]
        for folder in folders:
            for entry in entries(folder, found):
                if is_image(entry.name):
                    sort_in(entry, place, found)
    found.images = sorted(dict.fromkeys(found.images), key=lambda path: natural_key(str(path)))
    found.links = sorted(dict.fromkeys(found.links), key=lambda path: natural_key(str(path)))
    found.findings = list(dict.fromkeys(found.findings))
    return found


def sort_in(entry, place, found):
    """Add a file to the images or links that were found."""
    path = Path(entry.path)
    if entry.is_symlink():
        found.links.append(path)
    elif entry.is_file() and place.stability == "moving":
        found.findings.append(Finding(NOTE, "", "is in a directory whose links move, and is no link: it is left out, "
                                      "because it may be replaced; if it stays, move it elsewhere", str(path), 0))
    elif entry.is_file():
        found.images.append(path)


def expanded(template, found):
    """Return the directories above those with placeholders, and the directories of a template (lists of Path)."""
    above, folders = [], [Path("/")]
    for part in PurePath(template).parts[1:]:
        if not PLACEHOLDER.search(part):
            folders = [folder / part for folder in folders]
            continue
        above += folders
        # a link to a directory would show the same images twice
        folders = [Path(entry.path) for folder in folders for entry in entries(folder, found)
                   if entry.is_dir(follow_symlinks=False) and read_fields(part, entry.name) is not None]
    return above, folders


def entries(folder, found):
    """Return what is in a directory (list of os.DirEntry); a directory that can't be read becomes a finding."""
    try:
        with os.scandir(folder) as listed:
            content = list(listed)
    except FileNotFoundError:
        found.findings.append(Finding(WARNING, "", "does not exist on this machine", str(folder), 0))
        return []
    except NotADirectoryError:
        found.findings.append(Finding(WARNING, "", "is not a directory: correct 'images' of the profile or of the "
                                      "family", str(folder), 0))
        return []
    except OSError as error:
        found.unreadable.add(folder)
        found.findings.append(Finding(WARNING, "", f"can't be read ({error.strerror}), so its images are unknown: "
                                      f"{how_to_get_access(folder)}", str(folder), 0))
        return []
    found.looked_in.add(folder)
    return content
