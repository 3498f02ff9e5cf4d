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
WORKS, FAILS = "works", "FAILS"
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
    """Return rows as a table in Markdown, a line for each part, followed by when they were recorded and with what."""
    tried = {part: [tried_version(row) for row in rows if row["part"] == part] for part in PARTS}
    lines = [("part", "versions"), ("---", "---"), *((part, ", ".join(tried[part])) for part in PARTS)]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    others = sorted({f"{part} {version}" for row in rows for part, version in row["with"].items()})
    days = sorted({row["date"] for row in rows})
    period = " to ".join(dict.fromkeys((days[0], days[-1])))
    return f"{text}\nRecorded {period}; the other parts were {', '.join(others)}.\n"


def tried_version(row):
    """Return the version of a row, with the steps that didn't work or were left out."""
    failed = [step for step in STEPS if row["steps"].get(step) == FAILS]
    left_out = [step for step in STEPS if step not in row["steps"]]
    notes = [f"{heading} {', '.join(steps)}" for heading, steps in (("fails:", failed), ("without", left_out)) if steps]
    return f"{row['version']} ({'; '.join(notes)})" if notes else row["version"]
