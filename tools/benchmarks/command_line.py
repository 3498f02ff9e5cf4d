"""The command ebsif: its start, and rendering catalogs of several sizes."""

import os
import sys
from pathlib import Path

import measuring
from measuring import Row, in_turn, rows, run

EBSIF = Path(sys.prefix) / "bin/ebsif"

HEAD = """\
name: Big
families:
  big: {homepage: https://example.org/, file: "big-{version}.sif", suffix: "-{date}", init: image, venv: true}
containers:
"""


def start(folder):
    """Compare with a Python that does nothing."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "ebsif --help": [EBSIF, "--help"],
        "ebsif list": [EBSIF, "list", "--site", "lumi"],
    }
    environment = {**os.environ, "HOME": str(folder)}
    times = in_turn(
        {name: (lambda command=command: run(command, env=environment)) for name, command in commands.items()}, runs=20
    )
    found = []
    for name in ("ebsif --help", "ebsif list"):
        pair = {"python -c pass": times["python -c pass"], name: times[name]}
        made = rows("start", pair, name, {"python -c pass": ("difference", 0.150)})
        found += made if not found else made[1:]
    return found


def render(folder):
    """Render catalogs of 58, 1,000 and 10,000 records, each time to a new directory."""
    found, per_record = [], []
    for number in (58, 1_000, 10_000):
        place = folder / str(number)
        containers = place / "sites/mine/containers"
        containers.mkdir(parents=True)
        (containers.parent / "site.yaml").write_text("name: mine\ndescription: a machine\n")
        (containers / "Big.yaml").write_text(
            HEAD
            + "".join(
                f"  - {{family: big, version: 1.{index}, date: 20260101, components: {{rocm: 6.2.{index % 5}}}}}\n"
                for index in range(number)
            )
        )
        environment = {**os.environ, "HOME": str(place)}
        command = [EBSIF, "render", "--catalog", place / "sites", "--site", "mine", "-o"]
        turn = iter(range(1000))

        def anew(place=place, environment=environment, command=command, turn=turn):
            run([*command, place / f"out-{next(turn)}"], env=environment)

        times = in_turn({"ebsif render": anew}, runs=5 if number < 10_000 else 3)["ebsif render"]
        memory = measuring.peak_memory([*command, place / "memory"], env=environment)
        middle = sorted(times)[len(times) // 2]
        per_record.append(middle / number)
        found.append(Row(f"render {number} records", "ebsif", middle, len(times), note=f"{memory:.0f} MB at most"))
    # linear: a record takes no longer in the largest catalog than in the middle one, where the start adds more to it
    ratio = per_record[2] / per_record[1]
    found.append(
        Row(
            "render, time of a record",
            "ebsif, 10,000",
            per_record[2],
            1,
            "1,000 records",
            ratio,
            per_record[2] - per_record[1],
            "at most 1.2",
            ratio <= 1.2,
        )
    )
    return found
