"""The self-test that travels: by an ordinary account, with and without a scheduler, and where something is broken."""

import json
import re
import sys
from pathlib import Path

import pytest
from parts import TOOLS, environment_modules
from support import Site, blocks

STEPS = ["machine", "record", "install", "load", "pack", "extend", "two ranks", "signal", "unload", "remove"]


def outcomes_in(text):
    """Return the outcomes (result, text) in the output of the self-test, by step."""
    return {one["step"]: (one["result"], one["text"]) for one in json.loads(text)["steps"]}


def test_with_a_scheduler(tmp_path, base_image, cluster):
    """A-05: every step works for an ordinary account, in a directory with a space; nothing is left."""
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    site.work = tmp_path / "of mine"
    site.work.mkdir()
    (site.work / "image.sif").symlink_to(base_image)
    (page,) = blocks("docs/adopting.md")
    said = site.bash(f"set -e\n{page}", **cluster.environment)
    outcomes = outcomes_in((site.work / "selftest.json").read_text())
    assert list(outcomes) == STEPS
    assert {step: one for step, one in outcomes.items() if one[0] != "ok"} == {}, said
    assert outcomes["load"][1].startswith("Python 3.11.")
    assert outcomes["two ranks"][1] == "slurm: both have started, and know their ranks"
    assert outcomes["signal"][1] == "SIGTERM has reached both ranks"
    assert re.match(r"EasyBuild 5.*, apptainer version 1.*, .*Lmod", outcomes["machine"][1])
    assert {path.name for path in site.work.iterdir()} == {"image.sif", "selftest.json"}
    # the runtime's own
    assert {path.name for path in site.home.iterdir()} <= {".apptainer"}


@pytest.mark.nightly
def test_without_a_scheduler(tmp_path, base_image):
    """A-05: without a scheduler, a signal reaches a single process; with Environment Modules, and as a table."""
    site = Site(tmp_path / "site", environment_modules(), Path(sys.prefix))
    (site.prefix / "sites/laptop").mkdir(parents=True)
    (site.prefix / "sites/laptop/site.yaml").write_text("name: laptop\ndescription: x\nscheduler: {kind: pbs}\n")
    done = site.run(["ebsif", "selftest", base_image, "--directory", site.temporary, "--catalogue",
                     site.prefix / "sites", "--site", "laptop"], check=False)
    rows = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    outcomes = {row[0]: row[1:] for row in rows[1:]}
    assert [row[0] for row in rows] == ["step", *STEPS], done.stdout
    assert outcomes["two ranks"][0] == "not possible here", done.stdout
    assert outcomes["two ranks"][2] == "there is no scheduler (qsub is not on PATH)"
    assert outcomes["signal"][::2] == ["ok", "SIGTERM has reached a program that was started without a job"]
    assert {outcomes[name][0] for name in STEPS if name != "two ranks"} == {"ok"}, done.stdout
    assert done.returncode == 0
    assert not list(site.temporary.glob("ebsif-selftest-*"))


def test_what_fails(tmp_path, small_image):
    """A-05: a failure is named, what needs the module isn't run, and the directory with the log stays."""
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    done = site.run(["ebsif", "selftest", small_image("busybox"), "--json"], check=False,
                    EASYBUILD_INSTALLPATH=tmp_path / "other")
    outcomes = outcomes_in(done.stdout)
    assert done.returncode == 1
    failed = [step for step, (result, _) in outcomes.items() if result == "failed"]
    assert len(failed) == 1 and failed[0] in ("install", "load"), outcomes
    assert outcomes["remove"] == ("not run", f"it needs what failed before ({failed[0]})")
    log = Path(re.search(r"output are in (\S+/log); ", done.stderr)[1])
    assert "$ " in log.read_text()
    assert not (tmp_path / "other").exists()


def test_an_image_without_pip(tmp_path, small_image):
    """A-05: without user software, what needs it isn't possible, and the other steps do without."""
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    (site.prefix / "sites/laptop").mkdir(parents=True)
    (site.prefix / "sites/laptop/site.yaml").write_text("name: laptop\ndescription: x\nscheduler: {kind: pbs}\n")
    done = site.run(["ebsif", "selftest", small_image("python-without-pip"), "--json", "--catalogue",
                     site.prefix / "sites", "--site", "laptop"], check=False)
    outcomes = outcomes_in(done.stdout)
    others = {step: one for step, one in outcomes.items() if one[0] != "ok"}
    assert list(others) == ["pack", "extend", "two ranks"], others
    reason = "the module has no user software: the Python of the image has no pip or venv"
    assert others["pack"] == others["extend"] == ("not possible here", reason)
    assert others["two ranks"] == ("not possible here", "there is no scheduler (qsub is not on PATH)")
    assert done.returncode == 0
    assert not list(site.work.iterdir())


def test_an_image_that_is_here(tmp_path, site):
    """A-05: without IMAGE, that of an installed module is taken; if there is none, a line says what to do."""
    said = site.run(["ebsif", "selftest"], check=False, MODULEPATH="", EBSIF_SITE="local")
    assert said.returncode == 2
    assert said.stderr.startswith("ebsif: no image is known here: name one with Python; `apptainer pull docker://")
