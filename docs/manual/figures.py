"""The figures of docs/performance.md: its table and plots, made from the record of the benchmarks."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ebsif.templating import environment

from manual import record

PAGE = "docs/performance.md"
PICTURE = "docs/pictures/bench-{}.svg"
BLOCK = re.compile(r"(<!-- record: ([a-z-]+) -->\n).*?(<!-- end of the record -->)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Plot:
    """A plot: its title, the benchmarks that it shows, and those of their rows that it leaves out (a pattern)."""

    title: str
    names: tuple[str, ...]
    without: str = "^$"


# The plots of the page.
PLOTS = {
    "install": Plot("Installing a module (shorter is better)", ("install", "extension", "change", "image")),
    "wrapper": Plot("Starting a command of the module (shorter is better)", ("wrapper",), "^wrapper, above"),
    "modules": Plot("Loading and unloading a module (shorter is better)", ("modules",), "^load and"),
}
# The rows of the table: benchmark, and the contender that ebsif is compared with.
TABLE = (
    ("install of the example", "hand-written recipe"),
    ("extension of the installed example", "hand-written recipe"),
    ("one more package in an extension", "all packages again"),
    ("install of an image of 4 GB", "cp and an empty run of eb"),
    ("packing 20000 files", "mksquashfs, one processor"),
    ("import, cold (local disk)", "directory"),
    ("wrapper, to finished python", "apptainer exec"),
    ("kernel, to the first reply", "apptainer exec"),
    ("4 ranks, srun to all-reduce", "python, by hand"),
    ("10,000 modules, Lmod-Lua: load", "a module of any software"),
    ("10,000 modules, EnvironmentModules-Tcl: load", "a module of any software"),
)


def rows(runs: list[record.Run], names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return the recorded rows of benchmarks (default: of all), in the order of their names."""
    found = [row for run in runs for row in run.results]
    return [row for name in names for row in found if row["name"] == name] if names else found


def in_units(seconds: float, sign: str = "") -> str:
    """Return a time in readable units."""
    if abs(seconds) >= 1:
        return f"{seconds:{sign}.1f} s"
    return f"{seconds * 1000:{sign}.{0 if abs(seconds) >= 0.01 else 1}f} ms"


def compared(some: list[dict[str, Any]]) -> str:
    """Return a table in Markdown of the most important times, ours and those that they are compared with."""
    lines = ["| task | compared with | time | time of ebsif |", "|---|---|---|---|"]
    for task, against in TABLE:
        for row in some:
            if (row["benchmark"], row["against"]) == (task, against) and row["contender"] != "ebsif, no imports":
                theirs = next(one["seconds"] for one in some if (one["benchmark"], one["contender"]) == (task, against))
                lines.append(f"| {task} | {against} | {in_units(theirs)} | {in_units(row['seconds'])} |")
    return "\n".join(lines)


def targets(some: list[dict[str, Any]]) -> str:
    """Return how many targets are reached, and a list in Markdown of those that are missed."""
    reached = [row["reached"] for row in some if row["target"]]
    lines = [
        f"- {row['benchmark']}{'' if row['contender'] == 'ebsif' else ': ' + row['contender']}: "
        f"{in_units(row['difference'], '+')} against {row['against']}, a ratio of {row['ratio']:.3f} "
        f"(target: {row['target']})"
        for row in some
        if row["target"] and not row["reached"]
    ]
    return "\n".join([f"{reached.count(True)} targets are reached, {reached.count(False)} are missed:", "", *lines])


def groups(plot: Plot, some: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Yield the groups of bars of a plot: a task, and its rows by contender."""
    tasks = [row["benchmark"] for row in some if not re.search(plot.without, row["benchmark"])]
    for task in dict.fromkeys(tasks):
        yield task, {row["contender"]: row for row in some if row["benchmark"] == task}


def picture(plot: Plot, some: list[dict[str, Any]]) -> str:
    """Return a plot as SVG."""
    shown = [
        (task, [(name, row["seconds"], in_units(row["seconds"]), bool(row["against"])) for name, row in bars.items()])
        for task, bars in groups(plot, some)
    ]
    longest = max(seconds for _, bars in shown for _, seconds, _, _ in bars)
    return environment("manual", html=True).get_template("plot.svg.j2").render(plot=plot, groups=shown, longest=longest)


def block(name: str, runs: list[record.Run]) -> str:
    """Return the content of a block of the page."""
    if name == "runs":
        return "\n".join(
            f"- {place}: " + "; ".join(str(run) for run in runs if run.place == place)
            for place in dict.fromkeys(run.place for run in runs)
        )
    if name == "table":
        return compared(rows(runs))
    if name == "targets":
        return targets(rows(runs))
    return f"![{PLOTS[name].title}]({PICTURE.format(name).removeprefix('docs/')})"


def made(runs: list[record.Run], page: str) -> dict[str, str]:
    """Return what follows from the record (dict of texts by path): the page, from its present text, and the plots."""
    page = BLOCK.sub(lambda match: f"{match[1]}{block(match[2], runs)}\n{match[3]}", page)
    found = {name: rows(runs, plot.names) for name, plot in PLOTS.items()}
    return {PAGE: page, **{PICTURE.format(name): picture(PLOTS[name], some) for name, some in found.items() if some}}


def update(checkout: Path = record.CHECKOUT):
    """Write the page and the plots again."""
    files = made(record.read(checkout), (checkout / PAGE).read_text(encoding="utf-8"))
    for path, text in files.items():
        (checkout / path).write_text(text, encoding="utf-8")
