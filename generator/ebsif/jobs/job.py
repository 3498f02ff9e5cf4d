"""Write batch scripts for the scheduler of a site: a distributed run in a container, or an installation."""

import fnmatch
import grp
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS, Scheduler

from ebsif.catalogue.site import Site
from ebsif.errors import EbsifError
from ebsif.templating import environment

# What the scheduler starts: each rank ("native"), or torchrun once on each node ("torchrun").
LAUNCHERS = ("native", "torchrun")

# Programs that start ranks or containers, which the script does already.
STARTERS = ("srun", "mpirun", "mpiexec", "singularity", "apptainer", "torchrun", "accelerate", "deepspeed")


class JobError(EbsifError):
    """A batch script can't be written; the message says why and what to do."""


@dataclass(frozen=True)
class Request:
    """What to run, and where: a command in the container of a module. None stands for the site's default."""

    module: str
    command: tuple[str, ...]
    nodes: int = 1
    launcher: str = LAUNCHERS[0]
    name: Optional[str] = None
    account: Optional[str] = None
    partition: Optional[str] = None
    qos: Optional[str] = None
    time: Optional[str] = None
    tasks_per_node: Optional[int] = None
    cpus_per_task: Optional[int] = None
    gpus_per_node: Optional[int] = None
    memory: Optional[str] = None
    data: tuple[str, ...] = ()
    nccl_debug: bool = False
    report: bool = False


def script(request: Request, site: Site) -> str:
    """
    Return a batch script that runs a Python program in the container of a module.

    Parameters
    ----------
    request
        What to run, and where.
    site
        The profile of the site.

    Returns
    -------
    str
        The script, with comments.

    Raises
    ------
    JobError
        If the request is incomplete or impossible.
    SiteError
        If the site has no such partition.
    """
    scheduler = site.scheduler
    torchrun = request.launcher == "torchrun"
    partition_name, partition = scheduler.partition(request.partition)
    tasks = request.tasks_per_node or partition.tasks
    cpus = request.cpus_per_task or partition.cpus_per_task
    gpus = partition.gpus if request.gpus_per_node is None else request.gpus_per_node
    if gpus and site.gpu == "none":
        raise JobError(f"the site {site.name} has no GPUs: remove --gpus-per-node")
    if gpus and tasks > gpus and not torchrun:
        raise JobError(f"{tasks} ranks on a node with {gpus} GPUs: each rank uses one GPU, so reduce --tasks-per-node")
    command = list(request.command)
    if torchrun and command[0] == "-u":
        # torchrun runs the ranks unbuffered anyway
        del command[0]
    if torchrun and (not command or command[0].startswith("-") and command[0] != "-m"):
        raise JobError(f"torchrun takes a program, not options of python: {' '.join(command)}")
    masks = partition.cpu_masks[:tasks] if not torchrun and not request.cpus_per_task else []
    return render(
        "job", site, header=header(request, site, partition_name),
        module=request.module, nodes=request.nodes, tasks=tasks, cpus=cpus, gpus=gpus, masks=masks,
        memory=request.memory or partition.memory, qos=request.qos or partition.qos, torchrun=torchrun,
        command=command, data=request.data, nccl_debug=request.nccl_debug, report=request.report,
        time=request.time or scheduler.time, modules=scheduler.modules,
    )


def scheduler_of(site: Site) -> Scheduler:
    """Return the Scheduler of a site."""
    return SCHEDULERS[site.scheduler.kind]


def install_script(easyconfig: str, options: list[str], request: Request, site: Site) -> str:
    """
    Return a batch script that installs an easyconfig on a compute node, for builds too heavy for a login node.

    Parameters
    ----------
    easyconfig
        A file, or the name of an easyconfig that eb finds.
    options
        More options for eb.
    request
        Account, partition, time limit; its module and command are not used.
    site
        The profile of the site.

    Raises
    ------
    JobError, SiteError
        As for `script`.
    """
    install = site.scheduler.install
    partition_name, partition = site.scheduler.partition(request.partition or install.partition)
    return render(
        "install", site, header=header(request, site, partition_name),
        cpus=request.cpus_per_task or install.cpus, memory=request.memory or install.memory,
        qos=request.qos or partition.qos, time=request.time or install.time, modules=install.modules,
        easyconfig=easyconfig, options=options,
    )


def python_program(words: Sequence[str]) -> tuple[str, ...]:
    """
    Return the arguments of python for a command as the user typed it.

    Raises
    ------
    JobError
        If the command is not a Python program.
    """
    name = Path(words[0]).name
    if re.fullmatch(r"python(3(\.\d+)?)?", name):
        # the batch script runs python anyway
        words = words[1:]
        if not words:
            raise JobError(f"name what {name} should run: train.py, or -m MODULE")
    elif name in STARTERS:
        advice = "; to use torchrun, add --launcher torchrun" if name == "torchrun" else ""
        raise JobError("the batch script starts the container, the ranks and python itself: name only the program, "
                       f"without '{name}'{advice}")
    return tuple(words)


def program_file(command: Iterable[str]) -> Optional[str]:
    """Return the file that python runs, or None if it runs a module or code from the command line."""
    words = iter(command)
    for word in words:
        if word in ("-m", "-c", "-"):
            return None
        if word in ("-W", "-X"):
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def header(request, site, partition):
    """Return the name, account and partition of a job (dict)."""
    name = request.name or job_name(request)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
        raise JobError(f"'{name}' is not a valid name for a job (letters, digits and _ . + - only)")
    values = {"name": name, "account": account(request.account, site), "partition": partition}
    for option in ("account", "partition", "qos", "memory"):
        value = values.get(option) or getattr(request, option)
        if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.,:+@%-]*", value):
            raise JobError(f"'{value}' is not a valid {option} for a job")
    return values


def job_name(request):
    """Return the name of the program as the name of a job (str)."""
    programs = [word for word in request.command if not word.startswith("-")]
    stem = Path(programs[0] if programs else request.module).stem
    return re.sub("[^A-Za-z0-9_.+-]", "-", stem).strip("-.+") or "job"


def account(named, site):
    """
    Return the account to charge (str), or None if the site does not need one.

    It comes from the command line, else from an environment variable, else it is the only Unix group that is an
    account.
    """
    rule = site.scheduler.account
    found = named or next((os.environ[name] for name in rule.variables if os.environ.get(name)), None)
    if found is None and rule.groups:
        groups = fnmatch.filter((group_name(gid) for gid in os.getgroups()), rule.groups)
        found = groups[0] if len(groups) == 1 else None
    if found is None and rule.required:
        ways = " or ".join(["--account", *rule.variables])
        raise JobError(f"jobs at the site {site.name} need an account: set it with {ways}")
    return found


def group_name(gid):
    """Return the name of a Unix group (str), or '' if it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def render(template, site, **values):
    """Return the rendered template (str); the filter `sh` quotes values for the shell."""
    text = environment("ebsif.jobs").get_template(f"{site.scheduler.kind}/{template}.sh.j2")
    return text.render(site=site, scheduler=site.scheduler, **values)
