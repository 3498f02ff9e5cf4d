"""
Compare with the tools in use today: the bare runtime, a recipe in the style in use today, and singularity-hpc where it
does the same work. Contenders take turns in one run; only medians and ratios count, not absolute times. Prints a table,
and writes the same as JSON; with --record, also to docs/bench.json, and from there into docs/performance.md and its
plots. Not part of `make test`.
"""

import argparse
import dataclasses
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(CHECKOUT / "tests"), str(CHECKOUT / "docs")]

import account  # noqa: E402 in tests
import command_line  # noqa: E402 in the same directory
import distributed  # noqa: E402
import imports  # noqa: E402
import installers  # noqa: E402
import installing  # noqa: E402
import kernels  # noqa: E402
import layers  # noqa: E402
import module_tools  # noqa: E402
import node  # noqa: E402
import packing  # noqa: E402
import ray_nodes  # noqa: E402
import trees  # noqa: E402
import wrappers  # noqa: E402
from manual import figures, record  # noqa: E402

BENCHMARKS = {
    "install": installing.example,
    "extension": installing.extension,
    "change": installing.change,
    "image": installing.images,
    "squashfs": packing.measure,
    "wrapper": wrappers.spawn,
    "python": wrappers.python,
    "kernel": kernels.start,
    "layer": layers.measure,
    "modules": module_tools.measure,
    "start": command_line.start,
    "render": command_line.render,
    "import": imports.measure,
    "node": node.measure,
    "distributed": distributed.measure,
    "ray": ray_nodes.measure,
    "trees": trees.measure,
    "installers": installers.compare,
}


def main():
    """Run the requested benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"{', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep the results in docs/bench.json instead of the earlier ones of these benchmarks, and "
        "write docs/performance.md and its plots from it",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", default=Path(".demo/bench.json"))
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))} (known: {', '.join(BENCHMARKS)})")
    # for root the runtime mounts images by the kernel, for people in user space
    account.leave_root()
    results, load = [], os.getloadavg()[0]
    # not in /tmp, which may be in memory
    options.json.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="bench-", dir=options.json.parent.resolve()))
    place.chmod(0o755)
    try:
        for name in options.names or BENCHMARKS:
            folder = place / name
            folder.mkdir()
            print(f"==> {name}", file=sys.stderr, flush=True)
            found = BENCHMARKS[name](folder)
            results += [{"name": name, **dataclasses.asdict(row)} for row in found]
            print(table(found), flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    run = record.here(results, load, options.json.parent)
    options.json.write_text(json.dumps(dataclasses.asdict(run), indent=1) + "\n")
    if options.record:
        with account.as_starter():
            record.add(run)
            figures.update()
    reached = [row["reached"] for row in results]
    print(f"\n{reached.count(True)} targets reached, {reached.count(False)} missed; {options.json}")
    return 0


def table(found):
    """Return rows as a table (str)."""
    lines = []
    for row in found:
        text = f"{row.benchmark:34} {row.contender:26} {figures.in_units(row.seconds):>10}"
        if row.against:
            text += f"  {row.ratio:6.2f} x {row.against}, {figures.in_units(row.difference, '+')}"
        if row.target:
            text += f"  [{row.target}: {'reached' if row.reached else 'MISSED'}]"
        if row.note:
            text += f"  ({row.note})"
        lines.append(text)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
