"""Find the family of an image: those whose images have such file names, and the best one of them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.sitevalues import INIT_CONDA, INIT_IMAGE

from ebsif.catalog.fieldtypes import PLACEHOLDER
from ebsif.catalog.guess.template import read_fields
from ebsif.catalog.records import CatalogFile


@dataclass
class Candidate:
    """A family whose images have such file names."""

    document: CatalogFile
    family: str
    defaults: dict
    fields: dict
    # why the image may not belong to it; the position of the last record that uses it
    doubt: Optional[str]
    last: int

    @property
    def alike(self) -> int:
        """The number of components whose value is in the file name."""
        return len(self.fields.items() & self.defaults["components"].items())


def candidates_in(document: CatalogFile, image: Any, wanted: Optional[str], is_named: bool) -> Iterator[Candidate]:
    """
    Yield the families of a file whose images have such names.

    Families without records are for others to extend: they come only if they are wanted, or no family has records.

    `is_named` says that a person has named the software.
    """
    for family, defaults, fields in families_named(document, image.file_name):
        used = [index for index, record in enumerate(document.containers) if record.family == family]
        if wanted in (None, family) and (used or wanted or not document.containers):
            doubt = doubt_about(image, defaults) or (None if wanted or is_named else doubt_about_name(defaults["file"]))
            yield Candidate(document, family, defaults, fields, doubt, max(used, default=-1))


def families_named(document: CatalogFile, file_name: str) -> Iterator[tuple[str, dict, dict]]:
    """Yield the families of a file whose images have such names: name, values, and fields of the file name."""
    for family in document.families:
        defaults = document.family_values(family)
        fields = read_fields(defaults["file"], file_name) if defaults["file"] else None
        if fields is not None:
            yield family, defaults, fields


def doubt_about(image: Any, defaults: dict) -> Optional[str]:
    """Return why an image may not belong to a family, or None: activation distinguishes generations."""
    if is_activated_otherwise(image.found.init, defaults):
        return f"Python is activated by {image.found.init} here, by {defaults['init'] or INIT_IMAGE} in that family"
    entry_point = defaults["entry_point"]
    if entry_point and entry_point not in image.programs([entry_point]):
        return f"it has no {entry_point}, the entry point of that family"
    return None


def is_activated_otherwise(init: str, defaults: dict) -> bool:
    """Return whether Python is activated in another way than in a family; of images in registries, nothing is known."""
    wanted = defaults["init"] or INIT_IMAGE
    # the Conda environment may be the same; with a venv, it matters how Python is activated
    alike = {init, wanted} == set(INIT_CONDA) and not defaults["venv"]
    return bool(init and init != wanted and not alike)


def doubt_about_name(template: str) -> Optional[str]:
    """Return why a file name tells no family, or None if it has words of its own."""
    has_words = re.search(r"[A-Za-z]", PLACEHOLDER.sub("", Path(template).stem))
    return None if has_words else "the file name has only a version: is it the same software?"


def best_of(candidates: Iterable[Candidate]) -> Candidate:
    """Return the family without doubt, with most components in the file name, or the one used last."""
    return max(candidates, key=lambda one: (not one.doubt, one.alike, one.last))
