"""
What the start of a program asks of the file system, measured once here, and computed for many nodes.

`python tests/benchmarks/scale.py measure` counts how often `import torch, torchmetrics` looks for files, and what it
reads: as plain files, and from an image and a SquashFS file. It writes docs/scale.json, and from that the table in
docs/scale.md; without `measure`, the table alone. Needs strace and fincore.
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

RECORDED, PAGE = CHECKOUT / "docs/scale.json", CHECKOUT / "docs/scale.md"
BLOCK = re.compile(r"(<!-- from scale.json -->\n).*?(<!-- end -->)", re.DOTALL)
PROGRAM = "import torch, torchmetrics"
NODES = (1, 10, 100, 1000, 10000)
RANKS = 8

# MB/s of one storage target of LUMI-P (LUMI AI Guide, chapter 4), and the number of stripes that modules have
TARGET, STRIPES = 161, 8

SIZES = "import os, sys\nprint(sum(os.path.getsize(path) for path in sys.stdin.read().splitlines() " \
    "if os.path.isfile(path)))\n"


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
    found = {"program": PROGRAM, **vars(record.here([], None, folder)), "image": in_memory(files[0]),
             "user_software": in_memory(files[1]), "image_size": Path(files[0]).stat().st_size,
             "user_software_size": Path(files[1]).stat().st_size, **as_files(environments["-directory"], folder)}
    del found["results"]
    return found


def start(environment, *before, code=PROGRAM, given=""):
    """Run Python in the container; return its output."""
    return subprocess.run([*before, "apptainer", "exec", environment["SIF"], "python", "-c", code], env=environment,
                          check=True, capture_output=True, text=True, input=given).stdout


def evict(path):
    """Remove a file from the page cache."""
    subprocess.run(["sync", path], check=True)
    with Path(path).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_memory(path):
    """Return how many bytes of a file the page cache has (int): what was read, and what Linux has read ahead."""
    return int(subprocess.run(["fincore", "--bytes", "--noheadings", "--output", "RES", path], check=True,
                              capture_output=True, text=True).stdout)


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
        f"{STRIPES} stripes | copies on the nodes (Slurm): files opened, data |", "|---|---|---|---|---|"]
    packed = found["image"] + found["user_software"]
    whole = found["image_size"] + found["user_software_size"]
    for nodes in NODES:
        seconds = nodes * packed / 1e6 / TARGET
        lines.append(
            f"| {nodes:,} | {number(nodes * RANKS * found['operations'])}, {size(nodes * found['bytes'])} "
            f"| {number(nodes * RANKS * 2)}, {size(nodes * packed)} | {time(seconds)}, {time(seconds / STRIPES)} "
            f"| 2, {size(whole)} |")
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
    return f"{seconds / 3600:.2g} h" if seconds >= 3600 else f"{seconds / 60:.2g} min" if seconds >= 90 else \
        f"{seconds:.2g} s"


def page(text, found):
    """Return the text of the page with the table that follows from the record."""
    return BLOCK.sub(lambda match: f"{match[1]}{table(found)}\n{match[2]}", text)


def main(measures):
    """Measure if asked to, and write the table."""
    if measures:
        with tempfile.TemporaryDirectory(dir=CHECKOUT / ".demo") as folder:
            Path(folder).chmod(0o755)
            RECORDED.write_text(json.dumps(measure(Path(folder)), indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), json.loads(RECORDED.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:] == ["measure"])
