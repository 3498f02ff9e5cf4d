"""Adding an image to the catalogue: what its name and content say becomes a record; what is a guess is marked."""

import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ebsif import catalogue
from ebsif.document import load, validate
from ebsif.errors import EbsifError
from ebsif.files import locked, replace
from ebsif.output import plain
from ebsif.site import CONTROL
from packaging.utils import canonicalize_name

# Where a field may end: in the name of an image versions stand between hyphens.
FIELD = "[A-Za-z0-9_.+]+?"


class AddingError(EbsifError):
    """An image can't be added; the message says why and what to do."""


@dataclass
class Proposal:
    """A record as it would be written."""

    name: str
    family: str
    values: dict
    reviews: dict = field(default_factory=dict)
    new_family: Optional[dict] = None

    @property
    def text(self):
        """The record in YAML, with a comment at every field that is a guess."""
        lines = []
        for number, (key, value) in enumerate(self.values.items()):
            review = f"  # review: {plain(self.reviews[key])}" if key in self.reviews else ""
            lines.append(f"{'  - ' if not number else '    '}{key}: {as_yaml(value)}{review}")
        return "".join(line + "\n" for line in lines)


def as_yaml(value):
    """Return a text, a number, a list or table of them, or True, as YAML in a line."""
    if value is True:
        return "true"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(as_yaml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_yaml(item)}" for key, item in value.items()) + "}"
    value = str(value)
    plain = re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9_./+-]*", value) and value not in ("true", "false", "null")
    return value if plain else "'" + value.replace("'", "''") + "'"


def pattern(template):
    """Return the regular expression that reads the fields from a name which a template would give (re.Pattern)."""
    parts, end, seen = [], 0, set()
    for match in catalogue.PLACEHOLDER.finditer(template):
        parts.append(re.escape(template[end : match.start()]))
        name, dotless = match.groups()
        group = name.replace("-", "_")
        if group in seen:
            parts.append(f"(?P={group})")
        elif name in ("variant", "label"):
            parts.append(f"(?:-(?P<{group}>[A-Za-z0-9_.+-]+?))?")
        else:
            parts.append(f"(?P<{group}>{r'[0-9]+' if dotless else FIELD})")
        seen.add(group)
        end = match.end()
    return re.compile("".join(parts) + re.escape(template[end:]) + r"\Z")


def fields_in(template, file_name):
    """
    Return what a file name says (dict), None if it is none of this template.

    Versions without dots get one after the first digit: 210 is 2.10.
    """
    match = pattern(template).match(file_name)
    if not match:
        return None
    dotless = {name for name, mark in catalogue.PLACEHOLDER.findall(template) if mark}
    fields = {}
    for name, _ in catalogue.PLACEHOLDER.findall(template):
        value = match.group(name.replace("-", "_"))
        if value:
            fields[name] = f"{value[0]}.{value[1:]}" if name in dotless and len(value) > 1 else value
    return fields


def propose(found, documents, name=None, family=None):
    """
    Return the record for an image (Proposal).

    Parameters
    ----------
    found : Inspection
        What is in the image.
    documents : list of Document
        The files of the catalogue.
    name, family : str, optional
        What a person says of it.

    Raises
    ------
    AddingError
        If no family fits and no name is given, or the family that is named does not exist.
    """
    file_name = Path(found.resolved).name
    if catalogue.PLACEHOLDER.search(file_name) or CONTROL.search(file_name):
        raise AddingError(f"'{plain(file_name)}' can't be the name of an image in the catalogue, which takes words in "
                          "braces for placeholders, and lines without control characters: give the file another name")
    candidates = []
    for document in documents:
        for candidate in document.families:
            values = catalogue.family_values(document, candidate)
            if (name and document.name != name) or (family and candidate != family) or not values["file"]:
                continue
            fields = fields_in(values["file"], file_name)
            used = [index for index, record in enumerate(document.containers) if record.family == candidate]
            if fields is not None and (used or family):
                # who makes Python ready tells generations apart; then the one used last
                fits = (values["init"] or "image") == found.init or {values["init"], found.init} == {
                    "conda-manual", "conda-injected"} and not values["venv"]
                candidates.append((fits, max(used, default=-1), document, candidate, values, fields))
    if candidates:
        fits, _, document, candidate, values, fields = max(candidates, key=lambda one: one[:2])
        return of_family(found, document, candidate, values, fields, fits)
    if family:
        raise AddingError(f"no family '{family}' has images named like {file_name}: name another one, or leave it out "
                          "and give a --name")
    if not name:
        raise AddingError(f"no family of the catalogue has images named like {file_name}: give a --name, and a family "
                          "is begun for it")
    same_name = next((document for document in documents if document.name == name and document.containers), None)
    if same_name:
        return of_other_name(found, same_name, file_name)
    return of_new_family(found, name, file_name)


def packages_of(found):
    """Return the Python packages of an image (dict): versions by normal name."""
    return {canonicalize_name(name): version for name, version in (found.python or {}).get("packages", {}).items()}


def of_family(found, document, family, defaults, fields, fits):
    """Return the proposal for an image of a known family."""
    values, reviews = {"family": family}, {}
    if not fits:
        reviews["family"] = f"made ready by {found.init} here, by {defaults['init'] or 'image'} in that family"
    packages = packages_of(found)
    own = packages.get(canonicalize_name(defaults["package"] or document.name))
    values["version"] = fields.pop("version", None) or (own or "").split("+")[0]
    if not values["version"]:
        values["version"] = "0"
        reviews["version"] = "neither file name nor packages say it"
    elif own and own.split("+")[0] != values["version"]:
        reviews["version"] = f"the file name says so, the package in the image is {own}"
    if "date" in fields:
        values["date"] = fields.pop("date")
    elif "{date}" in (defaults["suffix"] or ""):
        values["date"] = time.strftime("%Y%m%d", time.localtime(Path(found.resolved).stat().st_mtime))
        reviews["date"] = "the day the file was written"
    for key in ("hash", "variant", "label"):
        if key in fields:
            values[key] = fields.pop(key)
    python = fields.pop("python", None)
    inside = found.python and ".".join(found.python["version"].split(".")[:2])
    if (python or inside) and (python or inside) != defaults["python"]:
        values["python"] = python or inside
    if python and inside and python != inside:
        reviews["python"] = f"the file name says so, in the image it is {found.python['version']}"
        values["python"] = python
    components, differing = components_of(found, document, fields, packages)
    if components:
        values["components"] = components
    if differing:
        reviews["components"] = "; ".join(differing)
    for key in ("conda_root", "conda_env"):
        value = getattr(found, key)
        known = defaults[key] or {"conda_root": "/opt/miniconda3", "conda_env": document.name.lower()}[key]
        if value and value != known and found.init in ("conda-injected", "conda-manual"):
            values[key] = value
    if found.sha256:
        values["sha256"] = found.sha256
    return Proposal(document.name, family, values, reviews)


def components_of(found, document, fields, packages):
    """Return components (dict) and where file name and image disagree (list of str)."""
    components, differing = dict(fields), []
    for key, version in found.components.items():
        if key in components and not version.startswith(components[key]):
            differing.append(f"{key} is {components[key]} by the file name, {version} in the image")
        components.setdefault(key, version)
    # what the records of this name are known by
    wanted = {key for record in document.containers for key in record.components}
    for key in sorted(wanted):
        version = packages.get(canonicalize_name(key))
        if version and key not in components:
            components[key] = version
    return components, differing


def version_of(found, name, file_name):
    """Return the version of the software in an image (str), empty if nothing says it, and what to review (dict)."""
    own = packages_of(found).get(canonicalize_name(name), "").split("+")[0]
    numbers = re.findall(r"\d+(?:\.\d+)+", file_name)
    version = own or found.labels.get("org.opencontainers.image.version") or (numbers[0] if numbers else "")
    review = "from the file name" if version else "nothing in the image says it"
    return version, {} if own else {"version": review}


def of_other_name(found, document, file_name):
    """Return the proposal for an image of a known software whose file is named as no other: the family used last."""
    family = document.containers[-1].family
    defaults = catalogue.family_values(document, family)
    version, reviews = version_of(found, defaults["package"] or document.name, file_name)
    proposal = of_family(found, document, family, defaults, {"version": version or "0"}, fits=True)
    proposal.reviews.update(reviews, family="its other images are named differently")
    values = {"family": proposal.values.pop("family"), "version": proposal.values.pop("version"),
              "file": file_name.replace(version, "{version}") if version else file_name}
    proposal.values = {**values, **proposal.values}
    return proposal


def of_new_family(found, name, file_name):
    """Return the proposal for the first image of a name: what the image says, the rest to be looked at."""
    version, reviews = version_of(found, name, file_name)
    family = {"file": file_name.replace(version, "{version}") if version else file_name, "init": found.init}
    if found.python:
        family["venv"] = True
        family["python"] = ".".join(found.python["version"].split(".")[:2])
    for key in ("conda_root", "conda_env"):
        if getattr(found, key) and found.init.startswith("conda"):
            family[key] = getattr(found, key)
    homepage = found.labels.get("org.opencontainers.image.url") or found.labels.get("org.opencontainers.image.source")
    family["homepage"] = homepage or "https://apptainer.org/"
    values = {"family": name.lower(), "version": version or "0"}
    if found.components:
        values["components"] = dict(found.components)
    if found.sha256:
        values["sha256"] = found.sha256
    proposal = Proposal(name, name.lower(), values, reviews, new_family=family)
    if not homepage:
        proposal.reviews["homepage"] = "nothing in the image says it"
    return proposal


def write(proposal, path, source=None):
    """
    Add a record to a file of the catalogue, which is otherwise left as it is, comments included.

    Parameters
    ----------
    proposal : Proposal
        The record.
    path : Path
        The file; it is begun if it is not there.
    source : Path, optional
        The file of the project that this one takes the place of.

    Raises
    ------
    AddingError
        If the file does not end in its records.
    DocumentError
        If the result is not as it should be; nothing was written then.
    """
    with locked(path.parent):
        text = with_record(proposal, path, source)
        if text:
            replace(path, text)


def with_record(proposal, path, source):
    """Return the text of a file with one more record (str), None if it has that record already; see `write`."""
    origin = path if path.is_file() else source
    before = origin.read_text(encoding="utf-8") if origin else beginning(proposal)
    if before and not before.endswith("\n"):
        before += "\n"
    if not re.search(r"^containers:\n(?:[ #].*\n|\n)*\Z", before, re.MULTILINE):
        raise AddingError(f"{origin or path} does not end in its containers: add this record by hand\n{proposal.text}")
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / path.name
        new.write_text(before + proposal.text, encoding="utf-8")
        *others, added = validate(catalogue.Document, load(new), new).containers
    # somebody else may have added the image in the meantime
    return None if added in others else before + proposal.text


def beginning(proposal):
    """Return the text of a new file, without a record."""
    lines = [f"name: {proposal.name}", "families:", f"  {proposal.family}:"]
    for key, value in proposal.new_family.items():
        review = f"  # review: {plain(proposal.reviews[key])}" if key in proposal.reviews else ""
        lines.append(f"    {key}: {as_yaml(value)}{review}")
    return "".join(line + "\n" for line in [*lines, "containers:"])
