"""The results of all fault tests in tests/faults: a table, and the same as JSON."""

import json
from pathlib import Path

import pytest

COLUMNS = ("cases", "survived", "lost data", "wrong message")


def pytest_addoption(parser):
    """Add the options of the fault tests."""
    group = parser.getgroup("faults")
    group.addoption("--every-point", action="store_true", help="kill at every point, not at some")
    group.addoption("--faults-report", type=Path, metavar="FILE", help="write a report as JSON and print it as a table")


def pytest_configure(config):
    """Write the report in the main process, which knows all tests, not in the worker processes."""
    path = report_path(config)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(path), "fault-report")


def report_path(config):
    """Return the path of the report (Path, None: no report), absolute because tests change the directory."""
    path = config.getoption("--faults-report")
    return path and Path(config.rootpath, path)


def cases_of(report):
    """Return the file with a line for each completed case (Path), which remains if the run is interrupted."""
    return report.with_suffix(".jsonl")


class Case:
    """One fault."""

    def __init__(self, group, name):
        self.data = {"group": group, "case": name, "lost data": [], "wrong message": []}

    def kept(self, condition, what):
        """Check that a file or a promise was kept; otherwise the case counts as lost data."""
        if not condition:
            self.data["lost data"].append(str(what))

    def said(self, text, *expected):
        """Check that the message contains these parts; otherwise the case counts as a wrong message."""
        for part in expected:
            if part not in text:
                self.data["wrong message"].append(f"no {part!r} in {text[-1500:]!r}")

    def shown(self, condition, what):
        """Check a condition on the message; otherwise the case counts as a wrong message."""
        if not condition:
            self.data["wrong message"].append(str(what))

    def check(self):
        """Fail if anything is wrong."""
        wrong = [f"{kind}: {what}" for kind in ("lost data", "wrong message") for what in self.data[kind]]
        assert not wrong, f"{self.data['group']}, {self.data['case']}:\n" + "\n".join(wrong)


@pytest.fixture
def fault(request):
    """A function that begins a case; after the test all cases are reported, and a failed one fails the test."""
    cases = []
    report = report_path(request.config)

    def tell():
        if report and cases:
            with cases_of(report).open("a") as lines:
                lines.write(json.dumps(cases[-1].data) + "\n")

    def begin(group, name):
        tell()
        cases.append(Case(group, name))
        return cases[-1]

    yield begin
    # if an exception ended the test, its last case did not survive
    failed = getattr(request.node, "failed_in_call", True)
    if failed and cases and not cases[-1].data["lost data"]:
        cases[-1].data["lost data"].append("the test was stopped")
    tell()
    for case in cases:
        if not failed:
            case.check()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Tell the fixture the result of the test."""
    outcome = yield
    if call.when == "call":
        item.failed_in_call = outcome.get_result().failed


class Report:
    """The report of a run."""

    def __init__(self, path):
        self.path = path
        self.cases = []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        cases_of(path).write_text("")

    def pytest_terminal_summary(self, terminalreporter):
        """Write the report."""
        self.cases = [json.loads(line) for line in cases_of(self.path).read_text().splitlines()]
        self.path.write_text(json.dumps({"summary": self.summary, "cases": self.cases}, indent=2) + "\n")
        terminalreporter.write_line(table(self.summary))

    @property
    def summary(self):
        """Return the numbers by group (dict of dict)."""
        groups = {}
        for case in sorted(self.cases, key=lambda case: case["group"]):
            row = groups.setdefault(case["group"], dict.fromkeys(COLUMNS, 0))
            row["cases"] += 1
            row["lost data"] += bool(case["lost data"])
            row["wrong message"] += bool(case["wrong message"])
            row["survived"] += not case["lost data"] and not case["wrong message"]
        return groups


def table(summary):
    """Return the numbers by group as a table (str)."""
    rows = [[group, *(str(row[column]) for column in COLUMNS)] for group, row in summary.items()]
    rows.append(["all", *(str(sum(row[column] for row in summary.values())) for column in COLUMNS)])
    widths = [max(map(len, column)) for column in zip(("", *COLUMNS), *rows)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
        for row in [("", *COLUMNS), *rows]
    )
