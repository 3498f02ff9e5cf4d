"""Complete a proposed record: the file that gets it, and the container that it describes, after all checks."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.record.lockfile import IMAGE_CENTRAL

from ebsif.catalog import reading, writing
from ebsif.catalog.container import Container
from ebsif.catalog.guess.programs import Programs, compare_programs
from ebsif.catalog.proposal import AddingError, Proposal
from ebsif.catalog.settings import Settings
from ebsif.catalog.site import Site
from ebsif.catalog.yamlerrors import DocumentError
from ebsif.eb import framework


@dataclass(frozen=True)
class Entry:
    """A proposed record, the file for it, the files that this one extends, and the container that it describes."""

    proposal: Proposal
    path: Path
    extended: list[Path]
    container: Container


def complete(
    proposal: Proposal,
    file_name: str,
    settings: Settings,
    profile: Site,
    containers: Sequence[Container],
    programs: Programs,
    image: Optional[Path] = None,
) -> Entry:
    """
    Return the entry of a proposed record; nothing is written. Raise AddingError if it is invalid or a repetition.

    `image` is the file, which a module may use where it is.
    """
    if proposal.new_family is not None and "moduleclass" not in profile.model_fields_set:
        proposal.new_family["moduleclass"] = profile.moduleclass
        proposal.reviews["moduleclass"] = "a guess: `eb --show-default-moduleclasses` lists others"
    path, extended = place_of(proposal, settings, profile)
    compare_programs(proposal, container_of(proposal, path, extended, profile), programs)
    if image and use_in_place(proposal, container_of(proposal, path, extended, profile), image):
        proposal.in_place = image
    container = container_of(proposal, path, extended, profile)
    check_container(container, containers, proposal, path, file_name)
    return Entry(proposal, path, extended, container)


def place_of(proposal: Proposal, settings: Settings, profile: Site) -> tuple[Path, list[Path]]:
    """Return the file for the record, and the files that it extends."""
    path = settings.catalog / profile.name / "containers" / f"{proposal.name}.yaml"
    chains = reading.chains(*settings.directories_of(profile))
    chain: list[Path] = next((chain for chain in chains if chain[0].name == path.name), [])
    return path, chain[1:] if path in chain else chain


def use_in_place(proposal: Proposal, container: Container, image: Path) -> bool:
    """
    Let a module use its image where it is, if record or site say so; return whether it does (V-08).

    Where nobody says it, that is so for the records of an account, unless the image is in EasyBuild's source path.
    """
    kind = container.image_kind
    values = proposal.values if proposal.new_family is None else proposal.new_family
    folder = image.absolute().parent
    is_elsewhere = container.is_own and not is_one_of(folder, map(Path, framework.source_paths()))
    if is_elsewhere and not kind:
        kind = values["image"] = IMAGE_CENTRAL
    is_known = is_one_of(folder, (path.parent for _, path in container.image_places))
    if (is_elsewhere or kind == IMAGE_CENTRAL) and not is_known:
        values["images"] = {"directories": [{"path": str(folder)}]}
    return kind == IMAGE_CENTRAL


def is_one_of(folder: Path, others: Iterable[Path]) -> bool:
    """Return whether a directory is one of others, perhaps by another path."""
    return os.path.realpath(folder) in map(os.path.realpath, others)


def container_of(proposal: Proposal, path: Path, extended: list[Path], profile: Site) -> Container:
    """Return the container of a proposed record; nothing is written."""
    try:
        _, text = writing.with_records([proposal], path, extended)
        return writing.parse(text, path, profile, extended)[-1]
    except DocumentError as error:
        # without their places, because the file doesn't have the record
        problems = "; ".join(re.sub(r"^containers, entry \d+, ", "", problem.text) for problem in error.problems)
        raise AddingError(f"the record would be invalid, so nothing was written: {problems}", proposal.text) from None


def check_container(
    container: Container, containers: Sequence[Container], proposal: Proposal, path: Path, file_name: str
) -> None:
    """Raise AddingError if a record is for another image, or another record has the same module."""
    if container.file_name != file_name:
        raise AddingError(
            f"the record would describe {container.file_name}, but the image is {file_name}; "
            f"nothing was written. Complete it by hand ('file'), in {path}",
            proposal.text,
        )
    twin = next((one for one in containers if one.module.lower() == container.module.lower()), None)
    if twin:
        raise AddingError(
            f"the module would be {container.module}, which {twin.place} has already; nothing was "
            f"written. Give it a 'label' of its own by hand, in {path}",
            proposal.text,
        )
