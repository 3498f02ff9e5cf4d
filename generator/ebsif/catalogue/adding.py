"""Adding an image to the catalogue: what its name and content say becomes a record; what is a guess is marked."""

import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from packaging.utils import canonicalize_name

from ebsif.catalogue import reading
from ebsif.catalogue.families import family_values
from ebsif.catalogue.fieldtypes import CONTROL, PLACEHOLDER
from ebsif.catalogue.yamlfile import DocumentError
from ebsif.errors import EbsifError
from ebsif.files import locked, replace
from ebsif.output import plain

# Python packages of software that is called otherwise.
PACKAGES = {"pytorch": ["torch"], "tensorflow": ["tensorflow", "tensorflow-rocm", "tensorflow-cpu"]}

# Labels of an image that say the version of the software in it.
VERSION_LABELS = ("org.opencontainers.image.version", "org.label-schema.version", "version")

# In the name of a file, a version after one of these is not that of the software.
OTHER_SOFTWARE = re.compile(
    r"(?:py|python|cp|conda|rocm|cuda|cu|cudnn|ubuntu|debian|rocky|sles|sp|gcc|glibc|mpich|ompi|openmpi|libfabric)v?",
    re.IGNORECASE)

# A version: two numbers or more, and what may follow.
VERSION = r"\d+(?:\.\d+)+(?:\.?(?:a|b|rc|post|dev)\d+)?"

# Commands that a venv has, whatever the image has.
OF_A_VENV = re.compile(r"(?:python|pip)[0-9.]*")

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
    """Return a text, a number, a list or table of them, or a truth value, as YAML in a line."""
    if isinstance(value, bool):
        return str(value).lower()
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
    for match in PLACEHOLDER.finditer(template):
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
    dotless = {name for name, mark in PLACEHOLDER.findall(template) if mark}
    fields = {}
    for name, _ in PLACEHOLDER.findall(template):
        value = match.group(name.replace("-", "_"))
        if value:
            fields[name] = f"{value[0]}.{value[1:]}" if name in dotless and len(value) > 1 else value
    return fields


def propose(found, documents, name=None, family=None, version=None, programs=None):
    """
    Return the record for an image (Proposal).

    Parameters
    ----------
    found : Inspection
        What is in the image.
    documents : list of CatalogueFile
        The files of the catalogue.
    name, family, version : str, optional
        What a person says of it.
    programs : callable, optional
        Tells which of some paths (list) are programs of the image.

    Raises
    ------
    AddingError
        If no family fits and no name is given, the family that is named does not exist, or nothing says the version.
    """
    programs = programs or set
    file_name = Path(found.resolved).name
    if PLACEHOLDER.search(file_name) or CONTROL.search(file_name):
        raise AddingError(f"'{plain(file_name)}' can't be the name of an image in the catalogue, which takes words in "
                          "braces for placeholders, and lines without control characters: give the file another name")
    candidates = []
    for document in documents:
        for candidate in document.families:
            values = family_values(document, candidate)
            if (name and document.name != name) or (family and candidate != family) or not values["file"]:
                continue
            fields = fields_in(values["file"], file_name)
            used = [index for index, record in enumerate(document.containers) if record.family == candidate]
            if fields is not None and (used or family):
                # who makes Python ready tells generations apart; then the one used last
                fits = (values["init"] or "image") == found.init or {values["init"], found.init} == {
                    "conda-manual", "conda-injected"} and not values["venv"]
                if values["entry_point"]:
                    fits = fits and values["entry_point"] in programs([values["entry_point"]])
                candidates.append((fits, max(used, default=-1), document, candidate, values, fields))
    if candidates:
        fits, _, document, candidate, values, fields = max(candidates, key=lambda one: one[:2])
        return of_family(found, document, candidate, values, fields, fits, version)
    if family:
        raise AddingError(f"no family '{family}' has images named like {file_name}: name another one, or leave it out "
                          "and give a --name")
    if not name:
        raise AddingError(f"no family of the catalogue has images named like {file_name}: give a --name, and a family "
                          "is begun for it")
    same_name = next((document for document in documents if document.name == name and document.containers), None)
    if same_name:
        return of_other_name(found, same_name, file_name, version)
    return of_new_family(found, name, file_name, version)


def packages_of(found):
    """Return the Python packages of an image (dict): versions by normal name."""
    return {canonicalize_name(name): version for name, version in (found.python or {}).get("packages", {}).items()}


def of_family(found, document, family, defaults, fields, fits, given=None):
    """Return the proposal for an image of a known family."""
    values, reviews = {"family": family}, {}
    if not fits:
        made_ready = f"made ready by {found.init} here, by {defaults['init'] or 'image'} in that family"
        entry_point = f"it has no {defaults['entry_point']}, the entry point of that family"
        reviews["family"] = made_ready if found.init != (defaults["init"] or "image") else entry_point
    packages = packages_of(found)
    names = packages_named(document.name, defaults["package"])
    own = next((packages[name] for name in names if name in packages), "").split("+")[0]
    in_name = fields.pop("version", None)
    # the version may be that of a component, as it is in the records that there are
    component = next((value for name, value in fields.items() if document.containers and all(
        record.components.get(name) == record.version for record in document.containers)), None)
    values["version"] = given or in_name or component
    if not values["version"]:
        values["version"], more = version_of(found, names, Path(found.resolved).name, document.name)
        reviews.update(more)
    elif own and not given and not is_same(own, values["version"]):
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


def packages_named(name, package=None):
    """Return the names (list of str) that the Python package of a software may have, in their normal form."""
    name = canonicalize_name(name)
    return [canonicalize_name(package)] if package else PACKAGES.get(name, [name])


def version_of(found, names, file_name, software, given=None):
    """
    Return the version of the software in an image, and what to review.

    Parameters
    ----------
    found : Inspection
        The image.
    names : list of str
        Names that its Python package may have.
    file_name, software : str
        Name of its file, and of the software.
    given : str, optional
        What a person says it is.

    Returns
    -------
    tuple
        Version (str), and a dict that is empty if there is no doubt.

    Raises
    ------
    AddingError
        If nothing says it.
    """
    if given:
        return given, {}
    packages = packages_of(found)
    # an image that says nothing has the label of the system that it was made from
    said = [(f"the label {name}", found.labels[name].removeprefix("v")) for name in VERSION_LABELS
            if re.fullmatch(f"v?{VERSION}.*", found.labels.get(name, ""))
            and not re.search(rf"\b{re.escape(found.labels[name])}\b", found.system)]
    said += [(f"the package {name}", packages[name].split("+")[0]) for name in names if name in packages]
    said += [("the file name", version) for version in versions_in(file_name, software)]
    if not said:
        raise AddingError(f"neither labels, packages nor name of {file_name} say which version of {software} it is: "
                          "add --version VERSION")
    (source, version), *others = said
    other = [f"{one} says {text}" for one, text in others if not is_same(text, version)]
    if other:
        return version, {"version": f"{source} says so, {', '.join(other)}"}
    return version, {"version": "from the file name"} if source == "the file name" else {}


def versions_in(file_name, software):
    """Return what may be the version of a software in a file name (list of str), the likeliest first."""
    found, before = [], ""
    for word in re.split(r"[-_]", file_name.rsplit(".", 1)[0]):
        match = re.fullmatch(rf"([A-Za-z]*?)v?({VERSION})(?:\+.*)?", word)
        what = (match and match.group(1)) or before
        if match and not OTHER_SOFTWARE.fullmatch(what):
            found.append((not what or canonicalize_name(what) not in canonicalize_name(software), match.group(2)))
        before = "" if match else word
    return [version for _, version in sorted(found, key=lambda one: one[0])]


def is_same(one, other):
    """Tell whether two versions may be the same, of which one has more parts."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def of_other_name(found, document, file_name, given=None):
    """Return the proposal for an image of a known software whose file is named as no other: the family used last."""
    family = document.containers[-1].family
    defaults = family_values(document, family)
    version, reviews = version_of(found, packages_named(document.name, defaults["package"]), file_name, document.name,
                                  given)
    fits = (defaults["init"] or "image") == found.init
    proposal = of_family(found, document, family, defaults, {}, fits, version)
    unlike = proposal.reviews.get("family")
    unlike = ["its other images are named differently", *([unlike] if unlike else [])]
    proposal.reviews.update(reviews, family=", ".join(unlike))
    values = {"family": proposal.values.pop("family"), "version": proposal.values.pop("version"),
              "file": file_name.replace(version, "{version}")}
    proposal.values = {**values, **proposal.values}
    return proposal


def of_new_family(found, name, file_name, given=None):
    """Return the proposal for the first image of a name: what the image says, the rest to be looked at."""
    from easybuild.easyblocks.generic.container.probe import why_no_venv

    names = packages_named(name)
    version, reviews = version_of(found, names, file_name, name, given)
    family = {"file": file_name.replace(version, "{version}"), "init": found.init}
    package = next((one for one in names if one in packages_of(found)), None)
    if package and package != canonicalize_name(name):
        family["package"] = package
    if found.python:
        without = why_no_venv(found.python)
        family["venv"] = not without
        if without:
            reviews["venv"] = without
        family["python"] = ".".join(found.python["version"].split(".")[:2])
    for key in ("conda_root", "conda_env"):
        if getattr(found, key) and found.init.startswith("conda"):
            family[key] = getattr(found, key)
    homepage = found.labels.get("org.opencontainers.image.url") or found.labels.get("org.opencontainers.image.source")
    family["homepage"] = homepage or "https://apptainer.org/"
    said = found.labels.get("org.opencontainers.image.description", "").strip()
    if said and not PLACEHOLDER.search(said) and not CONTROL.search(said):
        family["description"] = said
    values = {"family": name.lower(), "version": version}
    if found.components:
        values["components"] = dict(found.components)
    if found.sha256:
        values["sha256"] = found.sha256
    proposal = Proposal(name, name.lower(), values, reviews, new_family=family)
    if not homepage:
        proposal.reviews["homepage"] = "nothing in the image says it"
    return proposal


def compare_programs(proposal, container, programs):
    """
    Leave those wrappers of its family out of a record that the image has no program for, and say so.

    Parameters
    ----------
    proposal : Proposal
        The record.
    container : Container
        What it becomes.
    programs : callable
        Tells which of some names (list) are programs of the image.
    """
    wanted = container.wrappers if isinstance(container.wrappers, list) else []
    filled = {name: container.fill(name) for name in wanted}
    asked = [name for name in filled.values() if not (container.venv and OF_A_VENV.fullmatch(name))]
    missing = set(asked) - programs(asked) if asked else set()
    if missing:
        proposal.values["wrappers"] = [name for name in wanted if filled[name] not in missing]
        proposal.reviews["wrappers"] = f"the image has no {', '.join(sorted(missing))}, which the family has"


def write(proposal, path, extended=(), complete=None):
    """
    Add a record to a file of the catalogue, which is otherwise left as it is, comments included.

    Parameters
    ----------
    proposal : Proposal
        The record.
    path : Path
        The file; it is begun if it is not there.
    extended : sequence of Path
        The file that it adds to, the one that that adds to, and so on.
    complete : callable, optional
        What belongs to it; if that fails, the file is as it was.

    Raises
    ------
    AddingError
        If the file does not end in its records.
    DocumentError
        If the result is not as it should be; nothing was written then.
    """
    with locked(path.parent):
        before, text = with_record(proposal, path, extended)
        # somebody else may have added the image in the meantime
        if text == before:
            return
        replace(path, text)
        try:
            if complete:
                complete()
        except BaseException:
            path.unlink() if before is None else replace(path, before)
            raise


def with_record(proposal, path, extended):
    """Return the text of a file (None if it is not there), and with one more record unless it has it; see `write`."""
    before = path.read_text(encoding="utf-8") if path.is_file() else None
    start = beginning(proposal, bool(extended)) if before is None else before
    if start and not start.endswith("\n"):
        start += "\n"
    if not re.search(r"^containers:\n(?:[ #].*\n|\n)*\Z", start, re.MULTILINE):
        raise AddingError(f"{path} does not end in its containers: add this record by hand\n{proposal.text}")
    text = start + proposal.text
    *others, added = parsed(text, path, None, extended)
    same = [other for other in others if other.path == added.path and other.values == added.values]
    return before, before if same else text


def parsed(text, path, site, extended):
    """Return the containers of a site in a file with this text (list of Container), with those it adds to."""
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / path.name
        new.write_text(text, encoding="utf-8")
        try:
            containers = reading.read_file(new, site, *extended)
        except DocumentError as error:
            raise DocumentError(*(problem._replace(path=path if problem.path == new else problem.path)
                                  for problem in error.problems)) from None
    for container in containers:
        container.path = path if container.path == new else container.path
    return containers


def beginning(proposal, extends=False):
    """Return the text of a new file, without a record."""
    lines = [f"name: {proposal.name}"]
    if extends:
        lines.append("extends: true")
    if proposal.new_family:
        lines += ["families:", f"  {proposal.family}:"]
    for key, value in (proposal.new_family or {}).items():
        review = f"  # review: {plain(proposal.reviews[key])}" if key in proposal.reviews else ""
        lines.append(f"    {key}: {as_yaml(value)}{review}")
    return "".join(line + "\n" for line in [*lines, "containers:"])
