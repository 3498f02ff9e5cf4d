"""The profile of a site, <directory>/<site>/site.yaml: settings that are specific to a machine."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional

from easybuild.easyblocks.generic.container.record.lockfile import IMAGE_KINDS
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS, NODE, STRIPING
from easybuild.easyblocks.generic.container.values import current_root
from pydantic import Field, model_validator

from ebsif.catalog import merge
from ebsif.catalog.fieldtypes import (
    Bind,
    CacheDirectory,
    CachePlace,
    Comment,
    Count,
    Duration,
    EnvName,
    EnvValue,
    FilePath,
    FullPath,
    HostFile,
    HostLibrary,
    HostPath,
    HostProgram,
    OneOf,
    RepositoryName,
    SingleLine,
    VersionPart,
)
from ebsif.catalog.yamlerrors import CPU_MASK, SITE_NAME, DocumentError, Problem, invalid
from ebsif.catalog.yamlfile import Model, line_of, load, validate
from ebsif.errors import EbsifError
from ebsif.files import data_folder
from ebsif.text import did_you_mean

# The profiles of this project.
SITES = Path(__file__).parent / "sites"

# The default site.
SITE_VARIABLE = "EBSIF_SITE"
DEFAULT_SITE = "local"

GpuName = Annotated[str, OneOf("none", *GPU_KINDS)]
GpuVisibility = Literal["local_rank", "all"]

# What jobs copy to each node.
STAGED = ("none", "user_software", "all")


# A table with its defaults. `default_factory=Binds` would build validators for each table, besides those of the site.
TABLE: Any = {"default_factory": dict, "validate_default": True}


class ImageDirectory(Model):
    """A directory with images."""

    path: FilePath = Field(description="full path, or relative to root")
    stability: Literal["stable", "short-lived", "moving"] = Field(
        "stable",
        description="stable: images stay; short-lived: images are removed after some time; moving: links "
        "that are changed without warning",
    )


class Images(Model):
    """Where the site keeps images."""

    root: Optional[FullPath] = Field(None, description="directory that relative paths start from")
    root_variable: Optional[EnvName] = Field(None, description="environment variable that overrides root")
    directories: list[ImageDirectory] = Field([], description="directories with images, in search order")
    repositories: list[RepositoryName] = Field(
        [],
        description="repositories of registries (oras://HOST/PATH, docker://HOST/PATH) in whose tags `ebsif "
        "scan` looks for new images, besides the repositories of records",
    )
    ignored: list[SingleLine] = Field(
        [], description="patterns of names (*, ?, [...]) of images, and of tags, that `ebsif scan` leaves out"
    )

    @property
    def root_in_easyconfig(self) -> Optional[str]:
        """The directory that relative paths start from, and its variable, as modules and eb read it: ${NAME:-PATH}."""
        return f"${{{self.root_variable}:-{self.root or ''}}}" if self.root_variable else self.root

    @property
    def current_root(self) -> Path:
        """The directory that relative paths start from in this environment."""
        return Path(current_root(self.root_in_easyconfig))

    @model_validator(mode="after")
    def check_root(self) -> "Images":
        """Check that relative paths have a root."""
        relative = [number for number, one in enumerate(self.directories) if not one.path.startswith("/")]
        if relative and not self.root:
            raise invalid(
                *(
                    (
                        ("directories", number, "path"),
                        f"'{self.directories[number].path}' is not a full path: write that, or add a root",
                    )
                    for number in relative
                )
            )
        return self


class Binds(Model):
    """Bind mounts: source[:target[:options]]."""

    required: list[Bind] = Field([], description="the source must exist where the module is loaded")
    optional: list[Bind] = Field([], description="bound only where the source exists")
    file: Optional[FullPath] = Field(
        None, description="file with the binds, read when a module is loaded; the lists are for where it doesn't exist"
    )


class HostLibrariesSettings(Model):
    """Libraries of the host for the image's programs; '?' before an item allows that a machine lacks it."""

    libraries: list[HostLibrary] = Field(
        min_length=1,
        description="names, paths or patterns, perhaps followed by 'as NAME' (as the image's programs know it) or "
        "'replace' (although the image's library has more)",
    )
    plugins: list[HostPath] = Field(
        [], description="directories, or patterns of files, of what the libraries open by path: /usr/lib64/libfabric"
    )
    search_path: list[HostPath] = Field(
        [], description="directories that come first where the host looks for libraries; of a pattern, the newest"
    )


class HostProgramsSettings(Model):
    """Programs of the host that work in the container; '?' before an item allows that a machine lacks it."""

    programs: list[HostProgram] = Field(
        min_length=1, description="names or full paths: srun, sbatch, squeue, scancel, sinfo ..."
    )
    plugins: list[HostPath] = Field(
        [], description="directories, or patterns of files, of what the programs open by path: /usr/lib64/slurm"
    )
    files: list[HostFile] = Field(
        [], description="binds of what else they read: /etc/slurm, /run/munge; source[:target[:options]]"
    )


class Caches(Model):
    """Where libraries in containers keep their caches; ${NAME} in a directory stands for an environment variable."""

    node: list[CacheDirectory] = Field(
        list(NODE), description="directories on each node, for what a job compiles: the first one that can be used"
    )
    project: list[CacheDirectory] = Field(
        [],
        description="directories on project storage, for what is kept: the first one that can be used, else the "
        "home directory",
    )
    variables: dict[EnvName, Optional[CachePlace]] = Field(
        {},
        description="more variables that name caches, and the place of each: job/NAME or step/NAME (on the node) "
        "or project/NAME; null leaves a variable alone",
    )
    remove: bool = Field(
        False, description="whether the jobs of `ebsif job` remove their caches on the nodes when they end"
    )


class Partition(Model):
    """A partition (queue) of the scheduler, and how its nodes are divided among ranks."""

    tasks: Count = Field(1, description="ranks per node; with GPUs, one for each GPU")
    cpus_per_task: Count = Field(1, description="CPUs per rank")
    gpus: Annotated[int, Field(ge=0)] = Field(0, description="GPUs per node")
    memory: Optional[SingleLine] = Field(None, description="memory per node, in the scheduler's notation")
    qos: Optional[SingleLine] = Field(None, description="quality of service to request")
    exclusive: bool = Field(False, description="whether jobs get whole nodes, so that ranks can be bound to CPUs")
    cpu_masks: list[Annotated[str, Field(pattern=CPU_MASK)]] = Field(
        [], description="masks of the CPUs closest to the GPU of each local rank, in the order of the ranks"
    )

    @model_validator(mode="after")
    def check_masks(self) -> "Partition":
        """Check that masks are for whole nodes, one for each rank."""
        if self.cpu_masks and not self.exclusive:
            raise invalid((("cpu_masks",), "masks refer to the CPUs of a whole node, so exclusive should be true"))
        if self.cpu_masks and len(self.cpu_masks) != self.tasks:
            raise invalid((("cpu_masks",), f"there should be one mask for each of the {self.tasks} tasks"))
        return self


class Account(Model):
    """The account that jobs are charged to."""

    required: bool = Field(False, description="whether every job needs an account")
    variables: list[EnvName] = Field(
        [], description="environment variables that name the account; the first one that is set wins"
    )
    groups: Optional[SingleLine] = Field(
        None, description="pattern of Unix groups that are accounts; used if exactly one of the user's groups matches"
    )


class Install(Model):
    """Jobs that install modules."""

    partition: Optional[SingleLine] = Field(None, description="name of a partition")
    cpus: Count = Field(4, description="number of CPUs")
    memory: Optional[SingleLine] = Field(None, description="memory, in the scheduler's notation")
    time: Duration = Field("02:00:00", description="time limit")
    modules: list[SingleLine] = Field([], description="modules to load before running eb")


class SchedulerSettings(Model):
    """How jobs are submitted and started."""

    kind: Annotated[str, OneOf(*SCHEDULERS)] = Field("slurm", description="kind of scheduler")
    options: list[SingleLine] = Field([], description="more options of the scheduler for the header of every job")
    launch_options: list[SingleLine] = Field([], description="options of srun, mpiexec or flux run")
    modules: list[SingleLine] = Field([], description="modules to load before the container module")
    time: Duration = Field("00:30:00", description="default time limit of jobs")
    account: Account = Field(**TABLE)
    default_partition: Optional[str] = Field(None, description="name of a partition")
    partitions: dict[SingleLine, Partition] = Field({}, description="partitions by name")
    install: Install = Field(**TABLE)

    @model_validator(mode="after")
    def check_partitions(self) -> "SchedulerSettings":
        """Check that the named partitions exist."""
        known = ", ".join(self.partitions) or "none"
        named = {("default_partition",): self.default_partition, ("install", "partition"): self.install.partition}
        wrong = [
            (keys, f"there is no partition '{name}' (known: {known}), but {'.'.join(keys)} names it")
            for keys, name in named.items()
            if name is not None and name not in self.partitions
        ]
        if wrong:
            raise invalid(*wrong)
        return self

    def partition(self, name: Optional[str]) -> tuple[Optional[str], Partition]:
        """Return the name and the Partition for a name, or the default ones for None; raise EbsifError if unknown."""
        name = name or self.default_partition
        if name is None or (name not in self.partitions and not self.partitions):
            return name, Partition()
        if name not in self.partitions:
            raise EbsifError(f"unknown partition '{name}' (known: {', '.join(self.partitions)})")
        return name, self.partitions[name]


class Site(Model):
    """The profile of a site."""

    name: Annotated[str, Field(pattern=SITE_NAME)] = Field(description="name of the site and of its directory")
    description: SingleLine = Field(description="the machine, in a few words")
    extends: Optional[SingleLine] = Field(
        None,
        description="name of the site from which this one inherits all fields that it doesn't set, and the "
        "containers; its own name means the site of this name in the next catalog",
    )
    not_inherited: list[
        Literal["binds", "conflicts", "container_env", "containers", "images", "network_env", "scheduler"]
    ] = Field(
        [], description="fields that aren't inherited from the extended site; null removes a single entry of a table"
    )
    images: Images = Field(**TABLE)
    image: Optional[Annotated[str, OneOf(*IMAGE_KINDS)]] = Field(
        None,
        description="image of modules without a value in their records: own (a copy, the default), central or "
        "reference (the image stays where it is)",
    )
    extension_image: Literal["reference", "own"] = Field(
        "reference",
        description="image of the extensions that users make: a reference to the image of the extended "
        "module, or an own copy",
    )
    binds: Binds = Field(**TABLE)
    host_libraries: Optional[HostLibrariesSettings] = Field(
        None, description="libraries of the host that programs of images use, with what they need"
    )
    host_programs: Optional[HostProgramsSettings] = Field(
        None, description="programs of the host that work in the container: srun, sbatch and others"
    )
    caches: Caches = Field(**TABLE)
    gpu: GpuName = Field("none", description="kind of GPU of the nodes")
    gpu_option: bool = Field(True, description="whether to use the runtime's option for GPUs (--rocm, --nv)")
    gpu_visibility: Optional[GpuVisibility] = Field(
        None, description="GPUs that a rank sees (default for ROCm: only its own)"
    )
    gpu_mpi_library: Optional[SingleLine] = Field(
        None, description="library that makes MPI GPU-aware (GTL of Cray MPICH)"
    )
    network_env: dict[EnvName, Optional[SingleLine]] = Field(
        {}, description="environment variables for the network; null unsets a variable in the container"
    )
    container_env: dict[EnvName, Optional[EnvValue]] = Field(
        {}, description="environment variables in every container; null unsets a variable there"
    )
    conflicts: list[SingleLine] = Field([], description="modules that conflict with container modules")
    one_container: Literal["refuse", "replace"] = Field(
        "refuse", description="what to do when another container module is loaded already"
    )
    stage: Annotated[str, OneOf(*STAGED)] = Field(
        "none",
        description="what the jobs of `ebsif job` copy to each node before the ranks start: nothing, the "
        "SquashFS file with user software, or also the image",
    )
    lustre_striping: list[SingleLine] = Field(
        list(STRIPING),
        description="options of `lfs setstripe` for images and packed user software where they are on "
        "Lustre; an empty list leaves it to the file system",
    )
    signature_keys: list[FullPath] = Field(
        [], description="files of the public keys that may sign images, full paths; other images aren't installed"
    )
    keep_packages: list[SingleLine] = Field(
        [],
        description="packages of images that requirements can't replace, besides those that are compiled or built "
        "for the machine",
    )
    listed_packages: Literal["all", "user_software", "none"] = Field(
        "user_software", description="Python packages that modules list as extensions (module spider, module avail)"
    )
    wrappers_load: bool = Field(
        False, description="whether wrappers that are called by their path work without the loaded module"
    )
    why: dict[SingleLine, SingleLine] = Field(
        {}, description="reasons, written as comments into all easyconfigs, like the reasons of a record"
    )
    scheduler: SchedulerSettings = Field(**TABLE)
    moduleclass: SingleLine = Field("ai", description="EasyBuild's moduleclass of the modules")
    support: Optional[SingleLine] = Field(None, description="level of support, shown in the help of the modules")
    doc_prefix: Optional[Comment] = Field(
        None, description="beginning of the comment in an easyconfig that is for the site's list of software"
    )
    badges: Optional[dict[VersionPart, SingleLine]] = Field(
        None,
        description="components that decide which container to choose, and how they are written: the pages of "
        "`ebsif docs` show their versions (default: PyTorch, TensorFlow, jax, ROCm, CUDA, Python, "
        "vLLM, flash-attention)",
    )
    driver_rocm: Optional[list[SingleLine]] = Field(
        None, min_length=2, max_length=2, description="oldest and newest version of ROCm that the driver supports"
    )

    @property
    def title(self) -> str:
        """The name for people: as the description begins (LUMI, whose name is lumi), or "this machine"."""
        if self.name == DEFAULT_SITE:
            return "this machine"
        written = re.match(rf"{re.escape(self.name)}\b", self.description, re.IGNORECASE)
        return written[0] if written else self.name

    @property
    def bound(self) -> list[str]:
        """What containers have of the machine: binds, and libraries that are named."""
        named = self.host_libraries.libraries if self.host_libraries else []
        return [*self.binds.required, *self.binds.optional, *named]

    def supports_rocm(self, version: str) -> bool:
        """Return whether the driver supports a version of ROCm, as far as the profile says."""
        return not self.driver_rocm or is_between(version, *self.driver_rocm)

    @model_validator(mode="after")
    def check_inheritance(self) -> "Site":
        """Check that something is inherited where something is left out."""
        if self.not_inherited and not self.extends:
            raise invalid((("not_inherited",), "nothing is inherited without 'extends': remove it"))
        return self

    @model_validator(mode="after")
    def check_gpu(self) -> "Site":
        """Check that a site without GPUs has no settings for GPUs, nor partitions with them (S003-01)."""
        if self.gpu != "none":
            return self
        wrong: list[tuple[tuple, str]] = [
            ((key,), f"gpu is none, so there should be no {key}")
            for key in ("gpu_visibility", "gpu_mpi_library")
            if getattr(self, key)
        ]
        # the last key is for the line of a profile that inherits the partition
        wrong += [
            (
                ("scheduler", "partitions", name, "gpus", "gpu"),
                f"gpu is none, but the partition {name} has GPUs (gpus: {one.gpus}): set gpu to their kind "
                f"({', '.join(GPU_KINDS)}), or gpus to 0",
            )
            for name, one in self.scheduler.partitions.items()
            if one.gpus
        ]
        if wrong:
            raise invalid(*wrong)
        return self


def is_between(version: str, oldest: str, newest: str) -> bool:
    """
    Return whether a version is in a range, to which both ends belong.

    Numbers that one of them lacks may be any: 6.2 to 7.2 has 7.2.3 in it, and 6.2 may be 6.2.4.
    """

    def numbers(text: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", text)[:3]]

    wanted, first, last = map(numbers, (version, oldest, newest))
    return first[: len(wanted)] <= wanted[: len(first)] and wanted[: len(last)] <= last[: len(wanted)]


class Level(NamedTuple):
    """A profile in a chain of sites that extend each other: its name, file, content, and where its site is searched."""

    name: str
    path: Path
    content: Any
    directories: Sequence[Path]

    @property
    def left_out(self) -> list[str]:
        """What it doesn't take from the site that it extends; nothing if that is invalid."""
        named = self.content.get("not_inherited") if isinstance(self.content, dict) else None
        return named if isinstance(named, list) else []


def own_catalog() -> Path:
    """Return the directory of the records that this account makes for itself; it may be missing."""
    return data_folder() / "catalog"


def names(directories: Iterable[Path] = (SITES,)) -> list[str]:
    """Return the names of all sites."""
    return sorted({path.parent.name for directory in directories for path in directory.glob("*/site.yaml")})


def chain(name: str, directories: Sequence[Path], strict: bool = False) -> list[Level]:
    """Return the profile of a site, then those it extends, up to a wrong one: `strict` raises DocumentError there."""
    levels: list[Level] = []
    wanted: Optional[str] = name
    searched = directories
    while wanted:
        paths = [directory / wanted / "site.yaml" for directory in searched]
        path = next((path for path in paths if path.is_file()), None)
        if not path or path in (level.path for level in levels):
            if strict:
                raise no_site(wanted, levels[-1], bool(path), directories)
            break
        try:
            content = load(path)
        except DocumentError:
            if strict:
                raise
            break
        levels.append(Level(wanted, path, content, searched))
        base = content.get("extends") if isinstance(content, dict) else None
        # of the same name: that of the next catalog
        searched = directories[list(directories).index(path.parent.parent) + 1 :] if base == wanted else directories
        wanted = base if isinstance(base, str) else None
    return levels


def no_site(name: str, level: Level, is_there: bool, directories: Sequence[Path]) -> DocumentError:
    """Return the error for a profile that extends a site that isn't there, or itself."""
    known = ", ".join(one for one in names(directories) if one != level.name) or "none"
    reason = (
        "the site extends itself"
        if is_there
        else f"no other catalog has a site '{name}' (known: {known})"
        if name == level.name
        else f"there is no site '{name}' (known: {known})"
    )
    return DocumentError(Problem(level.path, line_of(level.path, "extends"), f"extends: {reason}"))


def directories_of(name: str, directories: Sequence[Path] = (SITES,)) -> list[Path]:
    """Return the directories of a site, in search order, followed by those of the sites that it extends."""
    places: list[Path] = []
    for level in chain(name, directories):
        places += [
            place
            for directory in level.directories
            for place in [directory / level.name]
            if place.is_dir() and place not in places
        ]
        if "containers" in level.left_out:
            break
    return places or [directory / name for directory in directories if (directory / name).is_dir()]


def read(name: Optional[str] = None, directories: Sequence[Path] = (SITES,)) -> Site:
    """Return the profile of a site. Raise EbsifError if there is none, DocumentError if one of its chain is invalid."""
    name = name or os.environ.get(SITE_VARIABLE) or DEFAULT_SITE
    known = names(directories)
    if name not in known:
        missing = [str(directory / "site.yaml") for directory in directories_of(name, directories)]
        there = f": there is no {' or '.join(missing)}" if missing else ""
        raise EbsifError(
            f"unknown site '{name}'{there} (known: {', '.join(known)}; choose one with --site or {SITE_VARIABLE})"
            f"{did_you_mean(name, known)}"
        )
    content: Any = {}
    levels = chain(name, directories, strict=True)
    for level in reversed(levels):
        # errors have the lines of this file, in which lists aren't joined
        site = validate(Site, inherited(content, level), level.path)
        if site.name != level.name:
            raise DocumentError(
                Problem(level.path, 1, f"name: '{site.name}' should be the name of its directory, {level.name}")
            )
        content = inherited(content, level, join=True)
    return Site.model_validate(content) if len(levels) > 1 else site


def inherited(base: Any, level: Level, join: bool = False) -> Any:
    """Return the content of a profile, completed by that of the site that it extends; `join` is for its lists."""
    if not (isinstance(base, dict) and isinstance(level.content, dict)):
        return level.content
    without = {"name", "description", "extends", "not_inherited", *map(str, level.left_out)}
    return merge.profiles({key: value for key, value in base.items() if key not in without}, level.content, join)
