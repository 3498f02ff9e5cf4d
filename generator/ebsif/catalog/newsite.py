"""Start the profile of a site: a short file with a comment on each line, filled in from what this machine shows."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS

from ebsif.catalog import schema, site
from ebsif.catalog.yamlerrors import PATTERNS, SITE_NAME
from ebsif.catalog.yamlfile import load, validate
from ebsif.errors import EbsifError
from ebsif.files import home, is_there, replace
from ebsif.templating import environment

# Directories of supercomputers that lead to file systems of all nodes, often by links; types of such file systems.
DIRECTORIES = ("/scratch", "/work", "/project", "/projects", "/projappl", "/flash", "/data", "/gpfs", "/lustre")
SHARED_TYPES = frozenset(("beegfs", "ceph", "gpfs", "lustre", "nfs", "nfs4", "panfs", "pvfs2", "wekafs"))
MOUNTS = Path("/proc/self/mounts")
# What images have themselves, and what the runtime binds: diskless nodes mount these from a server, too.
NOT_FOR_CONTAINERS = ("/boot", "/etc", "/home", "/lib", "/lib64", "/nix", "/opt", "/root", "/tmp", "/usr", "/var")

# A partition of Slurm, CPUs of a node, generic resources of a node; the default partition has an asterisk.
PARTITIONS = ("sinfo", "--noheader", "--noconvert", "--format=%P|%c|%G")
PARTITION = re.compile(r"([^\s|]+)\|(\d+)\+?\|(.*)")
GPUS = re.compile(r"(?:^|,)gpu(?::[^,:(]+)?:(\d+)")

# Seconds that the scheduler may take to answer.
PATIENCE = 10


class NodeKind(NamedTuple):
    """A partition: its name, and ranks, CPUs per rank and GPUs of each node."""

    name: str
    tasks: int
    cpus_per_task: int
    gpus: int


def write(name: str, catalog: Path) -> Path:
    """Write the profile of a new site. Raise EbsifError if there is a profile already, or the name isn't one."""
    if not re.fullmatch(SITE_NAME, name):
        raise EbsifError(f"'{name}' can't be the name of a site: use {PATTERNS[SITE_NAME]}")
    path = catalog / name / "site.yaml"
    if is_there(path):
        raise EbsifError(f"{path} is there already: edit it, or choose another name")
    replace(path, schema.first_line(path, "site", catalog) + text(name), shared=True)
    schema.provide(catalog, is_new=True)
    validate(site.Site, load(path), path)
    return path


def text(name: str) -> str:
    """Return the profile of a new site as YAML."""
    kind, reason = scheduler()
    nodes = (partitions() if kind == "slurm" else []) or [NodeKind("standard", 1, 4, 0)]
    gpu, gpu_reason = gpu_of(nodes)
    return (
        environment("ebsif.catalog")
        .get_template("site.yaml.j2")
        .render(
            name=quoted(name),
            binds=file_systems() or ["/scratch"],
            gpu=gpu,
            gpu_kinds=["none", *GPU_KINDS],
            gpu_reason=gpu_reason,
            scheduler=kind or "slurm",
            schedulers=SCHEDULERS,
            scheduler_reason=reason,
            partitions=nodes,
        )
    )


def gpu_of(nodes: Sequence[NodeKind]) -> tuple[str, str]:
    """Return the kind of GPU that the site may have, and the reason for this answer."""
    for kind, row in GPU_KINDS.items():
        if is_there(Path(row.device)):
            return kind, f"{row.device} is here"
    if any(one.gpus for one in nodes):
        return "cuda", "this machine has none, and the scheduler doesn't tell the kind of those in partitions"
    return "none", "this machine has none, compute nodes may have some"


def quoted(text: str) -> str:
    """Return a text as YAML: a name is not always a plain word (true)."""
    is_word = re.fullmatch(r"\w[\w.-]*", text) and text not in ("true", "false", "null")
    return text if is_word else json.dumps(text)


def file_systems() -> list[str]:
    """Return the directories of this machine's shared file systems; home directories aren't needed."""
    text = MOUNTS.read_text(encoding="utf-8", errors="replace") if MOUNTS.exists() else ""
    mounts = [line.split()[1:3] for line in text.splitlines()]
    # spaces are written as \040, and can't be in a plain YAML value either
    shared = {
        path
        for path, kind in mounts
        if kind in SHARED_TYPES
        and re.fullmatch(r"/[\w./-]+", path)
        and not home().is_relative_to(path)
        and not any(Path(path).is_relative_to(one) for one in NOT_FOR_CONTAINERS)
    }
    shared.update(one for one in DIRECTORIES if Path(one).is_dir())
    return sorted(one for one in shared if not any(one.startswith(f"{other}/") for other in shared))


def scheduler() -> tuple[Optional[str], str]:
    """Return the kind of scheduler whose command is on PATH, or None, and the reason for this answer."""
    for kind, one in SCHEDULERS.items():
        if shutil.which(one.submit[0]):
            return kind, f"{one.submit[0]} is here"
    return None, "no scheduler was found here"


def partitions() -> list[NodeKind]:
    """Return the partitions that Slurm shows, the default one first; none if it doesn't answer."""
    try:
        said = subprocess.run(PARTITIONS, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    kinds: dict[str, tuple[bool, NodeKind]] = {}
    for line in said.splitlines():
        found = PARTITION.fullmatch(line.strip())
        # a banner, or a partition without nodes
        if not found:
            continue
        partition, cpus, resources = found.groups()
        gpus = sum(map(int, GPUS.findall(resources)))
        # a partition with several kinds of nodes has several lines; a plus means that CPUs differ
        one = NodeKind(quoted(partition.rstrip("*")), gpus or 1, max(int(cpus) // (gpus or 1), 1), gpus)
        kinds.setdefault(one.name, (not partition.endswith("*"), one))
    return [one for _, one in sorted(kinds.values(), key=lambda pair: pair[0])]
