"""The catalogue: what is known about each container of a site, read from ``<site>/containers/<Name>.yaml``.

A file has the records of one name and the families they belong to. What a record leaves out comes from its family, then
from the families that one extends, then from the site.
"""

import contextlib
import os
import re
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator

from ebsif.catalogue import selection
from ebsif.catalogue.site import Binds, GpuKind, GpuVisibility, Images, Line, Site, Value, Variable
from ebsif.catalogue.yamlfile import DocumentError, Loader, Model, Problem, explained, invalid, load
from ebsif.errors import EbsifError
from ebsif.files import is_there

# What joins a family with what it extends, and a record with its family.
ADDED = ("conflicts", "definition_files", "warnings")
MERGED = ("components", "container_env", "variables", "image_packages", "script_names", "parameters")

# Parameters of an easyconfig that are written from what has another name here, or from the site.
WRITTEN_FROM = {
    "easyblock": "venv", "versionsuffix": "suffix", "toolchain": "nothing: it is SYSTEM", "sources": "file",
    "checksums": "sha256", "modextravars": "variables", "optional_binds": "binds", "library_binds": "binds",
    "bind_file": "binds", "image_root": "images", "image_root_variable": "images", "image_dirs": "images",
    "support_level": "support",
    **dict.fromkeys(("gpu_mpi_library", "listed_packages", "network_env", "one_container", "scheduler"), "the site")}

# Begins the name of a variable with the version of a container that is meant where none is given.
DEFAULT_VERSION = "EBSIF_VERSION_"

PLACEHOLDER = re.compile(r"\{([\w-]+)(!dotless)?\}")


# A file that adds to the one of the same name in the catalogue that comes next.
EXTENDS = re.compile(r"^extends:[ \t]*true[ \t]*(?:#.*)?$", re.MULTILINE)


class CatalogueError(EbsifError):
    """A container is not in the catalogue, or a record can't be completed; the message says what there is."""


class RecordError(CatalogueError):
    """
    Something is wrong with a record.

    Parameters
    ----------
    container : Container
        The container of the record.
    text : str
        What is wrong.
    """

    def __init__(self, container, text):
        """Say where the record is as well."""
        super().__init__(f"{container.place}: {container.name} {container.version}: {text}")
        self.text = text


def is_component(text):
    """Return a text if it can be a version, or another value in the name of a file or module."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", text):
        raise ValueError("should be letters, digits and _ . + - only")
    return text


def is_suffix(text):
    """Return a text if it can be a version suffix, which is part of the name of a file, once it is filled."""
    if not re.fullmatch(r"[A-Za-z0-9_.+-]*", PLACEHOLDER.sub("", text)):
        raise ValueError("should be letters, digits, _ . + - and placeholders only: it's part of a file name")
    return text


def is_parameter(name):
    """Return a name if it can be that of an easyconfig parameter that has no field here."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError("can't be the name of an easyconfig parameter (small letters, digits and _ only)")
    if name in WRITTEN_FROM or name in Record.model_fields or name == "name":
        raise ValueError(f"this parameter is written from {WRITTEN_FROM.get(name, f'the field {name!r}')}")
    return name


Component = Annotated[str, AfterValidator(is_component)]
Suffix = Annotated[str, AfterValidator(is_suffix)]
Text = Annotated[str, Field(min_length=1)]
Command = Union[str, list[str]]


class Stage(Model):
    """One call of pip; see the easyconfig parameter ``requirements``."""

    name: Optional[Line] = None
    requirements: Union[str, list[str]] = ""
    options: list[str] = []
    env: dict[Variable, str] = {}
    no_build_isolation: bool = False
    no_deps: bool = False
    no_binary: list[str] = []
    index_url: Optional[Line] = None
    extra_index_url: list[Line] = []
    find_links: list[Line] = []
    heavy: bool = False
    upgrade_pip: bool = False
    modules: list[Line] = []
    patches: list[Line] = []
    allow_replace: list[str] = []
    pre: list[Command] = []
    post: list[Command] = []
    verify: list[Command] = []


class Fields(Model):
    """What a family may say for its containers, and a record for itself."""

    homepage: Optional[Line] = None
    description: Optional[Text] = Field(None, description="what it is, with placeholders; the components are added")
    suffix: Optional[Suffix] = Field(None, description="version suffix, with placeholders: -rocm-{rocm}-{date}")
    file: Optional[Line] = Field(None, description="file name of the image, with placeholders")
    package: Optional[Component] = Field(None, description="name of its Python package, where it is another one")
    python: Optional[Component] = Field(None, description="version of Python in the image")
    init: Optional[Literal["image", "conda-injected", "conda-manual", "venv-in-image", "none"]] = Field(
        None, description="who makes Python ready in the image")
    conda_root: Optional[Line] = None
    conda_env: Optional[Line] = Field(None, description="Conda environment in the image")
    entry_point: Optional[Line] = Field(
        None, description="program of the image through which programs are started, for what it sets")
    venv: Optional[bool] = Field(None, description="whether there is user software, with a venv")
    venv_name: Optional[Component] = None
    image: Optional[Literal["own", "central"]] = Field(None, description="whether the image is copied")
    images: Optional[Images] = Field(None, description="where the image is, instead of where the site has images")
    binds: Optional[Binds] = Field(None, description="binds in addition to those of the site")
    gpu: Optional[GpuKind] = Field(None, description="kind of GPU, where it is not that of the site")
    gpu_option: Optional[bool] = Field(
        None, description="whether the runtime's option for the GPU is used, where it is not as the site has it")
    gpu_visibility: Optional[GpuVisibility] = Field(
        None, description="GPUs that a rank sees, where it is not as the site has it")
    components: dict[Component, Component] = Field({}, description="what is in the image, by name, with versions")
    image_packages: dict[Component, Component] = Field({}, description="packages to be checked at installation")
    container_env: dict[Variable, Value] = Field({}, description="variables in the container")
    variables: dict[Variable, Value] = Field({}, description="variables that the module sets")
    wrappers: Union[list[Line], Literal["all"], None] = Field(None, description="programs that become commands")
    script_names: dict[Line, Line] = Field({}, description="more names of commands and run scripts")
    masked_paths: Union[list[Line], dict[Line, Optional[Line]], None] = None
    definition_files: list[Line] = Field([], description="files the image was built from")
    conflicts: list[Line] = Field([], description="modules, in addition to those of the site")
    requirements: Union[str, list[Line], list[Stage], None] = Field(None, description="Python packages to install")
    support: Optional[Line] = Field(None, description="how it is supported, for the help")
    usage: Optional[Text] = Field(None, description="how it is used, for the help")
    warnings: list[Line] = Field([], description="texts to show at installation and in the help")
    moduleclass: Optional[Component] = None
    parameters: dict[Annotated[str, AfterValidator(is_parameter)], Any] = Field(
        {}, description="parameters of EasyBuild that have no field here, written as they are: whatis, hidden ...")
    doc: Optional[Line] = Field(None, description="a line for the site's list of software")


class Family(Fields):
    """What containers have in common."""

    extends: Optional[Line] = Field(None, description="name of another family of the file")


class Record(Fields):
    """One container."""

    family: Line = Field(description="name of a family of the file")
    version: Component
    date: Optional[Component] = None
    hash: Optional[Component] = Field(None, description="what tells builds of the image apart in its file name")
    variant: Optional[Component] = Field(None, description="part of the suffix after the versions")
    label: Optional[Component] = Field(None, description="part of the suffix that tells modules of one image apart")
    sha256: Optional[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = None
    archived: bool = Field(False, description="no longer recommended")
    moving: bool = Field(False, description="meant to be taken from a directory whose links move")
    history: Optional[Text] = Field(None, description="what happened to it")


class Document(Model):
    """A file of the catalogue."""

    name: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
    extends: bool = Field(False, description="whether it adds to the families and containers of the file of the same "
                                             "name in the catalogue that comes next, instead of taking its place")
    families: dict[Line, Family] = {}
    containers: list[Record]

    @model_validator(mode="after")
    def check(self):
        """Families that are named exist, as far as they should be in this file."""
        if not self.extends:
            check_families(self, self.families)
        return self


def check_families(document, families):
    """Stop (ValidationError) if families that a file names are not there, or extend themselves."""
    wrong = []
    known = f"(known: {', '.join(families) or 'none'})"
    for name, family in document.families.items():
        seen = [name]
        while family.extends:
            where = ("families", seen[-1], "extends")
            if family.extends in seen:
                wrong.append((where, f"the family '{name}' extends itself"))
                break
            if family.extends not in families:
                wrong.append((where, f"the family '{seen[-1]}' extends '{family.extends}', which is not there {known}"))
                break
            seen.append(family.extends)
            family = families[family.extends]
    for number, record in enumerate(document.containers):
        if record.family not in families:
            wrong.append((("containers", number, "family"), f"unknown family '{record.family}' {known}"))
    if wrong:
        raise invalid(*wrong)


class Container:
    """
    A container: a record completed by its family and its site.

    Parameters
    ----------
    name : str
        Name of the software.
    values : dict
        The fields of record and families, joined.
    site : Site
        Where it is.
    path : Path
        The file with the record.
    index : int
        Its place among the records of the file, from 0.
    """

    def __init__(self, name, values, site, path, index):
        """Keep what is known."""
        self.name = name
        self.site = site
        self.path = path
        self.index = index
        self._values = values

    def __getattr__(self, field):
        """A field of record or family."""
        if field.startswith("_"):
            raise AttributeError(field)
        try:
            return self._values[field]
        except KeyError:
            raise AttributeError(field) from None

    def but(self, **changes):
        """Return the same container with other values (Container)."""
        return Container(self.name, {**self._values, **changes}, self.site, self.path, self.index)

    @cached_property
    def fields(self):
        """What placeholders stand for (dict of str)."""
        fields = dict(self.components)
        fields.update(name=self.name, version=self.version)
        for field in ("date", "hash", "python"):
            if self._values[field]:
                fields[field] = self._values[field]
        for field in ("variant", "label"):
            fields[field] = f"-{self._values[field]}" if self._values[field] else ""
        return fields

    def fill(self, text):
        """
        Return a text with its placeholders filled: {rocm} is 6.2.4, {rocm!dotless} is 624.

        Raises
        ------
        CatalogueError
            If there is no value for one.
        """
        def value(match):
            name, dotless = match.groups()
            if name not in self.fields:
                raise RecordError(self, f"nothing stands for {{{name}}} in '{text}' (known: "
                                        f"{', '.join(sorted(self.fields))})")
            return self.fields[name].replace(".", "") if dotless else self.fields[name]

        return PLACEHOLDER.sub(value, text)

    @cached_property
    def versionsuffix(self):
        """The version suffix (str)."""
        return self.fill(self.suffix or "")

    @cached_property
    def file_name(self):
        """File name of the image (str)."""
        if not self.file:
            raise RecordError(self, "file is missing, in record and family")
        return self.fill(self.file)

    @property
    def place(self):
        """File and line of its record (str)."""
        return f"{self.path}:{self.line_of()}"

    def line_of(self, field=None):
        """Return the line of a field of its record, or of the record if that does not have it (int, from 1)."""
        if self.path is None:
            return 1
        try:
            lines = record_lines(self.path, self.path.stat().st_mtime_ns)[self.index]
        except (OSError, IndexError):  # it is not in the file yet
            return 1
        return lines.get(field, lines[None])

    @property
    def full_version(self):
        """Version and suffix, which is the second part of the name of the module (str)."""
        return self.version + self.versionsuffix

    @property
    def module(self):
        """Name of the module (str)."""
        return f"{self.name}/{self.full_version}"

    @property
    def module_or_version(self):
        """Name of the module, or what is known of it if the suffix can't be completed (str)."""
        try:
            return self.module
        except CatalogueError:
            return f"{self.name}/{self.version}"

    @property
    def easyconfig_name(self):
        """File name of the easyconfig (str)."""
        return f"{self.name}-{self.full_version}.eb"

    @cached_property
    def all_binds(self):
        """The binds of the site and its own (Binds)."""
        site, own = self.site.binds, self.binds or Binds()
        return Binds(
            required=[*site.required, *own.required], optional=[*site.optional, *own.optional],
            libraries={**site.libraries, **own.libraries}, file=own.file or site.file)

    @property
    def image_places(self):
        """Where its image is looked for (list of (stability, Path)), in order."""
        images = self.images or self.site.images
        return [(one.stability, Path(images.root or "/") / self.fill(one.path) / self.file_name)
                for one in images.directories]

    @property
    def moving_image(self):
        """Its image (Path) where only links that move lead to it, and the record does not say that it's meant."""
        places = [(stability, path) for stability, path in self.image_places if is_there(path)]
        only = places and not self.moving and all(stability == "moving" for stability, _ in places)
        return places[0][1] if only else None

    @property
    def gpu_kind(self):
        """Kind of GPU (str), 'none' if there is none."""
        return self.gpu or self.site.gpu

    @property
    def uses_gpu_option(self):
        """Whether the module uses the runtime's option for the GPU (bool)."""
        return self.site.gpu_option if self.gpu_option is None else self.gpu_option

    @property
    def stages(self):
        """The stages of requirements (list of dict), as the easyconfig parameter has them; empty for a plain block."""
        if is_stages(self.requirements):
            return [stage.model_dump(exclude_defaults=True) for stage in self.requirements]
        return []


def join(defaults, more):
    """Return the fields of two levels joined (dict): the more particular one wins, lists and tables are added to."""
    joined = dict(defaults)
    for field, value in more.items():
        if field in MERGED:
            joined[field] = {**joined.get(field, {}), **value}
        elif field in ADDED:
            joined[field] = [*joined.get(field, []), *value]
        elif field == "binds" and joined.get("binds"):
            before = joined["binds"]
            joined[field] = Binds(
                required=[*before.required, *value.required], optional=[*before.optional, *value.optional],
                libraries={**before.libraries, **value.libraries}, file=value.file or before.file)
        elif field == "requirements" and is_stages(value) and is_stages(joined.get(field)):
            joined[field] = join_stages(joined[field], value)
        else:
            joined[field] = value
    return joined


def is_stages(requirements):
    """Tell whether requirements are stages."""
    return isinstance(requirements, list) and bool(requirements) and isinstance(requirements[0], Stage)


def join_stages(stages, more):
    """Return stages (list of Stage) in which those of the same name are completed, and others follow."""
    joined = {stage.name or number: stage for number, stage in enumerate(stages)}
    for number, stage in enumerate(more, len(stages)):
        name = stage.name or number
        joined[name] = joined[name].model_copy(update=said(stage)) if name in joined else stage
    return list(joined.values())


# what every container has a value for
EMPTY: dict[str, Any] = {
    **dict.fromkeys([*Family.model_fields, *Record.model_fields]), **dict.fromkeys(MERGED, {}),
    **dict.fromkeys(ADDED, [])}


def said(model):
    """Return the fields of a model that its file has (dict)."""
    return {field: getattr(model, field) for field in model.model_fields_set}


def family_values(document, name):
    """Return the fields of a family, joined with what it extends (dict)."""
    family = document.families[name]
    base = family_values(document, family.extends) if family.extends else EMPTY
    return join(base, said(family))


@lru_cache(maxsize=4)
def record_lines(path, stamp):
    """
    Return the lines of the fields of each record of a file (list of dict), and of the record (None).

    The file is read once more only if it has another stamp.
    """
    node = yaml.compose(path.read_text(encoding="utf-8"), Loader)
    records = next(value for key, value in node.value if key.value == "containers")
    return [{None: record.start_mark.line + 1, **{key.value: key.start_mark.line + 1 for key, _ in record.value}}
            for record in records.value]


def read_file(path, site, *extended, problems=None):
    """
    Return the containers of a file of the catalogue.

    Parameters
    ----------
    path : Path
        The file.
    site : Site
        Where they are.
    extended : Path
        The file that it extends, the one that that extends, and so on.
    problems : list of Problem, optional
        Takes what is wrong; the records that are right are returned then.

    Returns
    -------
    list of Container
        In the order of the files; what is extended comes first.

    Raises
    ------
    DocumentError
        If one is not as it should be, and there is no list for what is wrong.
    """
    families, containers = None, []
    for place in reversed((path, *extended)):
        try:
            document = document_of(place, families)
            records = list(enumerate(document.containers))
        except DocumentError as error:
            if problems is None:
                raise
            problems += error.problems
            document, records = valid_part(place, families)
            if not records:
                continue
        families = document.families
        values = {name: family_values(document, name) for name in families}
        containers += [Container(document.name, join(values[record.family], said(record)), site, place, index)
                       for index, record in records]
    return containers


def document_of(path, families=None):
    """
    Return what a file of the catalogue holds.

    Parameters
    ----------
    path : Path
        The file.
    families : dict of Family, optional
        Those of the file that it extends.

    Returns
    -------
    Document
        With these families as well, if it extends that file.

    Raises
    ------
    DocumentError
        If it is not as it should be.
    """
    content = load(path)
    try:
        document = joined(content, families)
    except ValidationError as error:
        raise explained(error, Document, path) from None
    if document.name != path.stem:
        raise DocumentError(Problem(path, 1, f"name: '{document.name}' should be the name of the file, {path.stem}"))
    if document.extends and families is None:
        raise DocumentError(Problem(
            path, 1, f"extends: no other catalogue has a file {path.name} for this site ('extends: true' is a line of "
            "its own, in a catalogue of your own)"))
    return document


def joined(content, families):
    """Return the Document of the content of a file, with the families of the file that it extends if it does."""
    document = Document.model_validate(content)
    if document.extends and families is not None:
        document = document.model_copy(update={"families": {**families, **document.families}})
        check_families(document, document.families)
    return document


def valid_part(path, families=None):
    """Return a Document and its records that are right, with their places: of a file that has wrong ones as well."""
    document, right = None, []
    try:
        content = load(path)
        for index, record in enumerate(content["containers"]):
            with contextlib.suppress(ValidationError):
                document = joined({**content, "containers": [record]}, families)
                right.append((index, document.containers[0]))
    except (DocumentError, KeyError, TypeError):
        return None, []
    named = document and document.name == path.stem and not (document.extends and families is None)
    return document, right if named else []


def chains(*directories):
    """
    Return which files of the catalogue are read together, sorted by name.

    Parameters
    ----------
    directories : Path
        Those of a site, with ``containers/``.

    Returns
    -------
    list of list of Path
        Of files of the same name the one in the first directory, and while one extends the next one, that as well.
    """
    found = {}
    for directory in directories:
        for path in Path(directory).glob("containers/*.yaml"):
            chain = found.setdefault(path.name, [])
            if not chain or extends(chain[-1]):
                chain.append(path)
    return [found[name] for name in sorted(found)]


def extends(path):
    """Tell whether a file of the catalogue extends another one."""
    try:
        return bool(EXTENDS.search(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:  # said by who reads it
        return False


def files(*directories):
    """Return the files of the catalogue in the directories of a site (list of Path); see `chains`."""
    return [path for chain in chains(*directories) for path in chain]


def documents(*directories):
    """Return what the files in the directories of a site say (list of Document), each with what it extends."""
    found = []
    for chain in chains(*directories):
        families, containers, document = None, [], None
        for path in reversed(chain):
            document = document_of(path, families)
            families, containers = document.families, containers + document.containers
        found.append(document.model_copy(update={"containers": containers}))
    return found


def read(site: Site, *directories, problems=None):
    """
    Return all containers of a site.

    Parameters
    ----------
    site : Site
        The site.
    directories : Path
        Its directories, with ``containers/``.
    problems : list of Problem, optional
        As for `read_file`.

    Returns
    -------
    list of Container
        Sorted by name; of one name in the order of the file.
    """
    return [container for chain in chains(*directories)
            for container in read_file(chain[0], site, *chain[1:], problems=problems)]


def twins(containers):
    """Return the containers whose module an earlier one has as well, each with the first of them (dict)."""
    first, found = {}, {}
    for container in containers:
        with contextlib.suppress(CatalogueError):
            other = first.setdefault(container.module.lower(), container)
            if other is not container:
                found[container] = other
    return found


def find(containers, wanted):
    """
    Return the containers that a person means.

    Parameters
    ----------
    containers : list of Container
        Where to look.
    wanted : str
        ``PyTorch``, ``PyTorch/2.7.0`` (or v2.7.0), ``PyTorch/2.7.0-rocm-...``, the name of an easyconfig.

    Returns
    -------
    list of Container
        At least one.

    Raises
    ------
    CatalogueError
        If there is none; the known ones are listed (S004-11).
    """
    name, _, version = wanted.partition("/")
    named = [one for one in containers if one.name.lower() == name.lower()]
    if not named:
        exact = [one for one in containers if wanted.removesuffix(".eb") == one.module_or_version.replace("/", "-", 1)]
        if exact:
            return exact
        known = sorted({one.name for one in containers})
        raise CatalogueError(f"no container is named '{name}' (known: {', '.join(known) or 'none'})")
    if not version:
        return named
    version = version.removeprefix("v")
    found = ([one for one in named if one.module_or_version == f"{one.name}/{version}"]
             or [one for one in named if one.version == version])
    if not found:
        known = "\n  ".join(one.module_or_version.split("/", 1)[1] for one in named)
        raise CatalogueError(f"{named[0].name} has no version '{version}'; there are:\n  {known}")
    return found


def find_one(containers, wanted):
    """
    Return the one container that a person means (Container); of several of one image the plain one.

    Who gives a name alone means the version that EBSIF_VERSION_<NAME> names, else the newest one (S004-10).

    Raises
    ------
    CatalogueError
        If there is none, or more than one; they are listed.
    """
    default = None if "/" in wanted else os.environ.get(DEFAULT_VERSION + re.sub(r"\W", "_", wanted).upper())
    found = find(containers, f"{wanted}/{default}" if default else wanted)
    found = [one for one in found if not one.label] or found
    if found[0].name.lower() == wanted.lower() and not default:
        found = [max([one for one in found if not one.archived] or found, key=selection.in_history)]
    if len(found) > 1:
        names = "\n  ".join(one.module for one in found)
        raise CatalogueError(f"'{wanted}' is more than one container, name one of:\n  {names}")
    return found[0]
