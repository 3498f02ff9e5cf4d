"""Batch scripts: a distributed run in the container of a module, or an installation, for the scheduler of a site."""

import fnmatch
import grp
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS

from ebsif.errors import EbsifError
from ebsif.templating import environment

# What srun and mpiexec start: one rank for each task, or torchrun once for each node.
LAUNCHERS = ("native", "torchrun")

# Programs that start ranks or containers, as the script does.
STARTERS = ("srun", "mpirun", "mpiexec", "singularity", "apptainer", "torchrun", "accelerate", "deepspeed")


class JobError(EbsifError):
    """A batch script can't be written; the message says why and what to do."""


@dataclass(frozen=True)
class Request:
    """What a person wants to run: a command in the container of a module; what is None follows from the site."""

    module: str
    command: tuple
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
    data: tuple = ()
    nccl_debug: bool = False
    report: bool = False


def script(request, site):
    """
    Return a batch script that trains in the container of a module.

    Parameters
    ----------
    request : Request
        What to run, and where.
    site : Site
        The profile of the machine.

    Returns
    -------
    str
        The script, with comments.

    Raises
    ------
    JobError
        If something is missing or can't be.
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
        raise JobError(f"the site {site.name} has no GPUs: leave out --gpus-per-node")
    if gpus and tasks > gpus and not torchrun:
        raise JobError(f"{tasks} ranks on a node with {gpus} GPUs: each rank uses one, ask for fewer --tasks-per-node")
    command = list(request.command)
    if torchrun and command[0] == "-u":
        # it starts its ranks like that anyway
        del command[0]
    if torchrun and (not command or command[0].startswith("-") and command[0] != "-m"):
        raise JobError(f"torchrun takes a program, no option of python: {' '.join(command)}")
    masks = partition.cpu_masks[:tasks] if not torchrun and not request.cpus_per_task else []
    return render(
        "job", site, header=header(request, site, partition_name),
        module=request.module, nodes=request.nodes, tasks=tasks, cpus=cpus, gpus=gpus, masks=masks,
        memory=request.memory or partition.memory, qos=request.qos or partition.qos, torchrun=torchrun,
        command=command, data=request.data, nccl_debug=request.nccl_debug, report=request.report,
        time=request.time or scheduler.time, modules=scheduler.modules,
    )


def scheduler_of(site):
    """Return the Scheduler of a site."""
    return SCHEDULERS[site.scheduler.kind]


def install_script(easyconfig, options, request, site):
    """
    Return a batch script that installs an easyconfig on one node, for stages that are too much for a login node.

    Parameters
    ----------
    easyconfig : str
        File, or name that eb finds.
    options : list of str
        More options for eb.
    request : Request
        Account, partition, time limit; its module and command are not used.
    site : Site
        The profile of the machine.

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


def python_program(words):
    """
    Return what python runs (tuple of str), for a command as a person types it.

    Raises
    ------
    JobError
        If it is none of python's.
    """
    name = Path(words[0]).name
    if re.fullmatch(r"python(3(\.\d+)?)?", name):
        # the script says it already
        words = words[1:]
        if not words:
            raise JobError(f"say what {name} runs: train.py, or -m MODULE")
    elif name in STARTERS:
        way = "; --launcher torchrun makes it use torchrun" if name == "torchrun" else ""
        raise JobError(f"the script starts the ranks in the container and runs python: name its program only, without "
                       f"'{name}'{way}")
    return tuple(words)


def program_file(command):
    """Return the file that python runs (str), None where it runs a module or a text."""
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
    """Return name, account and partition of a job (dict)."""
    name = request.name or job_name(request)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
        raise JobError(f"'{name}' can't be the name of a job (letters, digits and _ . + - only)")
    values = {"name": name, "account": account(request.account, site), "partition": partition}
    for option in ("account", "partition", "qos", "memory"):
        value = values.get(option) or getattr(request, option)
        if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.,:+@%-]*", value):
            raise JobError(f"'{value}' can't be the {option} of a job")
    return values


def job_name(request):
    """Return a name for a job: that of the program it runs."""
    programs = [word for word in request.command if not word.startswith("-")]
    stem = Path(programs[0] if programs else request.module).stem
    return re.sub("[^A-Za-z0-9_.+-]", "-", stem).strip("-.+") or "job"


def account(named, site):
    """
    Return who pays for a job (str), None if that is nobody's business.

    It is what the person says, else a variable of the environment, else the only group that is an account.
    """
    rule = site.scheduler.account
    found = named or next((os.environ[name] for name in rule.variables if os.environ.get(name)), None)
    if found is None and rule.groups:
        groups = fnmatch.filter((group_name(gid) for gid in os.getgroups()), rule.groups)
        found = groups[0] if len(groups) == 1 else None
    if found is None and rule.required:
        ways = " or ".join(["--account", *rule.variables])
        raise JobError(f"jobs at the site {site.name} need an account: name it with {ways}")
    return found


def group_name(gid):
    """Return the name of a Unix group (str), empty if it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def render(template, site, **values):
    """Return the text of a template; values reach the shell as quoted words (the filter `sh`)."""
    text = environment("ebsif.jobs").get_template(f"{site.scheduler.kind}/{template}.sh.j2")
    return text.render(site=site, scheduler=site.scheduler, **values)
