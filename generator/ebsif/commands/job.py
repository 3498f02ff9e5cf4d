"""Write a batch script for a site: run a program on many nodes in the container of a module, or install an easyconfig.

The site profile provides the defaults: partition, ranks and CPUs per node, launcher options. The account comes from
--account, else from an environment variable that the site names, else from your Unix groups if exactly one of them is
an account.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from ebsif import output
from ebsif.catalogue import selection
from ebsif.catalogue.fieldtypes import is_duration
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.errors import FAILED
from ebsif.installed import runtimecommand
from ebsif.installed.names import Names, add_name_argument
from ebsif.jobs import job

EXAMPLES = """\
  ebsif job PyTorch/2.7.1-... --nodes 4 -o train.sh -- train.py --epochs 10
  ebsif job PyTorch/2.7.1-... --nodes 2 --launcher torchrun \\
      --data /scratch/mnist -- train.py
  ebsif job --install PyTorch-mine.eb --site archer2 --submit -- --robot
"""

MORE = "PROGRAM ARGUMENT"


def configure(parser):
    """Add the arguments."""
    add_name_argument(parser, "module", "the module", metavar="MODULE")
    parser.add_argument("--install", metavar="EASYCONFIG",
                        help="install this easyconfig; arguments after -- are for eb")
    add_settings_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path,
                        help="write the script to this file (default: print it)")
    parser.add_argument("--submit", action="store_true", help="also submit the job")
    parser.add_argument("--nodes", type=count, default=1, help="number of nodes (default: 1)")
    parser.add_argument("--launcher", choices=job.LAUNCHERS, default=job.LAUNCHERS[0],
                        help="native: the scheduler starts each rank (srun, mpiexec, flux run); torchrun: the "
                             "scheduler starts torchrun once on each node (default: native)")
    parser.add_argument("--name", help="name of the job (default: name of the program)")
    parser.add_argument("--account", help="account (project) to charge")
    parser.add_argument("--partition", metavar="NAME", help="partition or queue")
    parser.add_argument("--qos", help="quality of service")
    parser.add_argument("--time", type=duration, metavar="[D-]H:MM:SS", help="time limit")
    parser.add_argument("--tasks-per-node", type=count, metavar="N", help="ranks per node")
    parser.add_argument("--cpus-per-task", type=count, metavar="N", help="CPUs per rank")
    parser.add_argument("--gpus-per-node", type=count, metavar="N", help="GPUs per node")
    parser.add_argument("--memory", metavar="SIZE", help="memory per node, in the scheduler's notation")
    parser.add_argument("--data", metavar="PATH", action="append", default=[],
                        help="end the job early if this file or directory is missing (repeatable)")
    parser.add_argument("--nccl-debug", action="store_true", help="log which network plugin the GPUs use")
    parser.add_argument("--report", action="store_true", help="print the CPUs and the GPU of each rank")


def run(options):
    """Write a batch script, and submit it if requested; return the exit status."""
    settings = read_settings(options)
    profile = settings.site()
    submit = job.scheduler_of(profile).submit
    text = write(options, settings, profile)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
        next_step = "" if options.submit else f"; submit it with: {' '.join(submit)} {options.output}"
        output.note(f"wrote {options.output}{next_step}")
    elif not options.submit:
        print(text, end="")
    if not options.submit:
        return 0
    try:
        output.command(submit)
        status = subprocess.run(submit, input=text, text=True, check=False).returncode
        return FAILED if status else 0
    except FileNotFoundError:
        raise job.JobError(f"{submit[0]} is not on PATH: submit on a login node of {profile.name}") from None


def write(options, settings, profile):
    """Return the text of the requested batch script."""
    if options.install and options.module:
        usage_error("name either a module or --install EASYCONFIG")
    if not options.install and not options.more:
        usage_error("name the program to run: ebsif job MODULE ... -- train.py")
    values = {name: getattr(options, name) for name in (
        "nodes", "launcher", "name", "account", "partition", "qos", "time", "tasks_per_node", "cpus_per_task",
        "gpus_per_node", "memory", "nccl_debug", "report")}
    if options.install:
        stem = Path(options.install).name
        request = job.Request(module="", command=(f"install-{stem}",), **values)
        return job.install_script(options.install, options.more, request, profile)
    command = job.python_program(options.more)
    check_file(job.program_file(command), options.submit)
    request = job.Request(module=module_name(options), command=command,
                          data=tuple(options.data), **values)
    return job.script(request, profile)


def check_file(path, needed):
    """Warn if the program is missing; raise JobError if the job is about to be submitted from this directory."""
    if path is None or Path(path).exists():
        return
    problem = f"{path} does not exist in {Path.cwd()}, where the job would start if you submit it from here"
    if needed:
        raise job.JobError(problem)
    output.note(problem)


def module_name(options):
    """
    Return the name of a module (str), which may be shortened as for other commands; warn if it isn't available.

    Raises
    ------
    UsageError, NamingError, CatalogueError
        If there is no name, or it is ambiguous.
    """
    known = True
    try:
        module = Names(options).module(options.module)
    except selection.UnknownName:
        module, known = options.module, False
    available = runtimecommand.is_available(module)
    if not available and not (available is None and known):
        output.note(f"there is no module {module} on this machine: the job can only load it if its nodes have it")
    return module


def usage_error(text):
    """Exit as argparse does."""
    print(f"ebsif job: error: {text}", file=sys.stderr)
    sys.exit(2)


def count(text):
    """Return a positive number (int)."""
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def duration(text):
    """Return a valid duration (str)."""
    try:
        return is_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' {error}") from None
