"""The profile of a site: what is known about a machine, read from ``<directory>/<site>/site.yaml``."""

import os
from pathlib import Path
from typing import Annotated, Literal, Optional

from easybuild.easyblocks.generic.container.gpus import GPU_KINDS
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from pydantic import Field, model_validator

from ebsif.catalogue.fieldtypes import Bind, Comment, Count, Duration, EnvName, EnvValue, SingleLine
from ebsif.catalogue.yamlerrors import DocumentError, Problem, invalid
from ebsif.catalogue.yamlfile import Model, load, validate
from ebsif.errors import EbsifError

# The profiles of this project.
SITES = Path(__file__).parent / "sites"

# The site of a person who does not name one.
SITE_VARIABLE = "EBSIF_SITE"
DEFAULT_SITE = "local"

GpuKind = Literal[("none", *GPU_KINDS)]
GpuVisibility = Literal["local_rank", "all"]


class ImageDirectory(Model):
    """A directory with images of containers."""

    path: SingleLine = Field(description="full path, or relative to the root")
    stability: Literal["stable", "short-lived", "moving"] = Field(
        "stable", description="stable: stays; short-lived: is removed; moving: links that change without warning")


class Images(Model):
    """Where the site keeps images."""

    root: Optional[SingleLine] = Field(None, description="directory of the relative paths")
    root_variable: Optional[EnvName] = Field(None, description="environment variable that takes the place of root")
    directories: list[ImageDirectory] = Field([], description="in the order in which they are searched")

    @model_validator(mode="after")
    def check_root(self):
        """Relative paths are below something."""
        relative = [number for number, one in enumerate(self.directories) if not one.path.startswith("/")]
        if relative and not self.root:
            raise invalid(*((("directories", number, "path"), f"'{self.directories[number].path}' is no full path, and "
                             "there is no root") for number in relative))
        return self


class Binds(Model):
    """Bind mounts: source[:target[:options]]."""

    required: list[Bind] = Field([], description="must exist where a module is loaded")
    optional: list[Bind] = Field([], description="made only where the source exists")
    libraries: dict[Bind, Literal["if_missing", "if_newer"]] = Field({}, description="libraries of the host")
    file: Optional[SingleLine] = Field(None, description="file with more binds, read when a module is loaded")


class Partition(Model):
    """A partition (queue) of the scheduler, and how a node of it is divided among ranks."""

    tasks: Count = Field(1, description="ranks per node: one for each GPU where there are GPUs")
    cpus_per_task: Count = Field(1, description="CPUs of each rank")
    gpus: Annotated[int, Field(ge=0)] = Field(0, description="GPUs per node")
    memory: Optional[SingleLine] = Field(None, description="memory per node, as the scheduler writes it")
    qos: Optional[SingleLine] = Field(None, description="quality of service to ask for")
    exclusive: bool = Field(False, description="jobs get whole nodes, so CPUs can be named")
    cpu_masks: list[Annotated[str, Field(pattern="^0x[0-9a-f]+$")]] = Field(
        [], description="CPUs beside the GPU of each local rank, in the order of ranks")

    @model_validator(mode="after")
    def check_masks(self):
        """Masks are for whole nodes, one for each rank."""
        if self.cpu_masks and not self.exclusive:
            raise invalid((("cpu_masks",), "these name CPUs of a whole node, so exclusive should be true"))
        if self.cpu_masks and len(self.cpu_masks) != self.tasks:
            raise invalid((("cpu_masks",), f"there should be one of cpu_masks for each of the {self.tasks} tasks"))
        return self


class Account(Model):
    """Who pays for jobs."""

    required: bool = Field(False, description="jobs without account are refused")
    variables: list[EnvName] = Field([], description="environment variables that name it, the first one set wins")
    groups: Optional[SingleLine] = Field(
        None, description="pattern of Unix groups that are accounts; the only one counts")


class Install(Model):
    """Jobs that install."""

    partition: Optional[SingleLine] = Field(None, description="name of a partition")
    cpus: Count = Field(4, description="CPUs")
    memory: Optional[SingleLine] = Field(None, description="memory, as the scheduler writes it")
    time: Duration = Field("02:00:00", description="time limit")
    modules: list[SingleLine] = Field([], description="modules to load for eb")


class Scheduler(Model):
    """How jobs are submitted and started."""

    kind: Literal[tuple(SCHEDULERS)] = Field("slurm", description="which scheduler")
    options: list[SingleLine] = Field([], description="more lines of the header of every job")
    launch_options: list[SingleLine] = Field([], description="options of srun or mpiexec, one rank for each task")
    modules: list[SingleLine] = Field([], description="modules to load before the container's")
    time: Duration = Field("00:30:00", description="time limit of a job that does not name one")
    account: Account = Field(default_factory=Account)
    default_partition: Optional[str] = Field(None, description="name of a partition")
    partitions: dict[SingleLine, Partition] = Field({}, description="partitions by name")
    install: Install = Field(default_factory=Install)

    @model_validator(mode="after")
    def check_partitions(self):
        """Partitions that are named exist."""
        known = ", ".join(self.partitions) or "none"
        named = {("default_partition",): self.default_partition, ("install", "partition"): self.install.partition}
        wrong = [(keys, f"there is no partition '{name}' (known: {known})") for keys, name in named.items()
                 if name is not None and name not in self.partitions]
        if wrong:
            raise invalid(*wrong)
        return self

    def partition(self, name):
        """
        Return name and Partition for a name (None: the default one).

        Raises
        ------
        SiteError
            If there is none of that name.
        """
        name = name or self.default_partition
        if name is None or (name not in self.partitions and not self.partitions):
            return name, Partition()
        if name not in self.partitions:
            raise SiteError(f"unknown partition '{name}' (known: {', '.join(self.partitions)})")
        return name, self.partitions[name]


class Site(Model):
    """What is known about a machine."""

    name: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_-]*$")]
    description: SingleLine
    images: Images = Field(default_factory=Images)
    binds: Binds = Field(default_factory=Binds)
    gpu: GpuKind = Field("none", description="kind of GPU of the nodes")
    gpu_option: bool = Field(
        True, description="use the runtime's option for the GPU (--rocm, --nv)")
    gpu_visibility: Optional[GpuVisibility] = Field(
        None, description="GPUs that a rank sees (default: for ROCm its own)")
    gpu_mpi_library: Optional[SingleLine] = Field(None, description="library by which MPI knows of GPUs (GTL)")
    network_env: dict[EnvName, Optional[SingleLine]] = Field(
        {}, description="variables of the network; null: unset in the container")
    container_env: dict[EnvName, Optional[EnvValue]] = Field(
        {}, description="variables in every container; null: unset there")
    conflicts: list[SingleLine] = Field([], description="modules that can't be loaded beside a container's")
    one_container: Literal["refuse", "replace"] = Field(
        "refuse", description="what loading does when another container's module is loaded")
    listed_packages: Literal["all", "user_software", "none"] = Field(
        "all", description="Python packages that modules list as their extensions, for module spider and avail")
    scheduler: Scheduler = Field(default_factory=Scheduler)
    moduleclass: SingleLine = Field("ai", description="EasyBuild's class of the modules")
    support: Optional[SingleLine] = Field(
        None, description="how containers are supported, for the help of their modules")
    doc_prefix: Optional[Comment] = Field(None, description="begins the line of an easyconfig for the list of software")
    driver_rocm: Optional[list[SingleLine]] = Field(
        None, min_length=2, max_length=2, description="oldest and newest ROCm that the driver supports")

    @model_validator(mode="after")
    def check_gpu(self):
        """Nothing of a GPU where there is none (S003-01)."""
        given = [key for key in ("gpu_visibility", "gpu_mpi_library") if getattr(self, key)]
        if self.gpu == "none" and given:
            raise invalid(*(((key,), f"gpu is none, so there should be no {key}") for key in given))
        return self


class SiteError(EbsifError):
    """A site or a part of it is not there; the message says what is."""


def names(directories=(SITES,)):
    """Return the names of the sites there are (list of str)."""
    return sorted({path.parent.name for directory in directories for path in directory.glob("*/site.yaml")})


def directories_of(name, directories=(SITES,)):
    """Return the directories of a site (list of Path), its own before that of the project."""
    return [directory / name for directory in directories if (directory / name).is_dir()]


def read(name=None, directories=(SITES,)):
    """
    Return the profile of a site.

    Parameters
    ----------
    name : str, optional
        Name of the site; by default what EBSIF_SITE says, else ``local``.
    directories : sequence of Path
        Where sites are looked for; the first ``<name>/site.yaml`` is taken.

    Returns
    -------
    Site

    Raises
    ------
    SiteError
        If there is no such site.
    DocumentError
        If its profile is not as it should be.
    """
    name = name or os.environ.get(SITE_VARIABLE) or DEFAULT_SITE
    known = names(directories)
    if name not in known:
        missing = [str(directory / "site.yaml") for directory in directories_of(name, directories)]
        there = f": there is no {' or '.join(missing)}" if missing else ""
        raise SiteError(
            f"unknown site '{name}'{there} (known: {', '.join(known)}; --site and {SITE_VARIABLE} name one)")
    path = next(path for path in (directory / name / "site.yaml" for directory in directories) if path.is_file())
    site = validate(Site, load(path), path)
    if site.name != name:
        raise DocumentError(Problem(path, 1, f"name: '{site.name}' should be that of its directory, {name}"))
    return site
