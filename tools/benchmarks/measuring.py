"""Measure contenders in turn, and evaluate the results."""

import dataclasses
import os
import random
import statistics
import subprocess
import sys
import time

import account


@dataclasses.dataclass
class Row:
    """
    The result for one contender.

    Attributes
    ----------
    benchmark, contender : str
        The task, and the program that did it.
    seconds : float
        Median.
    runs : int
        Number of runs.
    against : str
        The contender that it is compared with; empty for the reference.
    ratio : float
        Median of the ratios of consecutive runs.
    difference : float
        Median of their differences, in seconds.
    target : str
        The target, as text.
    reached : bool or None
        Whether the target is reached; None if there is none.
    note : str
        Differences in the work done.
    """

    benchmark: str
    contender: str
    seconds: float
    runs: int
    against: str = ""
    ratio: float = None
    difference: float = None
    target: str = ""
    reached: bool = None
    note: str = ""


def in_turn(contenders, runs, warm_up=1):
    """
    Measure contenders in turn, so that other load on the machine affects all of them.

    Each turn has another order: what runs before a contender affects it too, by what it leaves in the CPU's caches.

    Parameters
    ----------
    contenders : dict
        Functions by name; each does the work once, and may return the seconds if it measures them itself.
    runs : int
        Number of measurements of each.
    warm_up : int
        Number of runs of each before the measurements.

    Returns
    -------
    dict of list of float
        Seconds of each run, by name.
    """
    times = {name: [] for name in contenders}
    for turn in range(-warm_up, runs):
        # the same orders in each run of the benchmark
        for name, work in random.Random(turn).sample(list(contenders.items()), len(contenders)):
            if sys.stderr.isatty():
                step = "warm-up" if turn < 0 else f"{turn + 1} of {runs}"
                print(f"\r    {name}, {step}\033[K", end="", file=sys.stderr, flush=True)
            start = time.perf_counter()
            seconds = work()
            seconds = seconds if isinstance(seconds, float) else time.perf_counter() - start
            if turn >= 0:
                times[name].append(seconds)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return times


def rows(benchmark, times, ours, targets, notes=None):
    """
    Return a Row for each contender.

    Parameters
    ----------
    benchmark : str
        The task.
    times : dict of list of float
        The result of `in_turn`.
    ours : str
        The contender that is compared with the others.
    targets : dict
        By name of another contender: ("ratio" or "difference", maximum), or None for a comparison without target.
    notes : dict, optional
        Differences in the work done, by contender.
    """
    notes = notes or {}
    made = [
        Row(benchmark, name, statistics.median(values), len(values), note=notes.get(name, ""))
        for name, values in times.items()
        if name != ours
    ]
    for other, target in targets.items():
        pairs = list(zip(times[ours], times[other]))
        row = Row(
            benchmark,
            ours,
            statistics.median(times[ours]),
            len(pairs),
            against=other,
            note=notes.get(ours, ""),
            ratio=statistics.median(one / two for one, two in pairs),
            difference=statistics.median(one - two for one, two in pairs),
        )
        if target:
            kind, limit = target
            row.target = f"at most {limit}" if kind == "ratio" else f"at most {limit * 1000:g} ms more"
            row.reached = bool(getattr(row, kind) <= limit)
        made.append(row)
    return made


def run(command, **options):
    """Run a command that has to succeed, without showing its output."""
    result = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    if result.returncode:
        raise SystemExit(f"{command} ended with {result.returncode}:\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}")
    return result


def peak_memory(command, **options):
    """Run a command; return its peak memory use in MB."""
    process = subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **options
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with {status}")
    process.returncode = 0
    # in KB on Linux
    return usage.ru_maxrss / 1024


def drop_caches():
    """Drop the page cache; return whether this machine allows it."""
    try:
        os.sync()
        with account.as_starter(), open("/proc/sys/vm/drop_caches", "w") as caches:
            caches.write("3\n")
    except OSError:
        return False
    return True
