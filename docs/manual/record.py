"""The record of the benchmarks: docs/bench.json, from which every figure of docs/performance.md comes."""

import dataclasses
import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Optional

CHECKOUT = Path(__file__).resolve().parents[2]
FILE = "docs/bench.json"


@dataclasses.dataclass(frozen=True)
class Run:
    """
    A run of benchmarks.

    Attributes
    ----------
    date
        The day: 2026-01-31.
    commit
        What was measured; with ``-dirty`` if there were changes besides.
    machine
        Processor, number of CPUs, memory in GB, file system, kernel, Python, runtime; load at the start, if known.
    results
        The rows of the benchmarks (tools/benchmarks/measuring.py), each with the ``name`` of its benchmark.
    """

    date: str
    commit: str
    machine: dict[str, Any]
    results: list[dict[str, Any]]

    @property
    def place(self) -> str:
        """The machine, in a line."""
        machine = self.machine
        return (
            f"{machine['processor']}, {machine['cpus']} CPUs, {machine['memory']} GB, {machine['file system']}, "
            f"Linux {machine['kernel']}, Python {machine['python']}, {machine['runtime']}"
        )

    def __str__(self) -> str:
        """Describe what was measured when, in a line."""
        load = f", load {self.machine['load']:.1f}" if "load" in self.machine else ""
        return f"{', '.join(dict.fromkeys(row['name'] for row in self.results))} ({self.date}, {self.commit}{load})"


def read(checkout: Path = CHECKOUT) -> list[Run]:
    """Return the recorded runs, the earliest first."""
    return [Run(**run) for run in json.loads((checkout / FILE).read_text(encoding="utf-8"))["runs"]]


def add(run: Run, checkout: Path = CHECKOUT):
    """Add a run to the record; it replaces the earlier results of the same benchmarks."""
    measured = {row["name"] for row in run.results}
    kept = [
        dataclasses.replace(one, results=[row for row in one.results if row["name"] not in measured])
        for one in read(checkout)
    ]
    runs = [dataclasses.asdict(one) for one in [*kept, run] if one.results]
    (checkout / FILE).write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")


def here(results: list[dict[str, Any]], load: Optional[float], place: Path) -> Run:
    """Return a run on this machine, of this commit, with files at a place."""
    commit = output("git", "describe", "--always", "--dirty", "--exclude=*")
    processor = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    machine = {
        "processor": processor,
        "cpus": os.cpu_count(),
        "memory": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "file system": output("df", "--output=fstype", str(place.resolve())).split()[-1],
        # without what a distribution or a provider adds
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        "runtime": output("apptainer", "--version").replace(" version", ""),
    }
    if load is not None:
        machine["load"] = round(load, 2)
    return Run(datetime.date.today().isoformat(), commit, machine, results)


def output(*command: str) -> str:
    """Return what a command prints, run in the checkout."""
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
