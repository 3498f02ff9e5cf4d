"""The performance page and its plots: every figure comes from the recorded runs of the benchmarks."""

import re
import shutil
import sys
from functools import partial
from xml.etree import ElementTree

import pytest
from support import CHECKOUT, printed, tracked

sys.path[:0] = [str(CHECKOUT / "docs"), str(CHECKOUT / "tools/benchmarks")]

import bench  # noqa: E402 after its path
from manual import figures, record  # noqa: E402
from measuring import rows  # noqa: E402

TIMES = {"today": [4.0, 4.2, 4.1], "ebsif": [1.0, 1.2, 1.1]}


@pytest.fixture
def clone(tmp_path):
    """A folder with the page and the record of the project, where they can be changed."""
    (tmp_path / "docs/pictures").mkdir(parents=True)
    for name in (figures.PAGE, record.FILE):
        shutil.copy(CHECKOUT / name, tmp_path / name)
    return tmp_path


def test_the_page_shows_what_was_recorded():
    """W-08: table and plots are those of the record: `scripts/bench --record` writes all of them."""
    page = (CHECKOUT / figures.PAGE).read_text()
    for path, text in figures.made(record.read(), page).items():
        assert (CHECKOUT / path).read_text() == text, path
    for path in (CHECKOUT / "docs/pictures").glob("bench-*.svg"):
        assert f"pictures/{path.name}" in page, path


def test_no_other_figure_is_on_the_page():
    """W-08: outside the blocks from the record there is no time, size, share or ratio."""
    page = figures.BLOCK.sub("", (CHECKOUT / figures.PAGE).read_text())
    assert "<!-- record" not in page
    unit = r"(ns|µs|ms|s|min|h|KB|MB|GB|TB|GiB|MiB|%|seconds?|minutes?|times|percent|instructions)"
    assert re.findall(rf"\d[\d.,]* ?{unit}\b", page) == []
    assert re.findall(r"\b\d+\.\d+\b|\d of \d", page) == []


def test_each_run_says_when_where_and_what():
    """W-08: date, commit and machine of each run are in the record and on the page, without names of machines."""
    page = (CHECKOUT / figures.PAGE).read_text()
    for run in record.read():
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", run.date)
        assert re.fullmatch(r"[0-9a-f]{7,}", run.commit), f"{run.commit}: recorded with uncommitted changes"
        assert run.machine["cpus"] > 0
        assert str(run) in page and f"- {run.place}: " in page
        assert run.date in str(run) and run.commit in str(run)
        assert all(row["name"] in bench.BENCHMARKS for row in run.results)


def test_the_page_shows_the_most_important_rows():
    """W-08: each row of the table and each plot has recorded times, and the page has each block once."""
    recorded = [(row["benchmark"], row["against"]) for row in figures.rows(record.read())]
    assert set(figures.TABLE) <= set(recorded)
    assert {name for plot in figures.PLOTS.values() for name in plot.names} <= set(bench.BENCHMARKS)
    found = [name for _, name, _ in figures.BLOCK.findall((CHECKOUT / figures.PAGE).read_text())]
    assert sorted(found) == sorted(["runs", "table", "targets", *figures.PLOTS])


def test_the_figures_of_the_readme():
    """W-08: the table of the README has times and sizes from the record, and lengths of the easyconfigs as they are."""
    readme = (CHECKOUT / "README.md").read_text()
    found = {(row["benchmark"], row["contender"]): row for row in figures.rows(record.read())}
    both = ("hand-written recipe", "ebsif")
    times = [figures.in_units(found["install of the example", who]["seconds"]) for who in both]
    text = " ".join(readme.split())
    assert f"installing PyTorch with two packages takes {times[1]} instead of {times[0]} on two CPUs" in text
    notes = [found["extension of the installed example", who]["note"] for who in both]
    theirs, ours = (note.partition(" on disk")[0] for note in notes)
    assert f"a second copy of the image ({theirs} in the demo, " in readme
    assert f"one file with only the packages ({ours}) |" in readme
    lengths = {path.name: path.read_text().count("\n") for path in (CHECKOUT / "easyconfigs").rglob("*.eb")}
    assert "an easyconfig of about 50 lines" in readme and 40 <= sorted(lengths.values())[len(lengths) // 2] <= 60
    # a center that takes it over has to maintain that much
    adopting = (CHECKOUT / "docs/adopting.md").read_text()
    sizes = re.search(r"(\d+),000 lines of Python, and (\d+),000 lines of tests", adopting)
    for thousands, folders in zip(sizes.groups(), (("easyblocks", "generator"), ("tests",))):
        lines = sum(path.read_text().count("\n") for path in tracked(*(f"{folder}/**.py" for folder in folders)))
        assert lines == pytest.approx(int(thousands) * 1000, rel=0.1), folders


def test_recording_a_run(clone, monkeypatch, capsys):
    """W-08: `scripts/bench --record NAME` replaces the results of that benchmark, and makes page and plots of them."""
    before, output = record.read(clone), record.output
    monkeypatch.chdir(CHECKOUT)
    # unit tests need no runtime
    runtime = {"apptainer": "apptainer version 1.4.5"}
    monkeypatch.setattr(record, "output", lambda *command: runtime.get(command[0]) or output(*command))
    monkeypatch.setattr(record, "add", partial(record.add, checkout=clone))
    monkeypatch.setattr(figures, "update", partial(figures.update, checkout=clone))
    measured = rows("wrapper <&>", TIMES, "ebsif", {"today": ("ratio", 0.2)})
    monkeypatch.setitem(bench.BENCHMARKS, "wrapper", lambda folder: measured)
    monkeypatch.setattr(sys, "argv", ["bench", "--record", f"--json={clone}/not yet/bench.json", "wrapper"])
    assert bench.main() == 0
    assert "0 targets reached, 1 missed" in capsys.readouterr().out
    *_, run = record.read(clone)
    head = printed(["git", "rev-parse", "HEAD"], cwd=CHECKOUT)
    assert head.startswith(run.commit.removesuffix("-dirty"))
    assert [row["contender"] for row in run.results] == ["today", "ebsif"]
    kept = [row for one in record.read(clone)[:-1] for row in one.results]
    assert kept == [row for one in before for row in one.results if row["name"] != "wrapper"]
    page = (clone / figures.PAGE).read_text()
    assert "- wrapper <&>: -3.0 s against today, a ratio of 0.268 (target: at most 0.2)\n" in page
    picture = ElementTree.parse(clone / figures.PICTURE.format("wrapper")).getroot()
    title, *labels = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert title == "Starting a command of the module (shorter is better)"
    assert labels == ["wrapper <&>", "today", "4.1 s", "ebsif", "1.1 s"]
    bars = {one.get("class"): float(one.get("width")) for one in picture.iter("{http://www.w3.org/2000/svg}rect")}
    assert bars["ours"] / bars["other"] == pytest.approx(1.1 / 4.1, abs=0.01)
