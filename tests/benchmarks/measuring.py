"""Measuring contenders in turn, and what came out of it."""

import dataclasses
import os
import statistics
import subprocess
import sys
import time


@dataclasses.dataclass
class Row:
    """
    What was measured of one contender.

    Attributes
    ----------
    benchmark, contender : str
        What was done, and by whom.
    seconds : float
        Median.
    runs : int
        How often.
    against : str
        The contender it is compared with, empty for the one that others are compared with.
    ratio : float
        Median of the ratios of the runs that followed each other.
    difference : float
        Median of their differences, in seconds.
    target : str
        What is to be reached, as text.
    reached : bool or None
        Whether it is; None if there is no target.
    note : str
        What is not the same work.
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
    Measure contenders in turn, so that whatever else the machine does meets all of them.

    Parameters
    ----------
    contenders : dict
        Functions by name; each does the work once, and may return the seconds it took if it knows better.
    runs : int
        How often each is measured.
    warm_up : int
        How often each runs before.

    Returns
    -------
    dict of list of float
        Seconds of each run, by name.
    """
    times = {name: [] for name in contenders}
    for turn in range(-warm_up, runs):
        for name, work in contenders.items():
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
        What was done.
    times : dict of list of float
        What `in_turn` returned.
    ours : str
        The contender that is compared with the others.
    targets : dict
        By name of another contender: ("ratio" or "difference", the most it may be), or None for a comparison only.
    notes : dict, optional
        What is not the same work, by contender.
    """
    notes = notes or {}
    made = [Row(benchmark, name, statistics.median(values), len(values), note=notes.get(name, ""))
            for name, values in times.items() if name != ours]
    for other, target in targets.items():
        pairs = list(zip(times[ours], times[other]))
        row = Row(benchmark, ours, statistics.median(times[ours]), len(pairs), against=other, note=notes.get(ours, ""),
                  ratio=statistics.median(one / two for one, two in pairs),
                  difference=statistics.median(one - two for one, two in pairs))
        if target:
            kind, limit = target
            row.target = f"at most {limit}" if kind == "ratio" else f"at most {limit * 1000:g} ms more"
            row.reached = bool(getattr(row, kind) <= limit)
        made.append(row)
    return made


def run(command, **options):
    """Run a command that has to succeed, and say nothing."""
    result = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            check=False, **options)
    if result.returncode:
        raise SystemExit(f"{command} ended with {result.returncode}:\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}")
    return result


def peak_memory(command, **options):
    """Run a command; return the most memory it used, in MB."""
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               **options)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with {status}")
    process.returncode = 0
    # in KB on Linux
    return usage.ru_maxrss / 1024


def drop_caches():
    """Forget what was read from disks; return whether this machine lets us."""
    try:
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as caches:  # noqa: PTH123
            caches.write("3\n")
    except OSError:
        return False
    return True
