"""Models of what a file of the catalogue says: containers, and the families that they belong to."""

import re
from typing import Annotated, Any, Literal, Optional, Union

from pydantic import AfterValidator, Field, ValidationError, model_validator

from ebsif.catalogue.fieldtypes import EnvName, EnvValue, SingleLine, Suffix, Text, VersionPart
from ebsif.catalogue.site import Binds, GpuKind, GpuVisibility, Images
from ebsif.catalogue.yamlerrors import invalid
from ebsif.catalogue.yamlfile import Model

# Parameters of an easyconfig that are written from what has another name here, or from the site.
WRITTEN_FROM = {
    "easyblock": "venv", "versionsuffix": "suffix", "toolchain": "nothing: it is SYSTEM", "sources": "file",
    "checksums": "sha256", "modextravars": "variables", "optional_binds": "binds", "library_binds": "binds",
    "bind_file": "binds", "image_root": "images", "image_root_variable": "images", "image_dirs": "images",
    "support_level": "support",
    **dict.fromkeys(("gpu_mpi_library", "listed_packages", "one_container", "scheduler"), "the site")}


def is_parameter(name):
    """Return a name if it can be that of an easyconfig parameter that has no field here."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError("can't be the name of an easyconfig parameter (small letters, digits and _ only)")
    if name in WRITTEN_FROM or name in Record.model_fields or name == "name":
        raise ValueError(f"this parameter is written from {WRITTEN_FROM.get(name, f'the field {name!r}')}")
    return name


Command = Union[str, list[str]]


class Stage(Model):
    """One call of pip; see the easyconfig parameter ``requirements``."""

    name: Optional[SingleLine] = None
    requirements: Union[str, list[str]] = ""
    options: list[str] = []
    env: dict[EnvName, str] = {}
    no_build_isolation: bool = False
    no_deps: bool = False
    no_binary: list[str] = []
    index_url: Optional[SingleLine] = None
    extra_index_url: list[SingleLine] = []
    find_links: list[SingleLine] = []
    heavy: bool = False
    upgrade_pip: bool = False
    modules: list[SingleLine] = []
    patches: list[SingleLine] = []
    allow_replace: list[str] = []
    pre: list[Command] = []
    post: list[Command] = []
    verify: list[Command] = []


class ContainerFields(Model):
    """What a family may say for its containers, and a record for itself."""

    homepage: Optional[SingleLine] = None
    description: Optional[Text] = Field(None, description="what it is, with placeholders; the components are added")
    suffix: Optional[Suffix] = Field(None, description="version suffix, with placeholders: -rocm-{rocm}-{date}")
    file: Optional[SingleLine] = Field(None, description="file name of the image, with placeholders")
    package: Optional[VersionPart] = Field(None, description="name of its Python package, where it is another one")
    python: Optional[VersionPart] = Field(None, description="version of Python in the image")
    init: Optional[Literal["image", "conda-injected", "conda-manual", "venv-in-image", "none"]] = Field(
        None, description="who makes Python ready in the image")
    conda_root: Optional[SingleLine] = None
    conda_env: Optional[SingleLine] = Field(None, description="Conda environment in the image")
    entry_point: Optional[SingleLine] = Field(
        None, description="program of the image through which programs are started, for what it sets")
    venv: Optional[bool] = Field(None, description="whether there is user software, with a venv")
    venv_name: Optional[VersionPart] = None
    image: Optional[Literal["own", "central"]] = Field(None, description="whether the image is copied")
    images: Optional[Images] = Field(None, description="where the image is, instead of where the site has images")
    binds: Optional[Binds] = Field(None, description="binds in addition to those of the site")
    gpu: Optional[GpuKind] = Field(None, description="kind of GPU, where it is not that of the site")
    gpu_option: Optional[bool] = Field(
        None, description="whether the runtime's option for the GPU is used, where it is not as the site has it")
    gpu_visibility: Optional[GpuVisibility] = Field(
        None, description="GPUs that a rank sees, where it is not as the site has it")
    components: dict[VersionPart, VersionPart] = Field({}, description="what is in the image, by name, with versions")
    image_packages: dict[VersionPart, VersionPart] = Field({}, description="packages to be checked at installation")
    container_env: dict[EnvName, Optional[EnvValue]] = Field(
        {}, description="variables in the container; null: unset there")
    network_env: dict[EnvName, Optional[SingleLine]] = Field(
        {}, description="variables of the network, in addition to those of the site; null: unset in the container")
    variables: dict[EnvName, EnvValue] = Field({}, description="variables that the module sets")
    wrappers: Union[list[SingleLine], Literal["all"], None] = Field(None, description="programs that become commands")
    script_names: dict[SingleLine, SingleLine] = Field({}, description="more names of commands and run scripts")
    masked_paths: Union[list[SingleLine], dict[SingleLine, Optional[SingleLine]], None] = None
    definition_files: list[SingleLine] = Field([], description="files the image was built from")
    conflicts: list[SingleLine] = Field([], description="modules, in addition to those of the site")
    requirements: Union[str, list[SingleLine], list[Stage], None] = Field(
        None, description="Python packages to install")
    support: Optional[SingleLine] = Field(None, description="how it is supported, for the help")
    usage: Optional[Text] = Field(None, description="how it is used, for the help")
    warnings: list[SingleLine] = Field([], description="texts to show at installation and in the help")
    moduleclass: Optional[VersionPart] = None
    parameters: dict[Annotated[str, AfterValidator(is_parameter)], Any] = Field(
        {}, description="parameters of EasyBuild that have no field here, written as they are: whatis, hidden ...")
    doc: Optional[SingleLine] = Field(None, description="a line for the site's list of software")


class Family(ContainerFields):
    """What containers have in common."""

    extends: Optional[SingleLine] = Field(None, description="name of another family of the file")


class Record(ContainerFields):
    """One container."""

    family: SingleLine = Field(description="name of a family of the file")
    version: VersionPart
    date: Optional[VersionPart] = None
    hash: Optional[VersionPart] = Field(None, description="what tells builds of the image apart in its file name")
    variant: Optional[VersionPart] = Field(None, description="part of the suffix after the versions")
    label: Optional[VersionPart] = Field(None, description="part of the suffix that tells modules of one image apart")
    sha256: Optional[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = None
    archived: bool = Field(False, description="no longer recommended")
    moving: bool = Field(False, description="meant to be taken from a directory whose links move")
    history: Optional[Text] = Field(None, description="what happened to it")


class CatalogueFile(Model):
    """A file of the catalogue."""

    name: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
    extends: bool = Field(False, description="whether it adds to the families and containers of the file of the same "
                                             "name in the catalogue that comes next, instead of taking its place")
    families: dict[SingleLine, Family] = {}
    containers: list[Record]

    @model_validator(mode="wrap")
    @classmethod
    def check_families(cls, content, check_fields, context):
        """
        Families that are named exist, in this file or in the one that it extends; wrong fields don't hide that.

        The context holds the ``families`` of the file that it extends; without them a file that extends another one
        can't be checked.
        """
        families = (context.context or {}).get("families")
        wrong = [] if families is None and names_another(content) else list(wrong_families(content, families or {}))
        try:
            made = check_fields(content)
        except ValidationError as error:
            raise invalid(*wrong, fields=error) from None
        if wrong:
            raise invalid(*wrong)
        return made


def names_another(content):
    """Tell whether the content of a file says that it extends another one."""
    return isinstance(content, dict) and content.get("extends") is True


def wrong_families(content, extended):
    """
    Yield what is wrong with the names of families: of one that is not there, or that extends itself.

    Parameters
    ----------
    content : object
        What a file holds; any of it may be wrong.
    extended : dict of Family
        The families of the file that it extends.

    Yields
    ------
    tuple
        The keys that lead to it, and what is wrong (str).
    """
    own = as_dict(as_dict(content).get("families"))
    bases = {name: family.extends for name, family in extended.items()} if names_another(content) else {}
    bases.update((name, as_dict(family).get("extends")) for name, family in own.items())
    known = f"(known: {', '.join(bases) or 'none'})"
    for name in own:
        seen = [name]
        while isinstance(bases[seen[-1]], str):
            last, base = seen[-1], bases[seen[-1]]
            if base in seen:
                yield ("families", last, "extends"), f"the family '{name}' extends itself"
                break
            if base not in bases:
                yield ("families", last, "extends"), f"the family '{last}' extends '{base}', which is not there {known}"
                break
            seen.append(base)
    containers = as_dict(content).get("containers")
    for number, record in enumerate(containers if isinstance(containers, list) else []):
        family = as_dict(record).get("family")
        if isinstance(family, str) and family not in bases:
            yield ("containers", number, "family"), f"unknown family '{family}' {known}"


def as_dict(value):
    """Return a value if it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}
