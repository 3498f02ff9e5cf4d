"""Write batch scripts for the scheduler of a site: a distributed run in a container, or an installation."""

import fnmatch
import grp
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS, Scheduler
from easybuild.easyblocks.generic.container.tables import RUNTIMES

from ebsif.catalogue.site import Site
from ebsif.errors import EbsifError
from ebsif.jobs.data import Data
from ebsif.templating import environment, quote

# What the scheduler starts: each rank, or a program on each node that starts the ranks there.
NATIVE = "native"
LAUNCHERS = (NATIVE, "torchrun", "accelerate", "deepspeed")
ON_EACH_NODE = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch"}

# Names of the native launcher, which depend on the scheduler.
STARTERS_OF_SITES = tuple(one.starter for one in SCHEDULERS.values())

# Programs that start ranks or containers, which the script does already.
STARTERS = ("srun", "mpirun", "mpiexec", *RUNTIMES, *LAUNCHERS[1:])

# Options of accelerate that choose how it distributes a program.
ACCELERATE_KINDS = ("--config_file", "--cpu", "--multi_gpu", "--tpu", "--use_deepspeed", "--use_fsdp",
                    "--use_megatron_lm")


# Options of launchers after which the program is any executable.
NO_PYTHON = ("--no-python", "--no_python")


class JobError(EbsifError):
    """A batch script can't be written or submitted; the message says why and what to do."""


@dataclass(frozen=True)
class Request:
    """
    What to run, and where: a command in the container of a module. None stands for the site's default.

    The fields are the options of ``ebsif job`` of the same names; `command` is what follows --.
    """

    module: str
    command: tuple[str, ...]
    nodes: int = 1
    launcher: str = NATIVE
    name: Optional[str] = None
    account: Optional[str] = None
    partition: Optional[str] = None
    qos: Optional[str] = None
    time: Optional[str] = None
    tasks_per_node: Optional[int] = None
    cpus_per_task: Optional[int] = None
    gpus_per_node: Optional[int] = None
    memory: Optional[str] = None
    signal: Optional[int] = None
    requeue: bool = False
    segments: int = 1
    array: Optional[str] = None
    mail: Optional[str] = None
    line: tuple[str, ...] = ()
    data: tuple[Data, ...] = ()
    rank_logs: bool = False
    nccl_debug: bool = False
    report: bool = False
    stage: Optional[str] = None

    @property
    def starts_ranks(self) -> bool:
        """Whether the scheduler starts one program on each node, which starts the ranks there."""
        return self.launcher in ON_EACH_NODE


def script(request: Request, site: Site, interactive: bool = False, catalogues: Sequence[str] = (),
           use: Optional[Path] = None) -> str:
    """
    Return a batch script that runs a Python program in the container of a module.

    Parameters
    ----------
    request
        What to run, and where.
    site
        The profile of the site.
    interactive
        Whether the script is for a run at a terminal; without a program, it then starts a shell.
    catalogues
        The options that name the user's own catalogues, for the record.
    use
        The directory of the module, if a new shell may not search there.

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
    partition_name, partition = scheduler.partition(request.partition)
    tasks = request.tasks_per_node or partition.tasks
    gpus = partition.gpus if request.gpus_per_node is None else request.gpus_per_node
    time = request.time or scheduler.time
    check(request, site, tasks, gpus, time)
    return render(
        "job", site, header=header(request, site, partition_name), request=request, interactive=interactive,
        use=use and str(use),
        **{name: getattr(request, name) for name in (
            "module", "nodes", "command", "launcher", "starts_ranks", "signal", "requeue", "array", "mail", "rank_logs",
            "nccl_debug", "report")},
        tasks=tasks, cpus=request.cpus_per_task or partition.cpus_per_task, gpus=gpus,
        masks=[] if request.cpus_per_task else partition.cpu_masks[:tasks],
        memory=request.memory or partition.memory, qos=request.qos or partition.qos, time=time, seconds=seconds(time),
        options=[*scheduler.options, *lines(request, site)], modules=scheduler.modules,
        data=[one.source for one in request.data], binds=",".join(one.bind for one in request.data if one.bind),
        words=arguments(request, site, catalogues), comment=comment(request, gpus),
        program=program(request, site, tasks), file=program_file(request.command) or "",
        stage=request.stage or site.stage, broadcast=scheduler_of(site).broadcast,
        goes_on=request.requeue or request.segments > 1,
        submit=" ".join(scheduler_of(site).submit),
    )


def check(request, site, tasks, gpus, time):
    """Raise JobError if a request is impossible at a site."""
    if gpus and site.gpu == "none":
        raise JobError(f"the site {site.name} has no GPUs: remove --gpus-per-node")
    if gpus and tasks > gpus and not request.starts_ranks:
        raise JobError(f"{tasks} ranks on a node with {gpus} GPUs: each rank uses one GPU, so reduce --tasks-per-node")
    check_options(request, site)
    if request.signal and request.signal >= seconds(time):
        raise JobError(f"--signal {request.signal} is not before the end of a job of {time}: increase --time")
    if request.segments > 1 and request.array:
        raise JobError("--segments chains single jobs: it can't be combined with --array")
    if request.array and not re.fullmatch(scheduler_of(site).array, request.array):
        raise JobError(f"'{request.array}' is not a valid value for --array at the site {site.name} (such as "
                       f"{scheduler_of(site).array_example})")
    if request.mail and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*(@[A-Za-z0-9.-]+)?", request.mail):
        raise JobError(f"'{request.mail}' is not a valid value for --mail")


def check_options(request, site):
    """Raise JobError if the scheduler of a site lacks a requested option."""
    for option, reason in scheduler_of(site).lacks.items():
        if getattr(request, option, None):
            raise JobError(f"the site {site.name} can't fulfil --{option}: {reason}")


def program(request, site, tasks):
    """Return the command in the container (str, for the shell): the program, or what starts its ranks on a node."""
    words = list(request.command)
    if not words:
        return ""
    start = 'singularity exec "$SIF" conda-python-distributed'
    if not request.starts_ranks:
        return f"{start} {quote(words)}"
    if words[0] == "-u":
        # the ranks run unbuffered anyway
        del words[0]
    if not words or (words[0].startswith("-") and words[0] != "-m" and not words[0].startswith("--")):
        raise JobError(f"{request.launcher} takes a program, not options of python: {' '.join(words)}")
    options = [f"--nproc-per-node={tasks}"]
    if request.launcher == "accelerate":
        ranks = request.nodes * tasks
        # without GPUs, or with one on each node, it would not start several ranks by itself; a single one it refuses
        named = any(word.split("=")[0] in ACCELERATE_KINDS for word in words)
        kind = ["--multi_gpu"] if ranks > 1 and not named else []
        options = [*kind, f"--num_machines={request.nodes}", f"--num_processes={ranks}"]
    return f"{start} -m {ON_EACH_NODE[request.launcher]} \\\n    {quote(options)} {quote(words)}"


def comment(request, gpus):
    """Return what the scheduler starts (str)."""
    if request.starts_ranks:
        return f"One {request.launcher} per node, which starts the ranks there"
    return "One rank per GPU" if gpus else "One rank per task"


def lines(request, site):
    """
    Return the user's own options of the scheduler (list of str).

    Raises
    ------
    JobError
        If one is for another scheduler, or not an option.
    """
    directive = scheduler_of(site).directive
    found = []
    for line in request.line:
        text = line[len(directive) :].strip() if line.startswith(f"{directive} ") else line
        if not text.startswith("-") or not text.isprintable():
            raise JobError(f"--line '{line}': should be '{directive} OPTION' for the scheduler of {site.name}, or "
                           "OPTION alone, which begins with '-'")
        found.append(text)
    return found


def arguments(request: Request, site: Site, catalogues: Sequence[str] = ()) -> list[str]:
    """Return the arguments of ``ebsif job`` that make this request, with the options for catalogues."""
    words = [request.module, "--site", site.name, *catalogues]
    for field in fields(Request)[2:]:
        value = getattr(request, field.name)
        option = f"--{field.name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, tuple):
            words += [f"{option}={one}" for one in value]
        elif value != field.default:
            words += [option, str(value)]
    return [*words, "--", *request.command]


def seconds(time):
    """Return a duration in hours:minutes:seconds as seconds (int)."""
    hours, minutes, rest = map(int, time.split(":"))
    return hours * 3600 + minutes * 60 + rest


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
    check_options(request, site)
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
        advice = f"; to use {name}, add --launcher {name}" if name in LAUNCHERS else ""
        raise JobError("the batch script starts the container, the ranks and python itself: name only the program, "
                       f"without '{name}'{advice}")
    return tuple(words)


def program_file(command: Iterable[str]) -> Optional[str]:
    """
    Return the file that python or a launcher runs, or None if it runs a module or code from the command line.

    Raises
    ------
    JobError
        If this can't be told, because an option and its value are separate words.
    """
    words = iter(command)
    before = ""
    for word in words:
        if word in ("-m", "--module", "-c", "-"):
            return None
        if word in ("-W", "-X"):
            next(words, None)
        elif not word.startswith("-"):
            # which of a launcher's options have a value is not known here
            if before.startswith("--") and "=" not in before and before not in NO_PYTHON and not word.endswith(".py"):
                raise JobError(f"'{before} {word}': is {word} the program (whose name then has to end in .py), or the "
                               f"value of {before}? If it is the value, write {before}={word}")
            return word
        before = word
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
    names = [word for word in request.command if not word.startswith("-")]
    stem = Path(program_file(request.command) or names[0]).stem if names else request.module.split("/")[0]
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
    return text.render(site=site, scheduler=site.scheduler, umask=umask(), **values)


def umask():
    """Return the umask of this process (str, octal)."""
    # it can only be read by setting it
    found = os.umask(0o077)
    os.umask(found)
    return f"{found:03o}"
