"""Write and submit batch scripts for the scheduler of a site: a distributed run in a container, or an installation."""

import fnmatch
import grp
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.credentials import MASK, Credentials
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS, Scheduler
from easybuild.easyblocks.generic.container.sitevalues import RUNTIMES
from easybuild.easyblocks.generic.container.values import (
    MODULE_DIRECTORIES,
    MOUNT_SQUASHFS,
    NAME_PART,
    bind_problem,
    escape_bind,
    is_in_any,
)

from ebsif.catalog.fieldtypes import seconds_in
from ebsif.catalog.site import Site
from ebsif.errors import EbsifError, UsageError
from ebsif.jobs.launchers import LAUNCHERS, Launcher, Native, Ray, Share, WithServer
from ebsif.report import output
from ebsif.servers import is_python, server_of
from ebsif.templating import environment, quote

# Programs that start ranks or containers, which the script does already.
STARTERS = {one.starter for one in SCHEDULERS.values()} | {"mpirun", *RUNTIMES, *LAUNCHERS} - {Native.name}

# Fields of a request that count for an installation.
OF_INSTALLATION = ("name", "account", "partition", "time", "cpus_per_task", "memory", "scheduler")

# Options of launchers after which the program is any executable.
NO_PYTHON = ("--no-python", "--no_python")

# Options of python in one word, such as -um MODULE; the last one has a value, in the same word or the next one.
PYTHON_FLAGS = re.compile("-[bBdEhiIOPqRsSuvVx?]*(?P<last>[cmWX])(?P<value>.*)", re.DOTALL)

# Suffixes of SquashFS files, whose content is mounted; all other files are mounted themselves.
SQUASHFS = (".squashfs", ".sqsh", ".sqfs", ".squash")

# The longest name of a job by default: the file of its output also has the job's number.
NAME_LENGTH = 60


class JobError(EbsifError):
    """A batch script can't be written or submitted; the message says why and what to do."""


@dataclass(frozen=True)
class Data:
    """A file or directory that a job needs, and its path in the container (None: it only has to be there)."""

    source: str
    target: Optional[str] = None

    @property
    def bind(self) -> Optional[str]:
        """The bind for the container runtime, or None."""
        if not self.target:
            return None
        return f"{escape_bind(self.source)}:{self.target}" + (MOUNT_SQUASHFS if self.source.endswith(SQUASHFS) else "")

    def __str__(self) -> str:
        """Return the text that `parse_data` reads."""
        return f"{self.source}:{self.target}" if self.target else self.source


@dataclass(frozen=True)
class JobRequest:
    """
    What to run, and where: a command in the container of a module. None stands for the site's default.

    The fields are the options of ``ebsif job`` of the same names; `command` is what follows --, which a server may
    lack.
    """

    module: str
    command: tuple[str, ...]
    nodes: int = 1
    launcher: str = Native.name
    name: Optional[str] = None
    account: Optional[str] = None
    partition: Optional[str] = None
    time: Optional[str] = None
    tasks_per_node: Optional[int] = None
    cpus_per_task: Optional[int] = None
    gpus_per_node: Optional[int] = None
    memory: Optional[str] = None
    signal: Optional[int] = None
    requeue: bool = False
    segments: int = 1
    scheduler: tuple[str, ...] = ()
    data: tuple[Data, ...] = ()
    stage: Optional[str] = None
    insecure: bool = False
    server: Optional[str] = None
    ready: Optional[str] = None
    ready_within: str = "00:30:00"


def parse_data(text: str) -> Data:
    """Return the data that PATH or PATH:/TARGET names; raise UsageError if no container can have the target."""
    parts = re.fullmatch(r"(.+):(/[^:]*)", text, re.DOTALL)
    if os.path.exists(text) or not (parts or ":/" in text):
        return Data(text)
    if not parts:
        raise UsageError(f"--data {text}: should be PATH or PATH:/TARGET, without options of the runtime")
    # the job may start elsewhere; two slashes at the beginning would stay
    source, target = os.path.abspath(parts[1]), os.path.normpath(f"/{parts[2].lstrip('/')}")
    if target == "/" or not target.isprintable() or bind_problem(target, templates=False):
        raise UsageError(f"--data {text}: {parts[2]} can't be a directory in the container: write FILE:/data")
    if is_in_any(target, MODULE_DIRECTORIES):
        raise UsageError(f"--data {text}: {target} belongs to the module: write FILE:/data")
    try:
        escape_bind(source)
    except ValueError as error:
        raise UsageError(f"--data {text}: {error}") from None
    return Data(source, target)


def script(
    request: JobRequest,
    site: Site,
    catalogs: Sequence[str] = (),
    use: Optional[Path] = None,
    file: str = "FILE",
    versions: Mapping[str, str] = {},
) -> str:
    """
    Return a batch script that runs a Python program in the container of a module.

    `catalogs` are the options that name the user's own catalogs, for the record of the run; `use` is the directory
    of the module if a new shell may not search there, `file` where the script will be, and `versions` has the packages
    of the module, as far as they are known. Raise JobError if the request is impossible.
    """
    partition_name, partition = site.scheduler.partition(request.partition)
    tasks = request.tasks_per_node or partition.tasks
    gpus = partition.gpus if request.gpus_per_node is None else request.gpus_per_node
    time = request.time or site.scheduler.time
    launcher = launcher_of(request, versions)
    cpus = request.cpus_per_task or partition.cpus_per_task
    masks = [] if request.cpus_per_task else partition.cpu_masks[:tasks]
    without_tokens = request.insecure or partition.exclusive or takes_whole_nodes(request, site)
    check(request, site, launcher, tasks, gpus, time)
    if (reason := launcher.open_because(versions)) and not without_tokens:
        raise JobError(
            f"{reason}, so others on the nodes could use it: take whole nodes (a partition with whole nodes, or "
            f"--scheduler with the option of {scheduler_of(site).submit[0]}); --insecure starts it anyway"
        )
    share = Share(request.nodes, tasks, cpus, gpus, masks, without_tokens)
    # in a comment of the script, a line break would begin a command
    name = shlex.quote(file) if file.isprintable() else "FILE"
    return render(
        "job",
        site,
        request,
        partition_name,
        use=use and str(use),
        tasks=tasks,
        gpus=gpus,
        time=time,
        cpus=cpus,
        memory=request.memory or partition.memory,
        masks=masks,
        launcher=launcher,
        settings=launcher.settings(share),
        qos=partition.qos,
        seconds=seconds_in(time),
        arguments=arguments(request, site, catalogs),
        comment=launcher.comment(share),
        program=program(request, site, launcher, share),
        file=program_file(request.command) or "",
        stage=request.stage or site.stage,
        submit=f"{' '.join(scheduler_of(site).submit)} {name}",
        then="requeue" if request.requeue else "next" if request.segments > 1 else "end",
        timer=timer(request, site, seconds_in(time)),
        options="--remove-caches " if site.caches.remove else "",
    )


def launcher_of(request: JobRequest, versions: Mapping[str, str] = {}) -> Launcher:
    """Return what starts a program, and its server if there is one; raise JobError if it can't have one."""
    launcher = LAUNCHERS[request.launcher]
    if request.server is None:
        if request.ready:
            raise JobError("--ready only has a meaning with --server")
        return launcher
    if request.launcher not in (Native.name, Ray.name):
        raise JobError(f"--launcher {request.launcher} starts ranks: a server runs without it, or with {Ray.name}")
    if request.nodes > 1 and request.launcher == Native.name:
        raise JobError(f"a server runs on one node: for one that uses several nodes by Ray, add --launcher {Ray.name}")
    return WithServer(
        launcher, server_of(request.server, request.ready or "", versions), seconds_in(request.ready_within)
    )


def check(request: JobRequest, site: Site, launcher: Launcher, tasks: int, gpus: int, time: str) -> None:
    """Raise JobError if a request is impossible at a site."""
    if gpus and site.gpu == "none":
        raise JobError(f"the site {site.name} has no GPUs: remove --gpus-per-node")
    if gpus and tasks > gpus and launcher.has_ranks:
        raise JobError(f"{tasks} ranks on a node with {gpus} GPUs: each rank uses one GPU, so reduce --tasks-per-node")
    if request.insecure and request.launcher != Ray.name and request.server is None:
        raise JobError(f"--insecure only has a meaning with --launcher {Ray.name} or --server")
    scheduler = scheduler_of(site)
    if request.signal and request.signal >= seconds_in(time):
        raise JobError(f"--signal {request.signal} is not before the end of a job of {time}: increase --time")
    if request.signal and request.signal + scheduler.signals_early >= seconds_in(time):
        # srun loses a signal that comes before it has started the ranks
        raise JobError(
            f"--signal {request.signal}: {scheduler.submit[0]} may send it {scheduler.signals_early} seconds early, "
            f"when a job of {time} is still starting: increase --time"
        )
    if request.signal and 0 < scheduler.signals_within < request.signal:
        raise JobError(
            f"--signal {request.signal}: {scheduler.submit[0]} sends a signal at most "
            f"{scheduler.signals_within} seconds before the end of a job"
        )
    sources: dict[str, str] = {}
    for item in request.data:
        if item.target and item.target in sources:
            raise JobError(
                f"--data has {sources[item.target]} and {item.source} at {item.target}: give each another target"
            )
        sources.update({item.target: item.source} if item.target else {})


def takes_whole_nodes(request: JobRequest, site: Site) -> bool:
    """Return whether options of the scheduler keep other jobs away from the nodes."""
    options = (*site.scheduler.options, *request.scheduler)
    return any(re.search(scheduler_of(site).whole_nodes, option) for option in options)


def program(request: JobRequest, site: Site, launcher: Launcher, share: Share) -> str:
    """Return the command in the container, for the shell: the program, or what starts it."""
    words = launcher.program(list(request.command))
    start = 'singularity exec "$SIF" conda-python-distributed'
    if (request.stage or site.stage) != "none":
        start = f'"$RUNSCRIPTS/stage-software" --use {start}'
    if not launcher.start:
        return f"{start} {quote(words)}"
    return f"{start} {quote(list(launcher.start))} \\\n    {quote([*launcher.options(words, share), *words])}"


def timer(request: JobRequest, site: Site, limit: int) -> str:
    """Return the arguments of job_signal for a timer, or '' if the scheduler sends the signal."""
    return "" if scheduler_of(site).signals_within else f" {request.signal} {limit}"


def arguments(request: JobRequest, site: Site, catalogs: Sequence[str] = ()) -> list[str]:
    """Return the arguments of ``ebsif job`` that make this request, with the options for catalogs."""
    words = [request.module, "--site", site.name, *catalogs]
    for field in fields(JobRequest)[2:]:
        value = getattr(request, field.name)
        if value is True:
            words.append(option(field))
        elif isinstance(value, tuple):
            words += [f"{option(field)}={item}" for item in value]
        elif value != field.default:
            words += [option(field), Credentials.mask(value) if field.name == "server" else str(value)]
    if not request.command:
        return words
    # the record of a run is for others
    command = [request.command[0], MASK] if Credentials.find(list(request.command)) else request.command
    return [*words, "--", *command]


def option(field: Field) -> str:
    """Return the option of ``ebsif job`` for a field of a request."""
    return f"--{field.name.replace('_', '-')}"


def scheduler_of(site: Site) -> type[Scheduler]:
    """Return the scheduler of a site."""
    return SCHEDULERS[site.scheduler.kind]


def install_script(easyconfig: str, options: list[str], request: JobRequest, site: Site) -> str:
    """
    Return a batch script that installs an easyconfig on a compute node, for builds too heavy for a login node.

    The request has account, partition, resources and time; `options` are for eb. Raise JobError as `script` does.
    """
    install = site.scheduler.install
    partition_name, partition = site.scheduler.partition(request.partition or install.partition)
    time = request.time or install.time
    return render(
        "install",
        site,
        request,
        partition_name,
        cpus=request.cpus_per_task or install.cpus,
        memory=request.memory or install.memory,
        qos=partition.qos,
        time=time,
        seconds=seconds_in(time),
        modules=install.modules,
        easyconfig=easyconfig,
        options=options,
    )


def python_program(words: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of python for a command as a person types it; raise JobError if it is no Python program."""
    name = Path(words[0]).name
    if is_python(name):
        # the batch script runs python anyway
        words = words[1:]
        if not words:
            raise JobError(f"add what {name} should run: train.py, or -m MODULE")
    elif name in STARTERS:
        advice = f"; to use {name}, add --launcher {name}" if name in LAUNCHERS else ""
        raise JobError(
            "the batch script starts the container, the ranks and python itself: give only the program, "
            f"without '{name}'{advice}"
        )
    return tuple(words)


def program_file(command: Iterable[str]) -> Optional[str]:
    """
    Return the file that python or a launcher runs, or None if it runs a module or code from the command line.

    Raise JobError if an option and its value are separate words, so that either could be the program.
    """
    words = iter(command)
    before = ""
    for word in words:
        flags = PYTHON_FLAGS.fullmatch(word)
        if word in ("--module", "-") or (flags and flags["last"] in "mc"):
            return None
        if flags and flags["last"] in "WX" and not flags["value"]:
            next(words, None)
        elif not word.startswith("-"):
            # which of a launcher's options have a value is not known here
            if before.startswith("--") and "=" not in before and before not in NO_PYTHON and not word.endswith(".py"):
                raise JobError(
                    f"'{before} {word}': is {word} the program (whose name then has to end in .py), or the "
                    f"value of {before}? If it is the value, write {before}={word}"
                )
            return word
        before = word
    return None


def job_name(request: JobRequest) -> str:
    """Return the name of a job, by default that of its program or server, from its first letter or digit on."""
    if request.name:
        return request.name
    names = [word for word in request.command or (request.server or "").split() if not word.startswith("-")]
    stem = Path(program_file(request.command) or names[0]).stem if names else ""
    return re.sub("[^A-Za-z0-9_.+-]", "-", stem).strip("-.+_")[:NAME_LENGTH].rstrip("-.+_") or "job"


def account(named: Optional[str], site: Site) -> Optional[str]:
    """
    Return the account to charge, or None if the site does not need one.

    It comes from the command line, else from an environment variable, else it is the only Unix group that is an
    account.
    """
    rule = site.scheduler.account
    name = named or next((os.environ[variable] for variable in rule.variables if os.environ.get(variable)), None)
    if name is None and rule.groups:
        groups = fnmatch.filter((group_name(gid) for gid in os.getgroups()), rule.groups)
        name = groups[0] if len(groups) == 1 else None
    if name is None and rule.required:
        ways = " or ".join(["--account", *rule.variables])
        raise JobError(f"jobs at the site {site.name} need an account: set it with {ways}")
    return name


def group_name(gid: int) -> str:
    """Return the name of a Unix group, or '' if it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def render(template: str, site: Site, request: JobRequest, partition: Optional[str], **values: object) -> str:
    """Return a batch script; in its template, the filter `sh` quotes values for the shell."""
    scheduler = scheduler_of(site)
    for option, reason in scheduler.lacks.items():
        if getattr(request, option, None):
            raise JobError(f"the site {site.name} can't fulfil --{option}: {reason}")
    header = {"name": job_name(request), "account": account(request.account, site), "partition": partition}
    for what, value in {**header, "memory": request.memory}.items():
        pattern = NAME_PART if what == "name" else "[A-Za-z0-9][A-Za-z0-9_.,:+@%-]*"
        if value and not re.fullmatch(pattern, value):
            raise JobError(f"'{value}' is not a valid {what} for a job")
    for options in request.scheduler:
        if not options.startswith("-") or not options.isprintable():
            raise JobError(f"--scheduler '{options}': give options of {' '.join(scheduler.submit)}, in one line")
    text = environment("ebsif.jobs").get_template(f"{site.scheduler.kind}/{template}.sh.j2")
    return text.render(
        site=site,
        scheduler=site.scheduler,
        request=request,
        header=header,
        umask=umask(),
        directives=[*site.scheduler.options, *request.scheduler],
        **values,
    )


def umask() -> str:
    """Return the umask of this process, in octal digits."""
    # it can only be read by setting it
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:03o}"


def submit(scheduler: type[Scheduler], text: str, segments: int = 1, silent: bool = False) -> list[str]:
    """
    Submit a batch script, and print what the scheduler says, unless `silent`; return the IDs of the jobs.

    With `segments`, submit it so often; each job starts only after the success of the one before. Raise JobError if a
    job isn't submitted; the message names those that are.
    """
    jobs: list[str] = []
    for number in range(segments):
        after = [word.replace("%s", jobs[-1]) for word in scheduler.after] if jobs else []
        words = [*scheduler.submit, *after]
        output.command(words)
        try:
            # arguments of the program that aren't UTF-8 reach it as they are
            result = subprocess.run(
                words, input=text, stdout=subprocess.PIPE, encoding="utf-8", errors="surrogateescape", check=False
            )
        except FileNotFoundError:
            raise JobError(f"{words[0]} is not on PATH: submit on a login node") from None
        print(result.stdout, end="", flush=True, file=sys.stderr if silent else sys.stdout)
        submitted = re.search(scheduler.submitted, result.stdout)
        if result.returncode or (segments > 1 and not submitted):
            queued = f"; those before it are in the queue, to remove them: {shlex.join([*scheduler.cancel, *jobs])}"
            which = f"segment {number + 1} of {segments}" if segments > 1 else "the job"
            why = (
                f"was not submitted: {words[0]} ended with status {result.returncode}"
                if result.returncode
                else f"may be in the queue, but {words[0]} has printed no ID of it, so no other job can follow it"
            )
            raise JobError(f"{which} {why}{queued if jobs else ''}")
        jobs.append(submitted[1] if submitted else "")
    return jobs
