"""Submit batch scripts: one, several that follow each other, or at once in an allocation at this terminal."""

import re
import shlex
import subprocess
from collections.abc import Sequence

from easybuild.easyblocks.generic.container.schedulers import Scheduler

from ebsif.jobs.job import JobError
from ebsif.report import output


def submit(scheduler: Scheduler, text: str, segments: int = 1) -> list[str]:
    """
    Submit a batch script; print what the scheduler says.

    Parameters
    ----------
    scheduler
        The scheduler.
    text
        The script.
    segments
        How often to submit it; each job starts only after the success of the one before.

    Returns
    -------
    list of str
        The IDs of the jobs.

    Raises
    ------
    JobError
        If a job isn't submitted; the message names those that are.
    """
    jobs: list[str] = []
    for number in range(segments):
        words = [*scheduler.submit, *after(scheduler, jobs[-1])] if jobs else list(scheduler.submit)
        result = run(words, input=text, stdout=subprocess.PIPE, text=True)
        print(result.stdout, end="", flush=True)
        found = re.match(scheduler.submitted, result.stdout)
        if result.returncode or (segments > 1 and not found):
            queued = f"; those before it are in the queue, to remove them: {shlex.join([*scheduler.cancel, *jobs])}"
            which = f"segment {number + 1} of {segments}" if segments > 1 else "the job"
            raise JobError(f"{which} was not submitted: {words[0]} ended with status {result.returncode}"
                           f"{queued if jobs else ''}")
        jobs.append(found[1] if found else "")
    return jobs


def after(scheduler: Scheduler, job: str) -> list[str]:
    """Return the options for a job that starts after the success of another (list of str)."""
    return [word.replace("%s", job) for word in scheduler.after]


def at_terminal(scheduler: Scheduler, text: str) -> int:
    """Run a batch script at once at this terminal, with the resources in its header; return its exit status."""
    options = [shlex.split(line[len(scheduler.directive) :]) for line in text.splitlines()
               if line.startswith(f"{scheduler.directive} ")]
    words = [*scheduler.terminal, *(word for line in options for word in line), "bash", "-c", text]
    return run(words).returncode


def run(words: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program of the scheduler; return the CompletedProcess."""
    output.command(words)
    try:
        return subprocess.run(words, check=False, **options)  # type: ignore[call-overload]
    except FileNotFoundError:
        raise JobError(f"{words[0]} is not on PATH: submit on a login node") from None
