"""Check modules on all nodes of a job, compare the nodes, and let them communicate."""

import json
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import ebsif
from ebsif import processes
from ebsif.errors import EbsifError
from ebsif.images.network import PLUGIN
from ebsif.installed.health import running
from ebsif.installed.health.machine import Machine
from ebsif.installed.health.subject import LONGEST as CONTAINER
from ebsif.installed.health.subject import PROGRAMS, Subject
from ebsif.installed.names import shown
from ebsif.installed.places import Installation
from ebsif.report import output
from ebsif.report.findings import ERROR, NOTE, WARNING, Finding
from ebsif.report.steps import Now, Steps

# Runs ebsif from where it is; PYTHONPATH, which the containers would have as well, needn't name that.
MAIN = "import sys; sys.path.insert(1, sys.argv.pop(1)); from ebsif import cli; sys.exit(cli.main())"
# Begins the line in which a node reports its findings.
REPORT = "ebsif-doctor\t"
ALL_REDUCE = 180  # seconds; programs that wait for each other never end
LAUNCH = 60  # seconds for Slurm to answer
AT_A_TIME = 32  # nodes; each has a step of Slurm, and an srun here


class NodeError(EbsifError):
    """A node doesn't report; the message says why and what to do."""


def allocated() -> list[str]:
    """
    Return the nodes of the job in which this runs; one or none outside of jobs.

    Raises
    ------
    NoAnswer
        If Slurm doesn't answer.
    """
    if "SLURM_JOB_ID" not in os.environ or not shutil.which("scontrol"):
        return []
    result = processes.run(["scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", "")], LAUNCH)
    return result.stdout.split()


def unseen() -> Iterator[Finding]:
    """Yield a note that only one node was checked (I-12)."""
    yield Finding(NOTE, "nodes", "only this node was checked. To check two nodes, and whether they can communicate: "
                  "`salloc --nodes=2 ebsif doctor --installed`")


def report(findings: Sequence[Finding]) -> None:
    """Print the findings of this node for the process that asked for them."""
    print(REPORT + json.dumps([one.data for one in findings]), flush=True)


def examine(hosts: Sequence[str], installations: Sequence[Installation], options: Namespace) -> list[Finding]:
    """
    Return the findings on the nodes of a job, each with the nodes that have it, and on their communication.

    Parameters
    ----------
    hosts
        The nodes.
    installations
        The modules.
    options
        The options of the command, for the other nodes.
    """
    with Steps() as steps:
        reports, silent = ask(hosts, installations, options, steps)
        found = [*silent, *combine(reports)]
        broken = {one.subject for one in found if one.level == ERROR}
        if broken - {shown(one) for one in installations}:
            found.append(Finding(NOTE, "nodes", "communication was not checked: repair the nodes first"))
            return found
        working = [one for one in installations if shown(one) not in broken]
        for number, one in enumerate(working):
            steps.begin("communication", important=False, watch=partial(Now, shown(one), number, len(working)))
            found += communication(one, len(hosts))
    return found


def ask(hosts, installations, options, steps):
    """
    Let the nodes check themselves at the same time, each in a step of its own, so that one that fails stops no other.

    Return the findings of each node (dict of list of Finding), and those on nodes that don't report.
    """
    words = [sys.executable, "-c", MAIN, str(Path(ebsif.__file__).parents[1]), "doctor", "--quiet", "--this-node"]
    words += ["--site", options.site] if options.site else []
    for directory in options.catalogue or []:
        words += ["--catalogue", str(directory)]
    words += ["--verify"] if options.verify else []
    words += ["--installed", *(str(one.root) for one in installations)]
    # what a node with two CPUs needs if every container takes as long as it may
    limit = CONTAINER * (2 + len(installations) // (1 if options.verify else 2))
    found: dict[str, list[Finding]] = {}
    silent: dict[str, Finding] = {}

    def check(host):
        try:
            found[host] = read(srun([f"--nodelist={host}"], 1, 1, words, limit))
        except EbsifError as error:
            silent[host] = Finding(ERROR, host, f"no report: {error}")

    def now():
        done = len(found) + len(silent)
        return Now(f"{done} of {len(hosts)}", done, len(hosts))

    steps.begin("checking nodes", important=False, watch=now)
    processes.in_threads(check, hosts, min(len(hosts), AT_A_TIME))
    return {host: found[host] for host in hosts if host in found}, [silent[host] for host in hosts if host in silent]


def read(result):
    """Return the findings (list of Finding) that a node has reported; raise NodeError if there is no report."""
    for line in result.stdout.splitlines():
        if line.startswith(REPORT):
            return [Finding(one["level"], one["subject"] or "", one["text"], one["path"] or "", one["line"] or 0)
                    for one in json.loads(line[len(REPORT):])]
    # the last words of the program, or the first of srun, which then only says that it ends
    said = result.stderr.splitlines()
    reasons = [line for line in said if not line.startswith("srun:")][-1:] or [
        line for line in said if line.startswith("srun: error: ")] or [f"exit status {result.returncode}"]
    raise NodeError(f"{reasons[0]}. Is the node up, and is ebsif installed on a file system that it has?")


def srun(options, nodes, ranks, words, limit, variables=os.environ):
    """Run a command on nodes of the job, with these variables; return CompletedProcess."""
    launch = ["srun", f"--nodes={nodes}", f"--ntasks={ranks}", *options, "--overlap", "--overcommit",
              "--kill-on-bad-exit=0", *words]
    output.command(launch)
    # a step of its own, not one within that of this process
    environment = {name: value for name, value in variables.items()
                   if not name.startswith(("SLURM_STEP_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE",
                                           "SLURM_NNODES", "SLURM_CPU_BIND", "SLURM_DISTRIBUTION"))}
    return processes.run(launch, limit, name="srun", environment=environment)


def combine(reports: dict[str, list[Finding]]) -> Iterator[Finding]:
    """Yield the findings of all nodes, each once; a problem of some of them names these."""
    where: dict[Finding, list[str]] = {}
    for node, findings in reports.items():
        for one in findings:
            where.setdefault(one, []).append(node)
    for one, nodes in where.items():
        others = sorted(set(reports) - set(nodes))
        if not others or one.level not in (ERROR, WARNING, NOTE):
            yield one
        else:
            place = f"on {', '.join(sorted(nodes))}, but not on {', '.join(others)}"
            yield Finding(one.level, one.subject, f"{place}: {one.text}", one.path, one.line)


def communication(installation: Installation, number: int) -> Iterator[Finding]:
    """Yield a Finding if ranks of a module can't communicate; on one node first, then on all (S002-20)."""
    one = Subject(installation, Machine())
    yield from running.load(one)
    if not one.environment or not (installation.root / "runscripts/conda-python-distributed").exists():
        return
    try:
        alone = all_reduce(one, 1)
        if alone.returncode:
            yield one.error(f"two ranks on one node can't communicate: {running.last_line(alone.stderr)}. Try the "
                            f"module's Python on that node: `{one.load} && start-shell`")
            return
        together = all_reduce(one, number)
    except processes.NoAnswer as error:
        yield one.error(f"ranks can't communicate: {error}")
        return
    if together.returncode:
        yield one.error(f"one node works, but {number} nodes don't: {running.last_line(together.stderr)}. So the "
                        "container works; check the network between the nodes: are libfabric, its provider and the "
                        "plugin of RCCL or NCCL the ones that it was built for, and are the site's network settings "
                        "right (network_env in its profile)?")
    elif one.gpu and " with gloo" in together.stdout:
        library = PLUGIN[one.gpu]
        yield one.note(f"{library} was not tested between the nodes, because not every rank had a GPU of its own: use "
                       "a job with a GPU on each node")


def all_reduce(one, nodes):
    """Run an all-reduce on nodes, with at least two ranks; return CompletedProcess."""
    program = (PROGRAMS / "allreduce.py").read_text(encoding="utf-8")
    words = one.command("/runscripts/conda-python-distributed", "-c", program)
    return srun([], nodes, max(nodes, 2), ["timeout", str(ALL_REDUCE), *words], ALL_REDUCE + LAUNCH, one.environment)
