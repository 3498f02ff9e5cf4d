"""The record of versions that were tried, tests/data/compatibility.json, and its table in the documentation."""

import json
import re

from packaging.version import Version
from support import CHECKOUT

FILE = CHECKOUT / "tests/data/compatibility.json"
PAGE = CHECKOUT / "docs/compatibility.md"
# What is done with each version, in this order.
STEPS = ("install", "rebuild", "load", "run", "unload", "search", "commands")
PARTS = ("EasyBuild", "Lmod (Lua)", "Lmod (Tcl)", "Environment Modules", "Apptainer", "Python")
WORKS, FAILS, NOT_SUPPORTED = "works", "FAILS", "-"
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)


def read():
    """Return the recorded rows (list of dict: part, version, with, date, ebsif, commit, steps)."""
    return json.loads(FILE.read_text()) if FILE.exists() else []


def write(rows):
    """Add rows to the record, in place of earlier ones for the same versions, and update the table."""
    known = {(row["part"], row["version"]): row for row in [*read(), *rows]}
    ordered = sorted(known.values(), key=lambda row: (PARTS.index(row["part"]), Version(row["version"])))
    FILE.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(TABLE.sub(lambda _: table(ordered), PAGE.read_text()))


def table(rows):
    """Return rows as a table in Markdown, followed by a line that says with what the versions were tried."""
    lines = [("", "version", *STEPS, "ebsif"), ("---",) * (len(STEPS) + 3)]
    lines += [(row["part"], row["version"], *(row["steps"].get(step, NOT_SUPPORTED) for step in STEPS),
               f"{row['ebsif']}, {row['commit']}") for row in rows]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    others = sorted({f"{part} {version}" for row in rows for part, version in row["with"].items()})
    days = sorted({row["date"] for row in rows})
    period = " to ".join(dict.fromkeys((days[0], days[-1])))
    return f"{text}\nRecorded {period}; the other parts were {', '.join(others)}.\n"
