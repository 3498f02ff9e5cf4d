"""Models of a catalog file: records of containers, and their families."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Optional, Union

from easybuild.easyblocks.generic.container.record.lockfile import IMAGE_KINDS
from easybuild.easyblocks.generic.container.sitevalues import CONDA_ROOT, INIT_KINDS
from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    StrictBool,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from ebsif.catalog import merge
from ebsif.catalog.fieldtypes import (
    DEFAULT_SUFFIX,
    CachePlace,
    Count,
    DatePart,
    Day,
    EnvName,
    EnvText,
    FileName,
    FilePath,
    OneOf,
    Removable,
    SingleLine,
    Source,
    Suffix,
    SystemPackageName,
    Text,
    VersionPart,
)
from ebsif.catalog.site import Binds, GpuName, GpuVisibility, HostLibrariesSettings, HostProgramsSettings, Images
from ebsif.catalog.stages import Stage
from ebsif.catalog.yamlerrors import SHA256, SOFTWARE_NAME, invalid
from ebsif.catalog.yamlfile import Model

# Easyconfig parameters that are set by a field with another name, or by the site.
WRITTEN_FROM = {
    "easyblock": "venv",
    "versionsuffix": "suffix",
    "toolchain": "nothing: it is SYSTEM",
    "sources": "file",
    "checksums": "sha256",
    "modextravars": "variables",
    "bind_file": "binds",
    "bind_file_default": "binds",
    "image_root": "images",
    "image_dirs": "images",
    "image_source": "source",
    "support_level": "support",
    "cache_variables": "caches",
    **dict.fromkeys(
        (
            "gpu_mpi_library",
            "listed_packages",
            "lustre_striping",
            "node_caches",
            "one_container",
            "project_caches",
            "scheduler",
        ),
        "the site",
    ),
}


def is_parameter(name: str) -> str:
    """Return a name if it is valid for an easyconfig parameter without a field of its own."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError("not a valid name for an easyconfig parameter (lowercase letters, digits and _ only)")
    if name in WRITTEN_FROM or name in ContainerRecord.model_fields or name == "name":
        raise ValueError(f"this parameter is written from {WRITTEN_FROM.get(name, f'the field {name!r}')}")
    return name


def is_value(value: Any) -> Any:
    """Return the value of an easyconfig parameter, unless it is a text that was meant as true or false."""
    if isinstance(value, str) and value.lower() in ("yes", "no", "on", "off", "true", "false"):
        raise ValueError(f"should be true or false: '{value}' is a text here, and EasyBuild takes any text for true")
    return value


class Archive(Model):
    """Why a container is no longer recommended."""

    since: Day = Field(description="2026, 2026-01 or 2026-01-31")
    reason: SingleLine = Field(description="why, as a part of a sentence: 'it has not worked since the system update'")
    replacement: Optional[SingleLine] = Field(None, description="module to use instead")


class SystemPackages(Model):
    """Packages of the image's distribution; see the easyconfig parameter ``system_packages``."""

    packages: list[SystemPackageName] = Field(description="names, or NAME=VERSION")
    allow_upgrade: list[SystemPackageName] = Field([], description="packages of the image that may get another version")

    @property
    def parameter(self) -> Union[list[str], dict[str, list[str]]]:
        """The easyconfig parameter."""
        return {"packages": self.packages, "allow_upgrade": self.allow_upgrade} if self.allow_upgrade else self.packages


def system_of(value: Any) -> SystemPackages:
    """Return the packages of the system in a field or an easyconfig parameter, which may have any form, or be None."""
    if isinstance(value, SystemPackages):
        return value
    settings = value if isinstance(value, dict) else {"packages": value}
    return SystemPackages.model_construct(
        packages=list(settings.get("packages") or []), allow_upgrade=list(settings.get("allow_upgrade") or [])
    )


class ContainerFields(Model):
    """The fields of a record, or of a family for all its records."""

    homepage: Optional[SingleLine] = Field(None, description="web page of the software")
    description: Optional[Text] = Field(
        None, description="description with placeholders; the list of components is added"
    )
    suffix: Optional[Suffix] = Field(
        None, description=f"version suffix, with placeholders: -rocm-{{rocm}}-{{date}} (default: {DEFAULT_SUFFIX})"
    )
    file: Optional[FileName] = Field(None, description="file name of the image, with placeholders")
    package: Optional[VersionPart] = Field(
        None, description="name of its Python package, if it differs from the name of the software"
    )
    python: Optional[VersionPart] = Field(None, description="version of Python in the image")
    init: Optional[Annotated[str, OneOf(*INIT_KINDS)]] = Field(
        None, description="how the Python of the image is activated"
    )
    conda_root: Optional[SingleLine] = Field(
        None, description=f"directory of Conda in the image (default: {CONDA_ROOT})"
    )
    conda_env: Optional[SingleLine] = Field(None, description="Conda environment in the image")
    entry_point: Optional[SingleLine] = Field(
        None, description="program of the image that sets up the environment, and through which programs are started"
    )
    venv: Optional[bool] = Field(None, description="whether the module has user software, in a venv")
    venv_name: Optional[VersionPart] = None
    image: Optional[Annotated[str, OneOf(*IMAGE_KINDS)]] = Field(
        None,
        description="own: the module gets a copy of the image; central: it uses the image of the site; "
        "reference: it uses the image where it was found at installation",
    )
    images: Optional[Images] = Field(None, description="where the image is, overriding the site")
    binds: Optional[Binds] = Field(None, description="binds in addition to the site's")
    host_libraries: Union[HostLibrariesSettings, Literal["site"], None] = Field(
        "site", description="libraries of the host that the image's programs use, overriding the site; null for none"
    )
    host_programs: Union[HostProgramsSettings, Literal["site"], None] = Field(
        "site", description="programs of the host in the container, overriding the site; null for none"
    )
    gpu: Optional[GpuName] = Field(None, description="kind of GPU, overriding the site")
    gpu_option: Optional[bool] = Field(
        None, description="whether to use the runtime's option for GPUs, overriding the site"
    )
    gpu_visibility: Optional[GpuVisibility] = Field(None, description="GPUs that a rank sees, overriding the site")
    signature_keys: Optional[list[FilePath]] = Field(
        None,
        description="files of the public keys that may sign the image, overriding the site; "
        "[] for an image without a signature",
    )
    keep_packages: list[SingleLine] = Field(
        [],
        description="packages of the image that requirements can't replace, in addition to the site's, and to "
        "packages that are compiled or built for the machine",
    )
    components: dict[VersionPart, Annotated[VersionPart, Removable()]] = Field(
        {}, description="components in the image and their versions"
    )
    python_packages: Optional[list[VersionPart]] = Field(
        None,
        description="components that are Python packages of the image: their versions, where the record has "
        "them, are checked at installation",
    )
    image_packages: dict[VersionPart, Annotated[VersionPart, Removable()]] = Field(
        {}, description="more Python packages of the image and their versions, checked at installation"
    )
    keywords: list[SingleLine] = Field([], description="more words by which `module keyword` finds the module")
    badges: dict[VersionPart, Optional[SingleLine]] = Field(
        {},
        description="components with a badge on the pages of `ebsif docs` and how they are written, in addition to "
        "the site's; null removes one",
    )
    container_env: dict[EnvName, Optional[EnvText]] = Field(
        {}, description="environment variables in the container; null unsets a variable there"
    )
    network_env: dict[EnvName, Optional[SingleLine]] = Field(
        {},
        description="environment variables for the network, in addition to the site's; null unsets a "
        "variable in the container",
    )
    caches: dict[EnvName, Optional[CachePlace]] = Field(
        {},
        description="more variables that name caches, and the place of each: job/NAME or step/NAME (on the node) "
        "or project/NAME; null leaves a variable alone",
    )
    variables: dict[EnvName, Annotated[EnvText, Removable()]] = Field(
        {}, description="environment variables that the module sets; {file: NAME} and {text: STATEMENTS} are for `eval`"
    )
    own_modules: Optional[EnvName] = Field(
        None,
        description="the image has modules of its own: programs start without the host's modules; name of a "
        "variable that lists further variables to keep, separated by commas",
    )
    wrappers: Union[list[SingleLine], Literal["all"], None] = Field(
        None, description="programs of the image that become commands on PATH"
    )
    script_names: dict[SingleLine, Annotated[SingleLine, Removable()]] = Field(
        {}, description="aliases of commands and run scripts"
    )
    masked_paths: Union[list[SingleLine], dict[SingleLine, Optional[SingleLine]], None] = None
    definition_files: list[FilePath] = Field([], description="files the image was built from")
    conflicts: list[SingleLine] = Field([], description="conflicting modules in addition to the site's")
    requirements: Union[str, list[SingleLine], list[Stage], None] = Field(
        None, description="Python packages to install"
    )
    system_packages: Union[list[SystemPackageName], SystemPackages, None] = Field(
        None, description="packages of the image's distribution to add as a layer: names, or NAME=VERSION"
    )
    support: Optional[SingleLine] = Field(None, description="level of support, shown in the help of the module")
    superseded_by: Optional[SingleLine] = Field(
        None,
        description="name of newer software in this catalog that most people should take instead: the pages of "
        "`ebsif docs` lead to it",
    )
    usage: Optional[Text] = Field(None, description="usage, shown in the help of the module")
    warnings: list[SingleLine] = Field([], description="warnings, shown at installation and in the help of the module")
    moduleclass: Optional[VersionPart] = Field(None, description="category of the module, as in EasyBuild")
    parameters: dict[Annotated[str, AfterValidator(is_parameter)], Annotated[Any, AfterValidator(is_value)]] = Field(
        {}, description="easyconfig parameters that have no field here, written unchanged: whatis, hidden ..."
    )
    doc: Optional[SingleLine] = Field(None, description="text for the site's list of software")
    why: dict[SingleLine, Annotated[SingleLine, Removable()]] = Field(
        {},
        description="reasons, written as comments into the easyconfig: by the name of a field, or of an entry in "
        "it (a variable, bind, package)",
    )
    archived: Union[bool, Archive, None] = Field(
        None, description="no longer recommended: the module is hidden, and loading it shows a message"
    )
    not_inherited: list[
        Literal[
            "aliases",
            "binds",
            "components",
            "conflicts",
            "container_env",
            "definition_files",
            "image_packages",
            "network_env",
            "parameters",
            "script_names",
            "variables",
            "warnings",
        ]
    ] = Field(
        [], description="fields that inherit nothing from family and site; null removes a single entry of a table"
    )
    aliases: list[VersionPart] = Field([], description="additional versions under which the module can be loaded")


class Family(ContainerFields):
    """Fields that several containers have in common."""

    extends: Optional[SingleLine] = Field(None, description="name of another family in the file")


class ContainerRecord(ContainerFields):
    """A container."""

    family: SingleLine = Field(description="name of a family in the file")
    version: VersionPart = Field(description="version of the software")
    date: Optional[DatePart] = Field(None, description="date in the version suffix: 20260131")
    hash: Optional[VersionPart] = Field(None, description="part of the file name that distinguishes builds")
    variant: Optional[VersionPart] = Field(None, description="part of the version suffix after the versions")
    label: Optional[VersionPart] = Field(
        None, description="part of the version suffix that distinguishes modules with the same image"
    )
    sha256: Optional[Annotated[str, Field(pattern=SHA256)]] = Field(
        None, description="SHA256 of the image, checked at installation"
    )
    size: Optional[Count] = Field(
        None, description="size of the image in bytes: another size means that it was replaced or truncated"
    )
    source: Optional[Source] = Field(
        None,
        description="where the image is fetched from if it is in no image directory: oras://, docker://, "
        "https:// or oci:, with its digest",
    )
    moving: bool = Field(False, description="whether the image may come from a directory whose links move")
    history: Optional[Text] = Field(None, description="what has changed, and when")
    default: bool = Field(
        False, description="whether the name without a version means this record (default: the newest)"
    )


# The fields of every container, with their default values.
DEFAULTS = merge.defaults_of(ContainerRecord)


class CatalogFile(Model):
    """A file in the catalog."""

    name: Annotated[str, Field(pattern=SOFTWARE_NAME)] = Field(description="name of the software, and of its modules")
    extends: StrictBool = Field(
        False,
        description="whether the file adds to the next catalog's file of the same name, instead of replacing it",
    )
    families: dict[SingleLine, Family] = {}
    containers: list[ContainerRecord]

    def family_values(self, name: str) -> dict[str, Any]:
        """Return the fields of a family, merged with those of the families that it extends and the defaults."""
        family = self.families[name]
        base = self.family_values(family.extends) if family.extends else DEFAULTS
        own = {field: value for field, value in family.given.items() if field != "extends"}
        return merge.fields(base, own, DEFAULTS)

    def values_of(self, record: ContainerRecord) -> dict[str, Any]:
        """Return the fields of a record, merged with those of its family."""
        return merge.fields(self.family_values(record.family), record.given, DEFAULTS)

    @model_validator(mode="wrap")
    @classmethod
    def check_families(
        cls, content: Any, check_fields: ModelWrapValidatorHandler["CatalogFile"], context: ValidationInfo
    ) -> "CatalogFile":
        """Check that families exist, here or in the extended file, even if other fields are invalid."""
        families = (context.context or {}).get("families")
        # a wrong value of 'extends' is reported with the fields
        is_unknown = not isinstance(as_dict(content).get("extends", False), bool)
        is_alone = families is None and is_extension(content)
        problems = [] if is_unknown or is_alone else list(wrong_families(content, families or {}))
        try:
            document = check_fields(content)
        except ValidationError as error:
            raise invalid(*problems, fields=error) from None
        if problems:
            raise invalid(*problems)
        return document


def is_extension(content: object) -> bool:
    """Return whether the content of a file extends another file."""
    return isinstance(content, dict) and content.get("extends") is True


def wrong_families(content: Any, extended: dict[str, Family]) -> Iterator[tuple[tuple, str]]:
    """Yield unknown families and those that extend themselves: keys and text; all content may be invalid."""
    own = as_dict(as_dict(content).get("families"))
    bases = {name: family.extends for name, family in extended.items()} if is_extension(content) else {}
    bases.update((name, as_dict(family).get("extends")) for name, family in own.items())
    others = "" if is_extension(content) else "; 'extends: true' adds to the file of the same name"
    known = f"(known: {', '.join(bases) or f'none{others}'})"
    for name in own:
        seen = [name]
        while isinstance(bases[seen[-1]], str):
            last, base = seen[-1], bases[seen[-1]]
            if base in seen:
                yield ("families", last, "extends"), f"the family '{name}' extends itself: remove that"
                break
            if base not in bases:
                yield ("families", last, "extends"), f"the family '{last}' extends the unknown family '{base}' {known}"
                break
            seen.append(base)
    containers = as_dict(content).get("containers")
    for number, record in enumerate(containers if isinstance(containers, list) else []):
        family = as_dict(record).get("family")
        if isinstance(family, str) and family not in bases:
            yield ("containers", number, "family"), f"unknown family '{family}' {known}"


def as_dict(value: object) -> dict[Any, Any]:
    """Return a value if it is a dict, else an empty dict."""
    return value if isinstance(value, dict) else {}
