"""Write the directory that ReFrame reads: its configuration, the checks, and the modules and the site as data."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.imageprograms import IMPORTS, read_program
from easybuild.easyblocks.generic.container.schedulers import PBS, SCHEDULERS, Slurm
from easybuild.easyblocks.generic.container.sitevalues import INIT_NONE

from ebsif import filling
from ebsif.catalog.container import Container
from ebsif.catalog.site import Partition, SchedulerSettings, Site
from ebsif.errors import EbsifError
from ebsif.installed.health.subject import PROGRAMS

FILES = Path(__file__).parent / "files"
# The schedulers for which settings.py and checks.py have options.
SUPPORTED = (Slurm.kind, PBS.kind)


def write(
    site: Site, containers: Sequence[Container], partitions: Sequence[str], place: Path, overwrite: bool = False
) -> int:
    """Write checks of containers that aren't archived, by default for the site's partition; return their number."""
    if site.scheduler.kind not in SUPPORTED:
        raise EbsifError(
            f"{site.name} uses {site.scheduler.kind}, but the checks only support {' and '.join(SUPPORTED)}"
        )
    modules = {one.module: module_data(one) for one in containers if not one.archived}
    if not modules:
        raise EbsifError(f"no container to check in the catalog of {site.name}: archived ones are left out")
    data = {"site": site_data(site, partitions or [None]), "modules": modules}
    with filling.filled(place, "reframe", overwrite) as made:
        shutil.copytree(FILES, made, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        for program in ("allreduce.py", "inside.py"):
            shutil.copy(PROGRAMS / program, made / "programs")
        (made / "programs" / IMPORTS).write_text(read_program(IMPORTS), encoding="utf-8")
        (made / "data.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return len(modules)


def module_data(one: Container) -> dict[str, Any]:
    """Return what the checks need to know of a container."""
    wrappers = one.wrappers
    names = [wrappers] if isinstance(wrappers, str) else list(wrappers or [])
    wrapper = next((name for name in ("python", "python3") if name in names), "python" if "all" in names else "")
    return {
        "image": re.escape(one.file_name),
        "python": one.init != INIT_NONE,
        "wrapper": wrapper,
        "venv": one.venv is not False and one.init != INIT_NONE,
    }


def site_data(site: Site, partitions: Sequence[Optional[str]]) -> dict[str, Any]:
    """Return what ReFrame's configuration and the checks need to know of a site."""
    scheduler = site.scheduler
    return {
        "name": site.name,
        "description": site.description,
        "scheduler": scheduler.kind,
        "launcher": SCHEDULERS[scheduler.kind].starter,
        "launch_options": scheduler.launch_options,
        "modules": scheduler.modules,
        "account_variables": scheduler.account.variables,
        "partitions": [partition_data(scheduler, *scheduler.partition(name)) for name in partitions],
    }


def partition_data(scheduler: SchedulerSettings, name: Optional[str], partition: Partition) -> dict[str, Any]:
    """Return the entry for a partition."""
    slurm = scheduler.kind == Slurm.kind
    access = [f"--partition={name}" if slurm else f"-q {name}"] if name else []
    if slurm:
        access += [f"--qos={partition.qos}"] if partition.qos else []
        access += [f"--mem={partition.memory}"] if partition.memory else []
    return {
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", name or "default"),
        "access": [*access, *scheduler.options],
        "tasks": partition.tasks,
        "cpus": partition.cpus_per_task,
        "gpus": partition.gpus,
    }


def is_available() -> bool:
    """Return whether ReFrame is on PATH."""
    return bool(shutil.which("reframe"))
