"""Write a batch script for a site: a training on many nodes in the container of a module, or an installation.

Everything that is not named follows from the profile of the site: partition, ranks and CPUs per node, launcher.
The account comes from the option, else from a variable that the site names, else from your groups where the site has
one for each account.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from ebsif import output
from ebsif.catalogue import selection
from ebsif.catalogue.container import CatalogueError
from ebsif.catalogue.fieldtypes import is_duration
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.installed import runtimecommand
from ebsif.jobs import job

EXAMPLES = """\
  ebsif job PyTorch/2.7.1-... --nodes 4 --site lumi -o train.sh -- train.py --epochs 10
  ebsif job PyTorch/2.7.1-... --nodes 2 --launcher torchrun --data /scratch/mnist -- train.py
  ebsif job --install PyTorch-mine.eb --site archer2 --submit -- --robot
"""

MORE = "PROGRAM ARGUMENT"


def configure(parser):
    """Add the arguments."""
    parser.add_argument("module", metavar="MODULE", nargs="?", help="name of the module, as for `module load`")
    parser.add_argument("--install", metavar="EASYCONFIG", help="install this; what follows -- goes to eb")
    add_settings_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to this file (default: print it)")
    parser.add_argument("--submit", action="store_true", help="submit it as well")
    parser.add_argument("--nodes", type=count, default=1, help="number of nodes (default: 1)")
    parser.add_argument("--launcher", choices=job.LAUNCHERS, default=job.LAUNCHERS[0],
                        help="native: srun or mpiexec start each rank; torchrun: it does, once on each node")
    parser.add_argument("--name", help="name of the job (default: that of the program)")
    parser.add_argument("--account", help="who pays")
    parser.add_argument("--partition", metavar="NAME", help="partition or queue")
    parser.add_argument("--qos", help="quality of service")
    parser.add_argument("--time", type=duration, metavar="[D-]H:MM:SS", help="time limit")
    parser.add_argument("--tasks-per-node", type=count, metavar="N", help="ranks on each node")
    parser.add_argument("--cpus-per-task", type=count, metavar="N", help="CPUs of each rank")
    parser.add_argument("--gpus-per-node", type=count, metavar="N", help="GPUs of each node")
    parser.add_argument("--memory", metavar="SIZE", help="memory of each node, as the scheduler writes it")
    parser.add_argument("--data", metavar="PATH", action="append", default=[],
                        help="has to be there before the job starts, may be repeated")
    parser.add_argument("--nccl-debug", action="store_true", help="show which network plugin the GPUs use")
    parser.add_argument("--report", action="store_true", help="show CPUs and GPU of each rank")


def run(options):
    """Write a batch script, and submit it if asked to; return the exit status."""
    settings = read_settings(options)
    profile = settings.site()
    submit = job.scheduler_of(profile).submit
    text = write(options, settings, profile)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
        how = "" if options.submit else f"; submit it with: {' '.join(submit)} {options.output}"
        output.note(f"wrote {options.output}{how}")
    elif not options.submit:
        print(text, end="")
    if not options.submit:
        return 0
    try:
        output.command(submit)
        return subprocess.run(submit, input=text, text=True, check=False).returncode
    except FileNotFoundError:
        raise job.JobError(f"{submit[0]} is not on PATH: submit on a login node of {profile.name}") from None


def write(options, settings, profile):
    """Return the text of the batch script that the options ask for."""
    if bool(options.install) == bool(options.module):
        wrong_use("name a module, or --install EASYCONFIG")
    if options.module and not options.more:
        wrong_use("say what to run: ebsif job MODULE ... -- train.py")
    values = {name: getattr(options, name) for name in (
        "nodes", "launcher", "name", "account", "partition", "qos", "time", "tasks_per_node", "cpus_per_task",
        "gpus_per_node", "memory", "nccl_debug", "report")}
    if options.install:
        stem = Path(options.install).name
        request = job.Request(module="", command=(f"install-{stem}",), **values)
        return job.install_script(options.install, options.more, request, profile)
    command = job.python_program(options.more)
    check_file(job.program_file(command), options.submit)
    request = job.Request(module=module_name(options.module, settings.containers(profile), profile), command=command,
                          data=tuple(options.data), **values)
    return job.script(request, profile)


def check_file(path, needed):
    """Say that the program is not here; the job would start here if it is submitted now, so that is refused."""
    if path is None or Path(path).exists():
        return
    problem = f"there is no {path} in {Path.cwd()}, where the job would start if it were submitted here"
    if needed:
        raise job.JobError(problem)
    output.note(problem)


def module_name(wanted, containers, profile):
    """
    Return the name of the module that a person means (str), as other commands read it; say if nothing is known of it.

    Raises
    ------
    CatalogueError
        If it's more than one container.
    """
    try:
        found = selection.find(containers, wanted)
    except CatalogueError:
        found = []
    module = selection.find_one(found, wanted).module if found else wanted
    available = runtimecommand.is_available(module)
    if not available and not (available is None and found):
        output.note(f"no module {module} is found here: the job fails unless one is found there")
    return module


def wrong_use(text):
    """End as argparse does."""
    print(f"ebsif job: error: {text}", file=sys.stderr)
    sys.exit(2)


def count(text):
    """Return a number from 1 on."""
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)


def duration(text):
    """Return a duration if it is one."""
    try:
        return is_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' {error}") from None
