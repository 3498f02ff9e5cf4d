"""Write a batch script for a site: run a program on many nodes in the container of a module, or install an easyconfig.

The site profile provides the defaults: partition, ranks and CPUs per node, launcher options. The account comes from
--account, else from an environment variable that the site names, else from your Unix groups if exactly one of them is
an account. Anything else that the scheduler can do goes through --scheduler.
"""

import argparse
import dataclasses
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.credentials import Credentials
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif import files
from ebsif.catalog import selection
from ebsif.catalog.fieldtypes import is_duration
from ebsif.catalog.settings import Settings
from ebsif.catalog.site import STAGED, Site
from ebsif.commands.options import add_json, add_name, add_output, add_overwrite, add_settings, names_of, settings_of
from ebsif.eb import framework, running
from ebsif.errors import UsageError
from ebsif.installed import report, runtimecommand
from ebsif.installed.names import Names, shown
from ebsif.installed.places import Installation, changing, short
from ebsif.jobs import job, launchers, otherwords
from ebsif.report import output
from ebsif.text import did_you_mean

EXAMPLES = """\
  ebsif job PyTorch/2.7.1-... --nodes 4 -o train.sh -- train.py --epochs 10
  ebsif job PyTorch/2.7.1-... --nodes 2 --launcher torchrun \\
      --data images.squashfs:/data -- train.py
  # before the time limit, the program saves its state; the next job continues
  ebsif job mine --nodes 64 --time 2-00:00:00 --signal 300 --requeue \\
      --submit -- train.py
  ebsif job mine --signal 300 --segments 4 --submit -- train.py
  # Ray on two nodes, for an extension that has it
  ebsif job rl --nodes 2 --launcher ray --submit -- tune.py
  # vLLM in the background, and a program that asks it
  ebsif job mine --server 'vllm serve /scratch/model' -- ask.py prompts.txt
  # with other options of the scheduler
  ebsif job mine --scheduler='--array=0-9 --mail-type=END' -- train.py
  ebsif job --install PyTorch-mine.eb --site archer2 --submit -- --robot
"""

MORE = ("PROGRAM ARGUMENT", "arguments for the program")


# what is said about options that the command doesn't have
other_words = otherwords.advice


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_name(parser, "module", "the module")
    add_settings(parser)
    # what is needed most comes first, which -h shows
    what = parser.add_argument_group("what to do with the script")
    add_output(what, "write the script to this file (default: print it)", metavar="FILE", overwrite=False)
    what.add_argument("--submit", action="store_true", help="also submit the job")
    add_resources(parser.add_argument_group("resources (default: the site's)"))
    add_running(parser.add_argument_group("how the program runs"))
    add_overwrite(what)
    what.add_argument(
        "--segments",
        type=count,
        metavar="N",
        default=1,
        help="with --submit: submit N jobs, each of which starts after the success of the one before",
    )
    add_json(what)
    parser.add_argument(
        "--install", metavar="EASYCONFIG", help="install this easyconfig; arguments after -- are for eb"
    )


def add_resources(parser: argparse._ArgumentGroup) -> None:
    """Add the options for resources, and others that the scheduler reads."""
    parser.add_argument("-N", "--nodes", type=count, default=1, help="number of nodes (default: 1)")
    parser.add_argument(
        "--time",
        type=duration,
        metavar="TIME",
        help="time limit, as Slurm reads it (MINUTES, M:SS, H:MM:SS, or D-H[:MM[:SS]] with days)",
    )
    parser.add_argument("--account", help="account (project) to charge")
    parser.add_argument("--partition", metavar="NAME", help="partition or queue")
    parser.add_argument("--gpus-per-node", type=count, metavar="N", help="GPUs per node")
    parser.add_argument("--tasks-per-node", type=count, metavar="N", help="ranks per node")
    parser.add_argument("--cpus-per-task", type=count, metavar="N", help="CPUs per rank")
    parser.add_argument("--memory", metavar="SIZE", help="memory per node, in the scheduler's notation")
    parser.add_argument("--name", help="name of the job (default: name of the program)")
    parser.add_argument(
        "--scheduler",
        metavar="OPTIONS",
        action="append",
        default=[],
        help="more options of sbatch, qsub or flux batch for the header, such as "
        "--scheduler='--qos=debug --array=0-9'; they win over the others (repeatable)",
    )


def add_running(parser: argparse._ArgumentGroup) -> None:
    """Add the options for what happens in the job."""
    parser.add_argument(
        "--launcher",
        choices=list(launchers.LAUNCHERS),
        default=launchers.Native.name,
        help="native: the scheduler starts each rank, with srun, mpiexec or flux; torchrun, "
        "accelerate: started once on each node, it starts the ranks there; deepspeed: the "
        "scheduler starts each rank, as DeepSpeed expects it; ray: Ray runs on all nodes, and the program on the "
        "first one (default: native)",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="with --launcher ray: also start a Ray without tokens (before 2.52), though others can run code in the "
        "job by it; with --server: also start a server that others on the node can use",
    )
    parser.add_argument(
        "--server",
        metavar="COMMAND",
        help="start this server in the container, and the program when it answers, with OPENAI_BASE_URL and "
        "OPENAI_API_KEY; without a program, the server stays (ebsif connect). vLLM and Ray Serve are known; in other "
        "commands, {socket} or {port} says where it has to listen",
    )
    parser.add_argument(
        "--ready",
        metavar="PATH",
        help="what the server answers with success when it can be used, such as /health, or http://HOST:PORT/PATH",
    )
    parser.add_argument(
        "--ready-within",
        type=duration,
        metavar="TIME",
        default="00:30:00",
        help="how long this may take (default: 30 minutes)",
    )
    parser.add_argument(
        "--signal",
        type=count,
        metavar="SECONDS",
        help="send USR1 to the program this long before the time limit, so that it saves its state",
    )
    parser.add_argument(
        "--requeue",
        action="store_true",
        help="put the job back into the queue if a node fails, and after --signal if the program exits with 0",
    )
    parser.add_argument(
        "--data",
        metavar="PATH[:/TARGET]",
        action="append",
        default=[],
        help="end the job early if this file or directory is missing; the ranks find it, or the "
        "content of a SquashFS file, at TARGET (repeatable)",
    )
    parser.add_argument(
        "--stage",
        choices=STAGED,
        help="copy user software, or also the image, to each node before the ranks start (default: "
        "the site's, usually none)",
    )


def run(options: argparse.Namespace) -> int:
    """Write a batch script, and submit it if requested; return the exit status."""
    settings = settings_of(options)
    profile = settings.site()
    text, module = write(options, settings, profile)
    if options.json:
        return print_result(options, profile, text, module)
    if options.output:
        files.write_new({options.output: text}, options.overwrite)
        submit = shlex.join([*job.scheduler_of(profile).submit, str(options.output)])
        is_enough = not options.submit and options.segments == 1
        output.done(f"wrote {options.output}" + (f"; submit it with: {submit}" if is_enough else ""))
    elif not options.submit:
        output.print_file(text)
    if options.submit:
        job.submit(job.scheduler_of(profile), text, options.segments)
    elif options.segments > 1:
        output.note(
            f"this is the script of each of the {options.segments} jobs: ebsif job --submit submits them, each "
            "to start after the success of the one before"
        )
    return 0


def print_result(options: argparse.Namespace, profile: Site, text: str, module: Optional[str]) -> int:
    """Write and submit a batch script, and print what was done as JSON; return the exit status."""
    if options.output:
        files.write_new({options.output: text}, options.overwrite)
    jobs = job.submit(job.scheduler_of(profile), text, options.segments, silent=True) if options.submit else []
    print(
        json.dumps(
            {
                "module": module,
                "file": str(options.output.absolute()) if options.output else None,
                "script": text,
                "jobs": jobs,
            },
            indent=2,
        )
    )
    return 0


def write(options: argparse.Namespace, settings: Settings, profile: Site) -> tuple[str, Optional[str]]:
    """Return the text of the requested batch script, and the module that it loads."""
    if options.install and options.module:
        raise UsageError("name either a module or --install EASYCONFIG")
    if not (options.install or options.more or options.server):
        raise UsageError("give the program to run: ebsif job MODULE ... -- train.py")
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(job.JobRequest)[2:]}
    values.update(scheduler=tuple(options.scheduler), data=tuple(map(job.parse_data, options.data)))
    if options.install:
        request = job.JobRequest("", (f"install-{Path(options.install).name}",), **values)
        without_effect = [
            job.option(field)
            for field in dataclasses.fields(job.JobRequest)[2:]
            if field.name not in job.OF_INSTALLATION and values[field.name] != field.default
        ]
        if without_effect:
            raise UsageError(
                f"an installation runs on one node, without {' or '.join(without_effect)} (--scheduler "
                "adds any option of the scheduler)"
            )
        more = [*running.finding_easyblocks(has_own=True), *options.more]
        return job.install_script(options.install, more, request, profile), None
    command = job.python_program(options.more) if options.more else ()
    file = job.program_file(command)
    if file:
        check_there(
            file,
            f"{file} does not exist in {Path.cwd()}, where the job would start if you submit it from here",
            options.submit,
        )
    if file and files.is_directory(file) and not files.is_there(Path(file, "__main__.py")):
        output.note(f"{file} is a directory, which python can't run without a __main__.py: give the program in it")
    for item in values["data"]:
        check_there(item.source, f"{item.source}, which --data names, does not exist", options.submit)
    if found := Credentials.find([*command, options.server or ""]):
        output.note(
            f"the batch script has a credential ({', '.join(found)}), which others may read there, and in the "
            "list of processes: let the program read it from a file or a variable. The record of the run "
            "leaves the arguments out"
        )
    request = job.JobRequest(options.module or "", command, **values)
    names = names_of(options)
    name, use = module_name(names, options.module, profile, options.submit, job.launcher_of(request))
    request = dataclasses.replace(request, module=name)
    # the run may be repeated from another directory, and the configuration may name what an option names
    folders = dict.fromkeys(str(folder.absolute()) for folder in settings.own_directories)
    catalogs = [word for folder in folders for word in ("--catalog", folder)]
    file = str(options.output or "FILE")
    there = names.installed_as(name) if job.launcher_of(request).packages else None
    versions = {normal_name(one): version for one, _, version in report.packages_of(there, [])} if there else {}
    return job.script(request, profile, catalogs, use, file, versions), name


def check_there(path: str, problem: str, needed: bool) -> None:
    """Report a problem if a file is missing; raise JobError if the job is about to be submitted."""
    if files.is_there(Path(path)):
        return
    if needed:
        raise job.JobError(f"{problem}; nothing was submitted")
    output.note(problem)


def module_name(
    names: Names, name: Optional[str], profile: Site, needed: bool, launcher: launchers.Launcher
) -> tuple[str, Optional[Path]]:
    """
    Return the name of a module for a launcher, which may be shortened as for other commands, and its directory.

    The directory is None where a new shell searches anyway. A full name that isn't known here may be that of a module
    that only the nodes of the job have: this is noted, but raise JobError if the job is about to be submitted.
    """
    unknown = None
    try:
        module = names.module(name)
    except selection.UnknownNameError as error:
        module, unknown = name or "", error
    there = names.installed_as(module)
    if there:
        scripts = there.root / "runscripts"
        if files.is_there(scripts) and not files.is_there(scripts / launcher.run_script):
            raise job.JobError(
                f"{module} lacks the run script {launcher.run_script}, which the job needs: install the module "
                f"again with `{there.rebuild}` (an image without Python can't run such jobs)"
            )
        note_missing(launcher.packages, there)
        return module, there.use if there.use and framework.is_own(there.use) else None
    # modules of the site may make it available
    available = runtimecommand.is_available(module, *profile.scheduler.modules)
    if available or (available is None and not unknown):
        return module, None
    if unknown and "/" not in module:
        raise unknown
    known = [*(container.module_or_version for container in names.containers), *map(shown, names.installations)]
    problem = f"there is no module {module} on this machine{did_you_mean(module, known) if unknown else ''}"
    if needed:
        raise job.JobError(
            f"{problem}; nothing was submitted (`module avail` lists the modules here; if only the "
            "compute nodes have it, write the script with -o FILE, and submit that)"
        )
    output.note(f"{problem}: check that the compute nodes have it")
    return module, None


def note_missing(packages: Sequence[str], installation: Installation) -> None:
    """Note that a module lacks packages of a launcher; an environment of make-venv may have them."""
    if packages and not installation.damage and installation.record.is_complete:
        there = {normal_name(name) for name, _, _ in report.packages_of(installation, [])}
        for package in packages:
            if package not in there:
                command = shlex.join([*changing(installation, package), "--add", package])
                output.note(f"{short(installation)} has no {package}; to add it: {command}")


def count(text: str) -> int:
    """Return a positive number."""
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def duration(text: str) -> str:
    """Return a duration as hours:minutes:seconds."""
    try:
        return is_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' {error}") from None
