"""Compare the catalog of a site with the tags in registries (see `Comparison` for directories)."""

from typing import Optional

from easybuild.easyblocks.generic.container.image.source import IN_REGISTRY, ImageSource
from easybuild.easyblocks.generic.container.newest import natural

from ebsif.catalog.container import Container
from ebsif.errors import EbsifError
from ebsif.images import remote
from ebsif.images.registry.connection import MissingError
from ebsif.images.registry.login import drop_variables
from ebsif.images.registry.reference import open_repository
from ebsif.images.registry.repository import Repository
from ebsif.report import output
from ebsif.report.findings import NOTE, WARNING, Finding
from ebsif.report.steps import Now, Steps
from ebsif.scan.comparison import Comparison
from ebsif.scan.places import images_of
from ebsif.scan.sourced import name_of

# Repositories, without tag and digest, and the records with images from each, with their sources.
Records = list[tuple[Container, ImageSource]]
Repositories = dict[ImageSource, Records]


def repositories(comparison: Comparison) -> Repositories:
    """Return the repositories that the site, its families and its records name."""
    found: Repositories = {}
    for images in images_of(comparison.profile, comparison.documents):
        for text in images.repositories:
            found.setdefault(ImageSource.parse(text), [])
    for container in comparison.containers:
        source = ImageSource.parse(container.source) if container.source else None
        if source and source.kind in IN_REGISTRY:
            found.setdefault(source._replace(tag=None, digest=None), []).append((container, source))
    return found


def compare(comparison: Comparison, known: Repositories) -> None:
    """Compare the catalog with repositories; user and password in variables are only for a single registry."""
    if len({place.host for place in known}) > 1 and drop_variables():
        output.note(
            "several registries are asked: user and password in variables (DOCKER_PASSWORD ...) are sent to "
            "none of them, only logins of `apptainer registry login` are used"
        )
    for place, records in known.items():
        try:
            repository = open_repository(place)
            with Steps() as steps:
                # which may not answer
                steps.begin(f"asking {place.host}", important=False)
                tags = sorted((tag for tag in repository.tags() if is_of_image(tag, comparison)), key=natural)
        except (EbsifError, OSError) as error:
            comparison.findings.append(Finding(WARNING, str(place), f"its tags can't be read: {error}"))
            continue
        check_records(comparison, records, repository)
        check_tags(comparison, records, repository, tags)


def is_of_image(tag: str, comparison: Comparison) -> bool:
    """Return whether a tag is that of an image: tools keep signatures and the like under the digest of an image."""
    return not tag.startswith("sha256-") and not comparison.is_ignored(tag)


def check_records(comparison: Comparison, records: Records, repository: Repository) -> None:
    """Say of which records the image is gone."""
    for container, source in records:
        if container.archived or not source.digest:
            continue
        try:
            repository.resolve(source.digest)
        except MissingError as error:
            comparison.say_of(
                WARNING,
                container,
                f"its image can't be fetched from {source} any longer: {error}. "
                "Bring it back, write another 'source', or archive the record ('archived')",
            )
        except (EbsifError, OSError) as error:
            comparison.say_of(
                WARNING,
                container,
                f"it is unknown whether its image is still at {source}, which could not be asked: {error}",
            )


def check_tags(comparison: Comparison, records: Records, repository: Repository, tags: list[str]) -> None:
    """Propose records for the tags whose images no record has; say what other tags stand for."""
    by_digest = {source.digest: container for container, source in records}
    by_tag = {source.tag: (container, source) for container, source in records if source.tag}
    done = 0
    with Steps() as steps:
        steps.begin(
            f"tags of {repository.reference.repository}",
            important=False,
            watch=lambda: Now(f"{done} of {len(tags)}", done, len(tags)),
        )
        # version tags are resolved before aliases
        for tag in sorted(tags, key=lambda tag: not any(map(str.isdigit, tag))):
            done += 1
            place = repository.reference._replace(tag=tag)
            try:
                digest = repository.resolve(tag)
            except (EbsifError, OSError) as error:
                comparison.findings.append(Finding(WARNING, str(place), f"can't be read: {error}"))
                continue
            container, source = by_tag.get(tag, (None, None))
            if container and source and source.digest not in (None, digest):
                comparison.say_of(
                    WARNING,
                    container,
                    f"the tag of {source} is another image by now, {digest}: the "
                    "record and its module stay with the earlier one",
                )
            elif digest not in by_digest:
                proposed = propose(comparison, place, digest)
                if proposed:
                    by_digest[digest] = proposed
            elif not container:
                # nothing to add, but whoever follows the tag learns which image it means today
                comparison.findings.append(
                    Finding(
                        NOTE,
                        str(place),
                        f"is {digest} today, the image of {by_digest[digest].module}. A tag can change, "
                        "so records use the digest",
                    )
                )


def propose(comparison: Comparison, place: ImageSource, digest: str) -> Optional[Container]:
    """Propose the record of a tag's image and return its container; if that is impossible, say why."""
    try:
        found = remote.look(place.with_digest(digest))
        return comparison.propose_remote(found, name_of(found, comparison.documents))
    except (EbsifError, OSError) as error:
        comparison.say_unadded(error, subject=str(place))
        return None
