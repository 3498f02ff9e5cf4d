"""Let the nodes of a job communicate in the container of a module: first one of them, then all (S002-20)."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS

from ebsif import processes
from ebsif.installed.health import mpilibrary, running
from ebsif.installed.health.machine import Machine
from ebsif.installed.health.subject import PROGRAMS, Subject
from ebsif.installed.names import shown
from ebsif.installed.places import Installation
from ebsif.report import output
from ebsif.report.findings import ERROR, NOTE, Finding
from ebsif.report.steps import Now, Steps

LONGEST = 180  # seconds; programs that wait for each other never end
RANKS = 2  # of MPI
LAUNCH = 60  # seconds for Slurm to answer


def is_job() -> bool:
    """Return whether this runs in a job of Slurm."""
    return "SLURM_JOB_ID" in os.environ and bool(shutil.which("srun"))


def number_of_nodes() -> int:
    """Return the number of nodes of the job in which this runs; 1 outside of jobs."""
    return int(os.environ.get("SLURM_JOB_NUM_NODES", 1)) if is_job() else 1


def examine(findings: Sequence[Finding], installations: Sequence[Installation]) -> Iterator[Finding]:
    """Yield findings on the communication of modules without errors, and on what was not checked (I-12)."""
    number, broken = number_of_nodes(), {one.subject for one in findings if one.level == ERROR}
    if int(os.environ.get("SLURM_STEP_NUM_NODES", 1)) > 1:
        # the step runs this on each node, and all of them would do the same
        return
    is_broken = bool(broken - {shown(one) for one in installations})
    if number == 1:
        how = (
            "To check whether two nodes can communicate: `salloc --nodes=2 ebsif doctor --installed`"
            if shutil.which("srun")
            else "Whether nodes can communicate is only checked in Slurm jobs"
        )
        yield Finding(NOTE, "nodes", f"only this node was checked. {how}")
    elif is_broken:
        yield Finding(NOTE, "nodes", "communication was not checked: fix the errors of this node first")
    else:
        yield Finding(
            NOTE,
            "nodes",
            "besides communication, only this node was checked. To check all of them: "
            "`srun --ntasks-per-node=1 --label ebsif doctor --installed`",
        )
    if is_broken or not is_job():
        return
    working = [one for one in installations if shown(one) not in broken]
    with Steps() as steps:
        for index, installation in enumerate(working):
            now = partial(Now, shown(installation), index, len(working))
            steps.begin("communication", important=False, watch=now)
            subject = Subject(installation, Machine())
            yield from running.load(subject)
            if subject.environment:
                yield from communication(subject, number) if number > 1 else ()
                yield from mpi(subject)


def mpi(subject: Subject) -> Iterator[Finding]:
    """Yield a Finding on which MPI library each of two ranks has opened, and whether they are in one program (K-01)."""
    if "mpi4py" not in {**subject.image_packages, **subject.user_packages}:
        return
    try:
        result = started(subject, 1, RANKS, mpilibrary.command("start"))
    except processes.NoAnswerError as error:
        yield subject.error(f"ranks can't start MPI: {error}")
        return
    ranks = mpilibrary.answers(result.stdout)
    if len(ranks) < RANKS:
        yield subject.error(f"ranks can't start MPI: {running.last_line(result.stderr)}")
        return
    yield from mpilibrary.wrong_library(subject, ranks[0])
    if {one["size"] for one in ranks} == {1}:
        yield subject.warning(
            "each rank of `srun` starts MPI alone: choose what the MPI of the container speaks, such as "
            "SLURM_MPI_TYPE=pmi2 (`srun --mpi=list` names what there is)"
        )
    texts = (f"rank {one['rank']} of {one['size']} has {mpilibrary.described(one)}" for one in ranks)
    # not on the module, whose notes aren't printed
    yield Finding(NOTE, "MPI", f"{subject.module}: {'; '.join(sorted(texts))}")


def communication(subject: Subject, number: int) -> Iterator[Finding]:
    """Yield a Finding if ranks of a module can't communicate on one node, or on all."""
    if not (subject.installation.root / "runscripts/conda-python-distributed").exists():
        return
    try:
        alone = all_reduce(subject, 1)
        if alone.returncode:
            yield subject.error(
                f"two ranks on one node can't communicate: {running.last_line(alone.stderr)}. Try the "
                f"module's Python on that node: `{subject.load} && start-shell`"
            )
            return
        together = all_reduce(subject, number)
    except processes.NoAnswerError as error:
        yield subject.error(f"ranks can't communicate: {error}")
        return
    if together.returncode:
        yield subject.error(
            f"one node works, but {number} nodes don't: {running.last_line(together.stderr)}. So the "
            "container works; check the network between the nodes: are libfabric, its provider and "
            "the plugin of RCCL or NCCL the ones that it was built for, and are the site's network "
            "settings right (network_env in its profile)?"
        )
    elif subject.gpu and " with gloo" in together.stdout:
        yield subject.note(
            f"{GPU_KINDS[subject.gpu].collectives} was not tested between the nodes, because not every rank had a GPU "
            "of its own: use a job with a GPU on each node"
        )


def all_reduce(subject: Subject, nodes: int) -> "subprocess.CompletedProcess[str]":
    """Run an all-reduce on nodes of the job, with at least two ranks."""
    program = (PROGRAMS / "allreduce.py").read_text(encoding="utf-8")
    return started(subject, nodes, max(nodes, 2), ["/runscripts/conda-python-distributed", "-c", program])


def started(subject: Subject, nodes: int, ranks: int, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command in the container as ranks on nodes of the job."""
    words = [
        "srun",
        f"--nodes={nodes}",
        f"--ntasks={ranks}",
        "--overlap",
        "--overcommit",
        "--kill-on-bad-exit=0",
        "timeout",
        str(LONGEST),
        *subject.command(*command),
    ]
    output.command(words)
    return processes.run(words, LONGEST + LAUNCH, name="srun", environment=outside_of_steps(subject.environment))


def outside_of_steps(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which srun starts a step of its own, not one within that of this process."""
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith(
            (
                "SLURM_STEP_",
                "SLURM_NTASKS",
                "SLURM_NPROCS",
                "SLURM_TASKS_PER_NODE",
                "SLURM_NNODES",
                "SLURM_CPU_BIND",
                "SLURM_DISTRIBUTION",
            )
        )
    }
