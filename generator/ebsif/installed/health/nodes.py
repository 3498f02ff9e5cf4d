"""Check modules on all nodes of a job, compare the nodes, and let them communicate."""

import json
import os
import shutil
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence

from ebsif import output
from ebsif.errors import EbsifError
from ebsif.findings import ERROR, NOTE, WARNING, Finding
from ebsif.installed.health import running
from ebsif.installed.health.machine import Machine
from ebsif.installed.health.subject import PROGRAMS, Subject
from ebsif.installed.places import Installation

# Begins the line in which a node reports its findings.
REPORT = "ebsif-doctor\t"
LONGEST = 180  # seconds for an all-reduce; programs that wait for each other never end


class NodesError(EbsifError):
    """The nodes of a job can't be checked; the message says why and what to do."""


def allocated() -> list[str]:
    """Return the nodes of the job in which this runs; one or none outside of jobs."""
    if "SLURM_JOB_ID" not in os.environ or not shutil.which("scontrol"):
        return []
    nodes = os.environ.get("SLURM_JOB_NODELIST", "")
    result = subprocess.run([shutil.which("scontrol"), "show", "hostnames", nodes], capture_output=True,  # noqa: S603
                            text=True, check=False, stdin=subprocess.DEVNULL)
    return result.stdout.split()


def unseen() -> Iterator[Finding]:
    """Yield a note that one node was checked only (I-12)."""
    yield Finding(NOTE, "nodes", "only this one was looked at: in a Slurm job on two nodes, both and their "
                  "communication are (salloc --nodes=2 ebsif doctor --installed)")


def report(findings: Sequence[Finding]) -> None:
    """Print the findings of this node for the process that asked for them."""
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    print(REPORT + json.dumps({"node": name, "findings": [one.data for one in findings]}), flush=True)


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

    Raises
    ------
    NodesError
        If a node doesn't report.
    """
    reports = ask(hosts, installations, options)
    found = list(combine(reports))
    broken = {one.subject for one in found if one.level == ERROR}
    if not any(one.level == ERROR and one.subject not in {each.module for each in installations} for one in found):
        for one in installations:
            if one.module not in broken and not one.damage:
                found += communication(one, len(hosts))
    return found


def ask(hosts, installations, options):
    """Return the findings of each node (dict of list of Finding); the nodes check themselves at the same time."""
    words = [sys.executable, "-m", "ebsif.cli", "doctor", "--quiet", "--this-node"]
    words += ["--site", options.site] if options.site else []
    for directory in options.catalogue or []:
        words += ["--catalogue", str(directory)]
    words += ["--verify"] if options.verify else []
    result = srun(len(hosts), len(hosts), [*words, "--installed", *(str(one.root) for one in installations)])
    found = {}
    for line in result.stdout.splitlines():
        if line.startswith(REPORT):
            content = json.loads(line[len(REPORT):])
            found[content["node"]] = [Finding(one["level"], one["container"], one["text"], one["path"], one["line"])
                                      for one in content["findings"]]
    missing = sorted(set(hosts) - set(found))
    if missing:
        said = [line for line in result.stderr.splitlines() if not line.startswith("srun:")] or [result.stderr]
        raise NodesError(f"no report from {', '.join(missing)}: {running.last_line(said[-1])}. Is ebsif installed on a "
                         "file system that all nodes have?")
    return found


def srun(nodes, ranks, words, variables=os.environ):
    """Run a command on nodes of the job, with these variables; return CompletedProcess."""
    launch = ["srun", f"--nodes={nodes}", f"--ntasks={ranks}", "--overlap", "--overcommit",
              "--kill-on-bad-exit=0", *words]
    output.command(launch)
    # a step of its own, not one within that of this process
    environment = {name: value for name, value in variables.items()
                   if not name.startswith(("SLURM_STEP_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE",
                                           "SLURM_NNODES", "SLURM_CPU_BIND", "SLURM_DISTRIBUTION"))}
    return subprocess.run(launch, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,  # noqa: S603
                          env=environment)


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
    alone, alone_said = all_reduce(one, 1)
    if not alone:
        yield one.error(f"two ranks on one node can't communicate: {alone_said}. Try the module's Python on that node: "
                        f"`module load {one.module}; start-shell`")
        return
    together, said = all_reduce(one, number)
    if not together:
        yield one.error(f"one node works, but {number} nodes don't: {said}. The container is fine, look at the network "
                        "between nodes: are libfabric, its provider and the plugin of RCCL or NCCL those that it was "
                        "built for, and do the site's network settings fit (network_env in its profile)?")


def all_reduce(one, nodes):
    """Run an all-reduce on nodes, with at least two ranks; return whether it worked (bool), and its last words."""
    program = (PROGRAMS / "allreduce.py").read_text(encoding="utf-8")
    words = one.command("/runscripts/conda-python-distributed", "-c", program)
    result = srun(nodes, max(nodes, 2), ["timeout", str(LONGEST), *words], one.environment)
    return result.returncode == 0, running.last_line(result.stderr)
