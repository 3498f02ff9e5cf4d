"""The figures of docs/performance.md: its tables and plots, made from the record of the benchmarks."""

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


# The blocks of the page with times, and the benchmarks that they show; the first ones also have a plot.
PLOTS = {
    "install": Plot("Installing a module (shorter is better)", ("install", "extension", "change", "image")),
    "wrapper": Plot("Starting a command of the module (shorter is better)", ("wrapper",), "^wrapper, above"),
    "modules": Plot("Loading and unloading a module (shorter is better)", ("modules",), "^load and"),
}
OTHERS = {"python": ("python", "kernel"), "commands": ("start", "render"), "files": ("squashfs", "import"),
          "distributed": ("distributed",), "trees": ("trees",), "installers": ("installers",)}


def rows(runs: list[record.Run], names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return the recorded rows of benchmarks (default: of all), in the order of their names."""
    found = [row for run in runs for row in run.results]
    return [row for name in names for row in found if row["name"] == name] if names else found


def in_units(seconds: float, sign: str = "") -> str:
    """Return a time in readable units."""
    return f"{seconds:{sign}.1f} s" if abs(seconds) >= 1 else f"{seconds * 1000:{sign}.1f} ms"


def compared(some: list[dict[str, Any]]) -> str:
    """Return a table in Markdown of the rows that are compared with another contender."""
    lines = ["| what | compared with | ours | theirs | ratio | difference | target |", "|---|---|---|---|---|---|---|"]
    for row in some:
        if row["against"]:
            theirs = next((one["seconds"] for one in some
                           if (one["benchmark"], one["contender"]) == (row["benchmark"], row["against"])), None)
            who = "" if row["contender"] == "ebsif" else f": {row['contender']}"
            lines.append(f"| {row['benchmark']}{who} | {row['against']} | {in_units(row['seconds'])} "
                         f"| {in_units(theirs) if theirs else ''} | {row['ratio']:.3f} "
                         f"| {in_units(row['difference'], '+')} | {target(row)} |")
    return "\n".join(lines)


def target(row: dict[str, Any]) -> str:
    """Return the target of a row and whether it is reached."""
    return f"{row['target']}{'' if row['reached'] else ': **missed**'}" if row["target"] else ""


def measured(some: list[dict[str, Any]]) -> str:
    """Return a table in Markdown of all times: the tasks, and who did them."""
    lines = ["| what | who | median | runs | |", "|---|---|---|---|---|"]
    seen = set()
    for row in some:
        key = row["benchmark"], row["contender"]
        if key not in seen:
            lines.append(f"| {row['benchmark']} | {row['contender']} | {in_units(row['seconds'])} | {row['runs']} "
                         f"| {row['note']} |")
        seen.add(key)
    return "\n".join(lines)


def groups(plot: Plot, some: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Yield the groups of bars of a plot: a task, and its rows by contender."""
    tasks = [row["benchmark"] for row in some if not re.search(plot.without, row["benchmark"])]
    for task in dict.fromkeys(tasks):
        yield task, {row["contender"]: row for row in some if row["benchmark"] == task}


def picture(plot: Plot, some: list[dict[str, Any]]) -> str:
    """Return a plot as SVG."""
    shown = [(task, [(name, row["seconds"], in_units(row["seconds"]), bool(row["against"]))
                     for name, row in bars.items()]) for task, bars in groups(plot, some)]
    longest = max(seconds for _, bars in shown for _, seconds, _, _ in bars)
    return environment("manual", html=True).get_template("plot.svg.j2").render(plot=plot, groups=shown, longest=longest)


def block(name: str, runs: list[record.Run]) -> str:
    """Return the content of a block of the page."""
    if name == "runs":
        return "\n".join(f"- {', '.join(dict.fromkeys(row['name'] for row in run.results))}: {run}" for run in runs)
    if name == "targets":
        return compared([row for row in rows(runs) if row["name"] != "installers"])
    some = rows(runs, PLOTS[name].names if name in PLOTS else OTHERS[name])
    if not some:
        return "Not measured in the recorded runs."
    if name not in PLOTS:
        return measured(some)
    bars = "; ".join(f"{task}: " + ", ".join(f"{who} {in_units(row['seconds'])}" for who, row in found.items())
                     for task, found in groups(PLOTS[name], some))
    return f"![{PLOTS[name].title}. {bars}]({PICTURE.format(name).removeprefix('docs/')})\n\n{measured(some)}"


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
