"""
What the start of a program asks of the file system, measured once here, and computed for many nodes; and the figures
of the benchmarks (docs/bench.json) beside published ones.

`python tools/benchmarks/scale.py measure` counts how often `import torch, torchmetrics` looks for files, and what it
reads: as plain files, and from an image and a SquashFS file. It writes docs/scale.json, and from that the tables in
docs/scale.md; without `measure`, the tables alone. Needs strace, fincore, and the variables that scripts/prepare
sets.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "tests"), str(CHECKOUT / "docs")]

import account  # noqa: E402 in the directory tests

RECORDED, PAGE = CHECKOUT / "docs/scale.json", CHECKOUT / "docs/scale.md"
BENCHMARKS = CHECKOUT / "docs/bench.json"
BLOCK = re.compile(r"(<!-- table: ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)
PROGRAM = "import torch, torchmetrics"
NODES = (1, 10, 100, 1000, 10000)
RANKS = 8

# MB/s of one storage target of LUMI-P (LUMI AI Guide, chapter 4), and the number of stripes that modules have
TARGET, STRIPES = 161, 8

# Where others have published their figures.
CSCS = "https://docs.cscs.ch/guides/storage/"
ACCESS = "https://github.com/ACCESS-NRI/ACCESS-Analysis-Conda/blob/main/docs/resources-conda-setup.md"
FRONTIER = "https://github.com/glotzerlab/software/pull/335"
AURORA = "https://github.com/saforem2/ezpz/blob/main/docs/cli/yeet.md"
SHPC = "https://github.com/singularityhub/singularity-hpc/issues/649"
MOUNT = "https://github.com/eth-cscs/squashfs-mount/issues/12"
# From the last one: seconds for the mount of a SquashFS file by a number of processes at once, on a node.
MOUNTS = {1: 0.07, 2: 0.09, 4: 0.18, 8: 0.36, 16: 0.71, 32: 0.93, 64: 1.03, 128: 1.87}

SIZES = (
    "import os, sys\nprint(sum(os.path.getsize(path) for path in sys.stdin.read().splitlines() "
    "if os.path.isfile(path)))\n"
)


def measure(folder):
    """Return what one start asks for (dict)."""
    from imports import installed
    from manual import record

    environments = installed(folder)
    packed = environments["-file"]
    files = [packed["SIF"], packed["EBSIF_MOUNTED_USER_SOFTWARE"]]
    for path in files:
        evict(path)
    start(packed)
    root = Path(packed["CONTAINERROOT"])
    installation = [root, *root.rglob("*")]
    found = {
        "program": PROGRAM,
        **vars(record.here([], None, folder)),
        "image": in_memory(files[0]),
        "user_software": in_memory(files[1]),
        "image_size": Path(files[0]).stat().st_size,
        "user_software_size": Path(files[1]).stat().st_size,
        "inodes": inodes(packed),
        "inodes_installed": len(installation),
        **as_files(environments["-directory"], folder),
    }
    del found["results"]
    return found


def start(environment, *before, code=PROGRAM, given=""):
    """Run Python in the container; return its output."""
    return subprocess.run(
        [*before, "apptainer", "exec", environment["SIF"], "python", "-c", code],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        input=given,
    ).stdout


def inodes(environment):
    """Return how many files and directories Python has in the container (int): in the image and in user software."""
    code = (
        "import os, sys; print(sum(1 for place in {sys.prefix, sys.base_prefix} for *_, folders, files in "
        "os.walk(place) for _ in [0, *files]))"
    )
    return int(start(environment, code=code))


def evict(path):
    """Remove a file from the page cache."""
    subprocess.run(["sync", path], check=True)
    with Path(path).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_memory(path):
    """Return how many bytes of a file the page cache has (int): what was read, and what Linux has read ahead."""
    return int(
        subprocess.run(
            ["fincore", "--bytes", "--noheadings", "--output", "RES", path], check=True, capture_output=True, text=True
        ).stdout
    )


def as_files(environment, folder):
    """Return how often Python looks for files and opens them, and their bytes (dict), if all are plain files."""
    log = folder / "strace.log"
    start(environment, "strace", "-f", "-qq", "-s", "4096", "-e", "trace=%file", "-o", log)
    operations, opened, python = 0, [], set()
    for line in log.read_text(errors="replace").splitlines():
        found = re.match(r'(\d+) +(\w+)\((?:AT_FDCWD, )?"([^"]*)".* = (-?\d+)', line)
        if not found:
            continue
        process, call, path, status = found.groups()
        if call == "execve" and status == "0" and path.endswith(("/python", "/python3", "/python3.11")):
            python.add(process)
        if process in python and path.startswith("/") and not path.startswith(("/proc", "/sys", "/dev", "/tmp")):
            operations += 1
            if call == "openat" and "O_DIRECTORY" not in line and status != "-1":
                opened.append(path)
    size = int(start(environment, code=SIZES, given="\n".join(sorted(set(opened)))))
    return {"operations": operations, "opened": len(opened), "files": len(set(opened)), "bytes": size}


def table(found):
    """Return what nodes with 8 ranks each ask for, as a table in Markdown (str)."""
    lines = [
        "| nodes | plain files: operations, data | image and SquashFS: files opened, data | time for that, 1 and "
        f"{STRIPES} stripes | copies on the nodes (Slurm): files opened, data |",
        "|---|---|---|---|---|",
    ]
    packed = found["image"] + found["user_software"]
    whole = found["image_size"] + found["user_software_size"]
    for nodes in NODES:
        seconds = nodes * packed / 1e6 / TARGET
        lines.append(
            f"| {nodes:,} | {number(nodes * RANKS * found['operations'])}, {size(nodes * found['bytes'])} "
            f"| {number(nodes * RANKS * 2)}, {size(nodes * packed)} | {time(seconds)}, {time(seconds / STRIPES)} "
            f"| 2, {size(whole)} |"
        )
    return "\n".join(lines)


def number(value):
    """Return a number for people (str)."""
    return f"{value / 1e6:,.1f} million" if value >= 1e6 else f"{value:,}"


def size(value):
    """Return bytes for people (str)."""
    unit, factor = next((unit, factor) for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)) if value >= factor)
    return f"{value / factor:.2g} {unit}" if value / factor < 100 else f"{value / factor:,.0f} {unit}"


def time(seconds):
    """Return a duration for people (str)."""
    return (
        f"{seconds / 3600:.2g} h"
        if seconds >= 3600
        else f"{seconds / 60:.2g} min"
        if seconds >= 90
        else f"{seconds:.2g} s"
    )


def at_once(rows):
    """Return the time that containers need which start at once, beside published times, as a table (str)."""
    numbers = sorted(MOUNTS)
    lines = [
        ["containers at once", *map(str, numbers)],
        ["---"] * (1 + len(numbers)),
        [f"[mount of a SquashFS file]({MOUNT}), kernel", *(time(MOUNTS[number]) for number in numbers)],
    ]
    for contender, title in (("apptainer exec", "`apptainer exec` of the image"), ("ebsif", "the same with a module")):
        lines.append([title, *(time(rows[f"containers at once: {number}", contender]) for number in numbers)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def beside(rows, found):
    """Return what others have published, and the same in the environment of the tests, as a table (str)."""

    def measured(benchmark, contender="ebsif"):
        return time(rows[benchmark, contender])

    lines = [
        (
            "files and directories of an environment",
            f"22,806: [a venv with torch]({CSCS}); 795,313, packed 13,738: [two Conda environments]({ACCESS})",
            f"{found['inodes']:,}, packed {found['inodes_installed']:,}",
        ),
        (
            "first import, nothing in memory",
            f"500 s: [64 nodes of Frontier, shared file system]({FRONTIER})",
            f"{measured('import, cold (local disk)', 'SquashFS file')}; plain files "
            f"{measured('import, cold (local disk)', 'directory')}; local disk",
        ),
        (
            "job start to first step",
            f"29 s, 61 s, 194 s: [8, 1,024, 4,096 nodes of Aurora, environment in memory]({AURORA})",
            f"{measured('4 ranks, job start to first step', 'ebsif job')}; without ebsif's scripts "
            f"{measured('4 ranks, job start to first step', 'python, by hand')}; 4 ranks",
        ),
        (
            "load of one module among thousands",
            f"2 min: [27,400 modules]({SHPC}); alone 0.09 s",
            f"{measured('10,000 modules, Lmod-Lua: load')} with Lmod, "
            f"{measured('10,000 modules, EnvironmentModules-Tcl: load')} with Environment Modules; 10,000 modules",
        ),
    ]
    return "\n".join(["| | published | ebsif |", "|---|---|---|", *(f"| {' | '.join(line)} |" for line in lines)])


def page(text, found, runs):
    """Return the text of the page with the tables that follow from the records."""
    rows = {(row["benchmark"], row["contender"]): row["seconds"] for run in runs for row in run["results"]}
    tables = {
        "nodes": lambda: table(found),
        "containers": lambda: at_once(rows),
        "published": lambda: beside(rows, found),
    }
    return BLOCK.sub(lambda match: f"{match[1]}{tables[match[2]]()}\n{match[3]}", text)


def main(measures):
    """Measure if asked to, and write the tables."""
    if measures:
        # for root the runtime mounts images by the kernel, for people in user space
        account.leave_root()
        with tempfile.TemporaryDirectory(dir=CHECKOUT / ".demo") as folder:
            Path(folder).chmod(0o755)
            found = measure(Path(folder))
    else:
        found = json.loads(RECORDED.read_text())
    with account.as_starter():
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")
        PAGE.write_text(page(PAGE.read_text(), found, json.loads(BENCHMARKS.read_text())["runs"]))


if __name__ == "__main__":
    main(sys.argv[1:] == ["measure"])
