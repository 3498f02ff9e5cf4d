"""Turn an image into a record of the catalog, from its name and content; guesses are marked for review."""

import re
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.sitevalues import CONDA_ROOT, INIT_CONDA
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog import site
from ebsif.catalog.fieldtypes import CONTROL, PLACEHOLDER, is_line, is_version_part
from ebsif.catalog.guess.familymatch import Candidate, best_of, candidates_in, doubt_about, is_activated_otherwise
from ebsif.catalog.guess.programs import Programs
from ebsif.catalog.guess.template import insert_placeholders
from ebsif.catalog.guess.versionguess import guess_version, is_same, packages_named, packages_of
from ebsif.catalog.proposal import AddingError, Proposal
from ebsif.catalog.records import CatalogFile
from ebsif.images.inspection import Inspection, versions_by_name
from ebsif.report.output import escape

# Asks the user a question with a default; None if nobody can answer.
Ask = Callable[[str, Optional[str]], Optional[str]]

# Texts by the name of a field: its value, or why a person should review it.
FieldTexts = dict[str, str]

# Labels with the homepage of the software; the placeholder if there are none.
HOMEPAGE_LABELS = ("org.opencontainers.image.url", "org.opencontainers.image.source")
NO_HOMEPAGE = "https://apptainer.org/"


@dataclass
class NewImage:
    """An image to add, and ways to find out more about it."""

    found: Inspection
    version: Optional[str] = None
    programs: Programs = set
    ask: Ask = lambda *_: None

    @property
    def file_name(self) -> str:
        """Name of the image file, with links resolved."""
        return Path(self.found.resolved).name

    @property
    def python(self) -> Optional[str]:
        """Version of the image's Python, such as 3.12."""
        return ".".join(self.found.python.version.split(".")[:2]) if self.found.python else None

    def version_of(self, software: str, package: Optional[str] = None) -> tuple[str, Optional[str]]:
        """Return the version of the software, and what to review about it. Raise AddingError if nobody knows it."""
        if self.version:
            return self.version, None
        version, review = guess_version(self.found, packages_named(software, package), self.file_name, software)
        if version and review in (None, "from the file name"):
            return version, review
        answer = self.ask(f"Version of {software}" + (f" ({review})" if review else ""), version)
        if not (answer or version):
            raise AddingError(
                f"the version of {software} is in neither labels, packages nor name of {self.file_name}: "
                "add --version VERSION"
            )
        try:
            return (is_version_part(answer), None) if answer else (version or "", review)
        except ValueError as error:
            raise AddingError(f"version: '{escape(answer or '')}' {error}") from None


def propose(
    found: Inspection,
    documents: list[CatalogFile],
    name: Optional[str] = None,
    family: Optional[str] = None,
    version: Optional[str] = None,
    programs: Programs = set,
    ask: Ask = lambda *_: None,
    own: Optional[Container[str]] = None,
) -> Proposal:
    """
    Return the record for an image. Raise AddingError if it has neither a family nor a name, or no version.

    An image with a new kind of name gets the family that was used last for the software: if `own` are names, only for
    these, which an account has records of; the families of a site are made for other images.
    """
    image = NewImage(found, version, programs, ask)
    check_file_name(image.file_name)
    candidates = [
        candidate
        for document in documents
        if name in (None, document.name)
        for candidate in candidates_in(document, image, family, bool(name))
    ]
    if candidates:
        return propose_for_family(image, best_of(candidates))
    if family:
        raise AddingError(
            f"no family '{family}' has images named like {image.file_name}: choose another one, or leave "
            "it out and give a --name"
        )
    guess = name or guess_name(image.file_name, [document.name for document in documents])
    name = name or ask("Name of the software (no family of the catalog has images with such a name)", guess) or guess
    if not name:
        raise AddingError(
            f"no family of the catalog has images named like {image.file_name}: start one with --name NAME"
        )
    same_name = next((document for document in documents if document.name == name and document.containers), None)
    if same_name and (own is None or name in own):
        return propose_for_software(image, same_name)
    return propose_new_software(image, name, same_name.families if same_name else ())


def guess_name(file_name: str, known: Iterable[str]) -> Optional[str]:
    """Return the likely name of the software in an image: the first word of the file name, as catalogs spell it."""
    spelled = {name.lower(): name for name in [*(path.stem for path in site.SITES.glob("*/containers/*.yaml")), *known]}
    words = re.match(r"[A-Za-z]+(?:[-_][A-Za-z]+)*", file_name.partition(".")[0])
    # the longest beginning that is a name
    parts = re.split(r"[-_]", words[0]) if words else []
    begins = [words[0][: len("-".join(parts[:number]))] for number in range(len(parts), 0, -1)] if words else []
    return next((spelled[one.lower()] for one in begins if one.lower() in spelled), parts[0] if parts else None)


def check_file_name(name: str) -> None:
    """Raise AddingError if a file can't have its name in the catalog."""
    if PLACEHOLDER.search(name) or CONTROL.search(name):
        raise AddingError(
            f"'{escape(name)}' can't be the name of an image in the catalog, which takes words in "
            "braces for placeholders, and lines without control characters: give the file another name"
        )


def propose_for_family(image: NewImage, candidate: Candidate) -> Proposal:
    """Return the proposal for an image of a known family."""
    values: dict[str, Any] = {"family": candidate.family}
    reviews = {"family": candidate.doubt} if candidate.doubt else {}
    fields = dict(candidate.fields)
    take_version(image, candidate, fields, values, reviews)
    take_date(image, candidate, fields, values, reviews)
    values.update({key: fields.pop(key) for key in ("hash", "variant", "label") if key in fields})
    take_python(image, candidate, fields, values, reviews)
    components, differing = components_of(image.found, candidate.document, fields)
    of_the_family = candidate.defaults["components"]
    components = {key: version for key, version in components.items() if of_the_family.get(key) != version}
    if components:
        values["components"] = components
    if differing:
        reviews["components"] = "; ".join(differing)
    values.update(conda_of(image.found, candidate))
    if is_activated_otherwise(image.found.init, candidate.defaults):
        values["init"] = image.found.init
    values.update(identity_of(image.found))
    return Proposal(candidate.document.name, candidate.family, values, reviews)


def take_version(
    image: NewImage, candidate: Candidate, fields: FieldTexts, values: dict[str, Any], reviews: FieldTexts
) -> None:
    """Set the version: from the user, the file name, a component, or the image."""
    name, package = candidate.document.name, candidate.defaults["package"]
    in_name = fields.pop("version", None)
    values["version"] = image.version or in_name or version_of_component(candidate.document, fields)
    if not values["version"]:
        values["version"], review = image.version_of(name, package)
        if review:
            reviews["version"] = review
        return
    packages = packages_of(image.found)
    own = next((packages[one] for one in packages_named(name, package) if one in packages), "").split("+")[0]
    if own and not (image.version or image.found.release) and not is_same(own, values["version"]):
        reviews["version"] = f"from the file name; the package in the image is {own}"


def version_of_component(document: CatalogFile, fields: FieldTexts) -> Optional[str]:
    """Return the component that is the version in all records of a file, if there is one."""
    return next(
        (
            value
            for name, value in fields.items()
            if document.containers
            and all(
                document.values_of(record)["components"].get(name) == record.version for record in document.containers
            )
        ),
        None,
    )


def take_date(
    image: NewImage, candidate: Candidate, fields: FieldTexts, values: dict[str, Any], reviews: FieldTexts
) -> None:
    """Set the date: from the file name, or the file's modification date if the family needs one."""
    if "date" in fields:
        values["date"] = fields.pop("date")
    elif "{date}" in (candidate.defaults["suffix"] or ""):
        written = None if image.found.source else Path(image.found.resolved).stat().st_mtime
        values["date"] = image.found.created or time.strftime("%Y%m%d", time.localtime(written))
        if not image.found.created:
            reviews["date"] = "today" if image.found.source else "the day the file was written"


def take_python(
    image: NewImage, candidate: Candidate, fields: FieldTexts, values: dict[str, Any], reviews: FieldTexts
) -> None:
    """Set the version of Python if it differs from the family's."""
    in_name, inside = fields.pop("python", None), image.python
    python = in_name or inside
    differ = in_name and inside and in_name != inside
    if python and (differ or python != candidate.defaults["python"]):
        values["python"] = python
    if differ and image.found.python:
        reviews["python"] = f"from the file name; in the image it is {image.found.python.version}"


def components_of(found: Inspection, document: CatalogFile, fields: FieldTexts) -> tuple[FieldTexts, list[str]]:
    """Return components, and disagreements between file name and image."""
    components, differing = dict(fields), []
    for key, version in found.components.items():
        if key in components and not version.startswith(components[key]):
            differing.append(f"{key} is {components[key]} in the file name, {version} in the image")
        components.setdefault(key, version)
    # packages that are components in other records of this name
    packages = {**versions_by_name(found.listed), **packages_of(found)}
    for key in sorted({key for record in document.containers for key in document.values_of(record)["components"]}):
        listed_version = packages.get(normal_name(key))
        if listed_version and key not in components:
            components[key] = listed_version
    return components, differing


def identity_of(found: Inspection) -> FieldTexts:
    """Return the fields that say which image it is: its source, SHA256 and size."""
    values = {"source": found.source} if found.source else {}
    if found.sha256:
        values["sha256"] = found.sha256
        if found.size:
            values["size"] = str(found.size)
    return values


def conda_of(found: Inspection, candidate: Candidate) -> FieldTexts:
    """Return path and name of the Conda environment if they differ from the family's."""
    if found.init not in INIT_CONDA:
        return {}
    usual = {"conda_root": CONDA_ROOT, "conda_env": candidate.document.name.lower()}
    inside = {key: getattr(found, key) for key in usual}
    return {key: value for key, value in inside.items() if value and value != (candidate.defaults[key] or usual[key])}


def file_template(file_name: str, version: str) -> str:
    """Return a file name with a placeholder for the version, or unchanged if it doesn't contain the version."""
    template = insert_placeholders(file_name, {"version": version})
    return template if template != file_name else insert_placeholders(file_name, {"version": version}, glued=True)


def propose_for_software(image: NewImage, document: CatalogFile) -> Proposal:
    """Return the proposal for known software with a new kind of file name, based on the family used last."""
    family = document.containers[-1].family
    defaults = document.family_values(family)
    image.version, review = image.version_of(document.name, defaults["package"])
    candidate = Candidate(document, family, defaults, {}, doubt_about(image, defaults), 0)
    proposal = propose_for_family(image, candidate)
    doubts = ["its other images are named differently", *([candidate.doubt] if candidate.doubt else [])]
    proposal.reviews["family"] = ", ".join(doubts)
    if review:
        proposal.reviews["version"] = review
    version = {key: proposal.values.pop(key) for key in ("family", "version")}
    proposal.values = {**version, "file": file_template(image.file_name, version["version"]), **proposal.values}
    return proposal


def propose_new_software(image: NewImage, name: str, families: Container[str] = ()) -> Proposal:
    """Return the proposal for new software, with a new family, whose name is not that of another one."""
    found = image.found
    reviews: FieldTexts = {}
    version, review = image.version_of(name)
    if review:
        reviews["version"] = review
    family: dict[str, Any] = {"file": file_template(image.file_name, version), "init": found.init}
    if family["file"] == image.file_name:
        reviews["file"] = "the name has no version, so it fits only this image: the next one needs another record"
    family.update(python_of(image, reviews))
    components = dict(found.components)
    package = next((one for one in packages_named(name) if one in packages_of(found)), None)
    if package and found.release:
        components[package] = packages_of(found)[package]
    elif package and package != normal_name(name):
        family["package"] = package
    family.update(texts_of(found, name, reviews))
    family_name = name.lower() + "-own" * (name.lower() in families)
    values: dict[str, Any] = {"family": family_name, "version": version}
    if components:
        values["components"] = components
    values.update(identity_of(found))
    return Proposal(name, family_name, values, reviews, new_family=family)


def python_of(image: NewImage, reviews: FieldTexts) -> dict[str, Any]:
    """Return the fields of a new family that concern Python."""
    from easybuild.easyblocks.generic.container.probe import why_no_venv

    found = image.found
    family: dict[str, Any] = {}
    if found.python:
        reason = why_no_venv(found.python.listing)
        family.update(venv=not reason, python=image.python)
        if reason:
            reviews["venv"] = reason
    for key in ("conda_root", "conda_env"):
        if getattr(found, key) and found.init.startswith("conda"):
            family[key] = getattr(found, key)
    return family


def texts_of(found: Inspection, name: str, reviews: FieldTexts) -> FieldTexts:
    """Return homepage and description from an image's labels; placeholders where it has none."""
    homepage = next(
        (text for name in HOMEPAGE_LABELS if (text := line_of(found.labels.get(name))) and re.match("https?://", text)),
        None,
    )
    if not homepage:
        reviews["homepage"] = "a placeholder, because the image has none: enter an address"
    description = line_of(found.labels.get("org.opencontainers.image.description"))
    if not description or PLACEHOLDER.search(description):
        description = f"{name} in a container."
        reviews["description"] = "a placeholder, because the image has none: say what the software does"
    return {"homepage": homepage or NO_HOMEPAGE, "description": description}


def line_of(label: Optional[str]) -> Optional[str]:
    """Return a label if a record can have it."""
    try:
        return is_line((label or "").strip())
    except ValueError:
        return None
