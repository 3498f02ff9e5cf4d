"""Write a batch script for a site: run a program on many nodes in the container of a module, or install an easyconfig.

The site profile provides the defaults: partition, ranks and CPUs per node, launcher options. The account comes from
--account, else from an environment variable that the site names, else from your Unix groups if exactly one of them is
an account.
"""

import argparse
import dataclasses
import os
import re
from pathlib import Path

from ebsif import files
from ebsif.catalogue import selection
from ebsif.catalogue.fieldtypes import is_duration
from ebsif.catalogue.settings import read_settings
from ebsif.catalogue.site import STAGED
from ebsif.commands.options import add_name, add_output, add_settings
from ebsif.eb import framework
from ebsif.errors import UsageError
from ebsif.installed import lock, runtimecommand
from ebsif.installed.names import Names, shown
from ebsif.jobs import data, job, record, submission
from ebsif.report import output

EXAMPLES = """\
  ebsif job PyTorch/2.7.1-... --nodes 4 -o train.sh -- train.py --epochs 10
  ebsif job PyTorch/2.7.1-... --nodes 2 --launcher torchrun \\
      --data images.squashfs:/data -- train.py
  # before the time limit, the program saves its state; the next job continues
  ebsif job mine --nodes 64 --time 2-00:00:00 --signal 300 --requeue \\
      --submit -- train.py
  ebsif job mine --signal 300 --segments 4 --submit -- train.py
  # the run of this record again, on more nodes
  ebsif job --from train-4711.json --nodes 8 --submit
  ebsif job --install PyTorch-mine.eb --site archer2 --submit -- --robot
"""

MORE = "PROGRAM ARGUMENT"


def configure(parser):
    """Add the arguments."""
    add_name(parser, "module", "the module")
    parser.add_argument("--from", dest="record", metavar="RECORD", type=Path, action=From,
                        help="repeat the run of this record, which is beside its log (NAME-JOB.json): its module, "
                             "options and program, unless you name others after this option")
    parser.add_argument("--install", metavar="EASYCONFIG",
                        help="install this easyconfig; arguments after -- are for eb")
    add_settings(parser)
    what = parser.add_argument_group("what to do with the script")
    add_output(what, "write the script to this file (default: print it)", metavar="FILE")
    what.add_argument("--submit", action="store_true", help="also submit the job")
    what.add_argument("--interactive", action="store_true",
                      help="don't queue a batch job: run the program at this terminal as soon as nodes are free; "
                           "without a program, start a shell with the module loaded")
    what.add_argument("--segments", type=count, metavar="N", default=1,
                      help="submit N jobs, each of which starts after the success of the one before")
    add_resources(parser.add_argument_group("resources (default: those of the site)"))
    add_running(parser.add_argument_group("how the program runs"))


def add_resources(parser):
    """Add the options for resources, and others that the scheduler reads."""
    parser.add_argument("-N", "--nodes", type=count, default=1, help="number of nodes (default: 1)")
    parser.add_argument("--tasks-per-node", type=count, metavar="N", help="ranks per node")
    parser.add_argument("--cpus-per-task", type=count, metavar="N", help="CPUs per rank")
    parser.add_argument("--gpus-per-node", type=count, metavar="N", help="GPUs per node")
    parser.add_argument("--memory", metavar="SIZE", help="memory per node, in the scheduler's notation")
    parser.add_argument("--time", type=duration, metavar="[D-]H:MM:SS", help="time limit")
    parser.add_argument("--name", help="name of the job (default: name of the program)")
    parser.add_argument("--account", help="account (project) to charge")
    parser.add_argument("--partition", metavar="NAME", help="partition or queue")
    parser.add_argument("--qos", help="quality of service")
    parser.add_argument("--array", metavar="LIST",
                        help="run the job once for each index, such as 0-9 or 0-99%%4")
    parser.add_argument("--mail", metavar="ADDRESS", help="send a mail when the job ends or fails")
    parser.add_argument("--line", metavar="LINE", action="append", default=[],
                        help="one more line for the header, such as '#SBATCH --constraint=a' (repeatable)")


def add_running(parser):
    """Add the options for what happens in the job."""
    parser.add_argument("--launcher", choices=(*job.LAUNCHERS, *job.STARTERS_OF_SITES), default=job.NATIVE,
                        help="native: the scheduler starts each rank (with srun, mpiexec or flux, whose names mean the "
                             "same); torchrun, accelerate: started once on each node, it starts the ranks there; "
                             "deepspeed: the scheduler starts each rank, as DeepSpeed expects it (default: native)")
    parser.add_argument("--signal", type=count, metavar="SECONDS",
                        help="send USR1 to the program this long before the time limit, so that it saves its state")
    parser.add_argument("--requeue", action="store_true",
                        help="put the job back into the queue if a node fails, and after --signal if the program exits "
                             "with 0")
    parser.add_argument("--data", metavar="PATH[:/TARGET]", action="append", default=[],
                        help="end the job early if this file or directory is missing; the ranks find it at TARGET, of "
                             "a SquashFS file the directory in it (repeatable)")
    parser.add_argument("--rank-logs", action="store_true", help="write the output of each rank to a file of its own")
    parser.add_argument("--nccl-debug", action="store_true", help="log which network plugin the GPUs use")
    parser.add_argument("--stage", choices=STAGED,
                        help="copy user software, or also the image, to each node before the ranks start (default: "
                             "that of the site, usually none)")
    parser.add_argument("--report", action="store_true", help="print the CPUs and the GPU of each rank")


class From(argparse.Action):
    """Take the options of a record; those that follow on the command line replace them."""

    def __call__(self, parser, options, path, _=None):
        """Parse the arguments in the record."""
        found = record.read(path)
        end = found.arguments.index("--")
        # not as an argument of this command line, which may name another module
        options.recorded_module = found.arguments[0]
        parser.parse_args(found.arguments[1:end], options)
        options.recorded_program = found.arguments[end + 1 :]
        options.record = found


def run(options):
    """Write a batch script, and submit or run it if requested; return the exit status."""
    settings = read_settings(options)
    profile = settings.site()
    scheduler = job.scheduler_of(profile)
    batch = [one for one in ("install", "submit", "array", "mail", "signal", "requeue") if getattr(options, one)]
    if options.interactive and (batch or options.segments > 1):
        raise UsageError("--interactive runs a program at this terminal: leave out "
                         f"--{batch[0] if batch else 'segments'}")
    if options.interactive and not scheduler.terminal:
        raise job.JobError(f"the site {profile.name} can't fulfil --interactive: {scheduler.lacks['interactive']}")
    text = write(options, settings, profile)
    runs = options.submit or options.interactive
    if options.output:
        files.write_new({options.output: text}, options.overwrite)
        output.note(f"wrote {options.output}" + ("" if runs else next_step(options, scheduler)))
    elif not runs:
        print(text, end="")
    if options.interactive:
        return submission.at_terminal(scheduler, text)
    if options.submit:
        submission.submit(scheduler, text, options.segments)
    return 0


def next_step(options, scheduler):
    """Return how to submit the written script (str)."""
    first = f"; submit it with: {' '.join(scheduler.submit)} {options.output}"
    if options.segments == 1:
        return first
    then = " ".join([*scheduler.submit, *submission.after(scheduler, "JOB"), str(options.output)])
    times = "once more" if options.segments == 2 else f"{options.segments - 1} times"
    return f"{first}; then {times}, with the ID of the job before: {then}"


def write(options, settings, profile):
    """Return the text of the requested batch script."""
    module = options.module or getattr(options, "recorded_module", None)
    program = options.more or getattr(options, "recorded_program", [])
    if options.install and module:
        raise UsageError("name either a module or --install EASYCONFIG")
    if not (options.install or options.interactive or program):
        raise UsageError("name the program to run: ebsif job MODULE ... -- train.py")
    values = {one.name: getattr(options, one.name) for one in dataclasses.fields(job.Request)[2:]}
    values.update(launcher=launcher(options.launcher, profile), line=tuple(options.line),
                  data=tuple(map(data.parse, options.data)))
    if options.install:
        request = job.Request("", (f"install-{Path(options.install).name}",), **values)
        more = [*framework.finding_easyblocks(has_own=True), *options.more]
        return job.install_script(options.install, more, request, profile)
    command = job.python_program(program) if program else ()
    needed = options.submit or options.interactive
    file = job.program_file(command)
    if file:
        check_there(file, f"{file} does not exist in {Path.cwd()}, where the job would start if you submit it from "
                          "here", needed)
    for one in values["data"]:
        check_there(one.source, f"{one.source}, which --data names, does not exist", needed)
    name, use = module_name(options, module, profile, needed)
    request = job.Request(name, command, **values)
    if options.record:
        for text in record.changes(options.record, job.program_file(command), lock_of(options, request.module)):
            output.note(text)
    # the run may be repeated from another directory
    options.catalogue = [one.absolute() for one in options.catalogue]
    return job.script(request, profile, options.interactive, read_settings(options).catalogue_options, use)


def lock_of(options, module):
    """Return the record of an installed module (dict), or None if it is not installed here."""
    found = Names(options).installed_as(module)
    return lock.read(found.root) if found else None


def launcher(name, profile):
    """Return the kind of launcher with a name: one of job.LAUNCHERS, or the program that the site's scheduler has."""
    if name in job.LAUNCHERS:
        return name
    own = job.scheduler_of(profile).starter
    if name != own:
        raise UsageError(f"argument --launcher: the site {profile.name} has no {name}: leave it out, or use {own}")
    return job.NATIVE


def check_there(path, problem, needed):
    """Report a problem if a file is missing; raise JobError if the job is about to be submitted."""
    if os.path.exists(path):  # noqa: PTH110 may be in a directory that can't be searched
        return
    if needed:
        raise job.JobError(f"{problem}; nothing was submitted")
    output.note(problem)


def module_name(options, name, profile, needed):
    """
    Return the name of a module (str), which may be shortened as for other commands, and its directory (Path).

    The directory is None where a new shell searches anyway. Warn if the module isn't available: a full name may be that
    of a module that only the nodes of the job have.

    Raises
    ------
    UsageError, NamingError, CatalogueError
        If there is no name, it is ambiguous, or it is neither known nor a full name.
    JobError
        If the job is about to be submitted, and there is no such module.
    """
    names, unknown = Names(options), None
    try:
        module = names.module(name)
    except selection.UnknownName as error:
        module, unknown = name, error
    there = names.installed_as(module)
    if there:
        return module, there.use if framework.is_own(there.use) else None
    # modules of the site may make it available
    available = runtimecommand.is_available(module, *profile.scheduler.modules)
    if available or (available is None and not unknown):
        return module, None
    if unknown and "/" not in module:
        raise unknown
    known = [*(one.module_or_version for one in names.containers), *map(shown, names.installations)]
    problem = f"there is no module {module} on this machine{selection.did_you_mean(module, known) if unknown else ''}"
    if needed:
        raise job.JobError(f"{problem}; nothing was submitted (`module avail` lists those that there are; for one "
                           "that only the compute nodes have, write the script with -o FILE, and submit that)")
    output.note(f"{problem}: the job can only load it if its nodes have it")
    return module, None


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
