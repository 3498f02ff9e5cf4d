"""
The self-test that travels: with each modules tool and scheduler, either kind of mount, and where something is broken.

One whole self-test runs by day; the others run at night, because their steps are what other tests do by day.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

import pytest
from account import as_root
from parts import TOOLS
from support import Site, blocks, write_program

STEPS = ["machine", "record", "install", "load", "pack", "extend", "two ranks", "signal", "server", "unload", "remove"]
IN_JOBS = ("two ranks", "server")


# Run a job on this machine, where mpiexec starts its ranks. As with PBS, a running job has no output in its directory.
PBS = {
    "qsub": """cat >"$folder/job"
echo localhost >"$folder/nodes"
export PBS_JOBID=4711.server PBS_NODEFILE=$folder/nodes PBS_O_WORKDIR=$PWD
setsid bash "$folder/job" >"$folder/output" 2>&1 </dev/null & echo $! >"$folder/process"
echo 4711.server
""",
    "qstat": "echo '    job_state = R'\n",
    "qdel": 'kill -TERM -- "-$(<"$folder/process")"\n',
}


def write_site(site, scheduler):
    """Write the profile of a site with a scheduler; return the options that choose it."""
    folder = site.prefix / "sites/mine"
    folder.mkdir(parents=True)
    (folder / "site.yaml").write_text(f"name: mine\ndescription: x\nscheduler: {{kind: {scheduler}}}\n")
    return ["--catalog", folder.parent, "--site", "mine"]


def outcomes_in(text):
    """Return the outcomes (result, text) in the output of the self-test, by step."""
    return {one["step"]: (one["result"], one["text"]) for one in json.loads(text)["steps"]}


def test_with_a_scheduler(tmp_path, base_image, cluster):
    """A-05, Y-03: every step works for an ordinary account, in a directory with a space; nothing is left."""
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
    assert outcomes["two ranks"][1] == "slurm: both ranks have started"
    assert outcomes["signal"][1] == "SIGTERM has reached both ranks"
    assert outcomes["server"][1] == "a program has asked it"
    assert re.match(r"EasyBuild 5.*, apptainer version 1.*, .*Lmod", outcomes["machine"][1])
    assert {path.name for path in site.work.iterdir()} == {"image.sif", "selftest.json"}
    # the runtime's own
    assert {path.name for path in site.home.iterdir()} <= {".apptainer"}


def all_work(outcomes):
    """Return whether each step of the self-test has worked."""
    return list(outcomes) == STEPS and {result for result, _ in outcomes.values()} == {"ok"}


@pytest.mark.nightly
def test_where_eb_is_configured(lumi, base_image, cluster):
    """A-05: every step works at a site like LUMI, with modules and an eb of its own that sets Python's path."""
    settings = lumi.prefix / "etc/easybuild.d/site.cfg"
    settings.parent.mkdir(parents=True)
    settings.write_text("[config]\nsuffix-modules-path=\n")
    script = f"ebsif selftest {base_image} --json"
    done = lumi.bash(script, check=False, XDG_CONFIG_DIRS=settings.parents[1], **cluster.environment)
    assert all_work(outcomes_in(done.stdout)), done.stdout
    assert not list(lumi.work.glob("ebsif-selftest-*"))
    assert not (lumi.prefix / "eb").exists()


@pytest.mark.nightly
def test_mounts_of_the_kernel(base_image, cluster):
    """A-05: every step works where the kernel mounts images and user software, as it does for root."""
    with as_root(), tempfile.TemporaryDirectory(prefix="ebsif-root-") as folder:
        Path(folder).chmod(0o755)
        site = Site(Path(folder, "site"), TOOLS["Lmod-Lua"](), Path(sys.prefix))
        assert "Kernel squashfs mount allowed" in site.run(["apptainer", "--debug", "exec", base_image, "true"]).stderr
        command = [f"{sys.prefix}/bin/ebsif", "selftest", base_image, "--json"]
        done = site.run(
            command, check=False, EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES=1, **cluster.environment
        )
        assert all_work(outcomes_in(done.stdout)), done.stdout
        assert not list(site.work.iterdir())


@pytest.mark.nightly
def test_with_pbs(tmp_path, base_image):
    """A-05: every step works with Environment Modules and PBS, whose own commands are stand-ins."""
    site = Site(tmp_path / "site", TOOLS["EnvironmentModules-Tcl"](), Path(sys.prefix))
    catalog = write_site(site, "pbs")
    for name, text in PBS.items():
        path = site.prefix / "pbs" / name
        write_program(path, f"#!/bin/bash\nfolder={path.parent}\n{text}")
    command = ["ebsif", "selftest", base_image, "--json", *catalog]
    done = site.run(command, check=False, PATH=f"{site.prefix}/pbs:{site.environment['PATH']}")
    outcomes = outcomes_in(done.stdout)
    assert all_work(outcomes), done.stdout
    assert outcomes["two ranks"][1] == "pbs: both ranks have started"
    assert outcomes["machine"][1].endswith("Environment Modules")


@pytest.mark.nightly
@pytest.mark.parametrize("tool", ["Lmod-Tcl", "EnvironmentModules-Tcl"])
def test_without_a_scheduler(tmp_path, base_image, tool):
    """A-05: without a scheduler, a signal reaches a single process; with module files in Tcl, and as a table."""
    site = Site(tmp_path / "site", TOOLS[tool](), Path(sys.prefix))
    command = ["ebsif", "selftest", base_image, "--directory", site.temporary, *write_site(site, "pbs")]
    done = site.run(command, check=False, EASYBUILD_MODULE_SYNTAX="Tcl")
    rows = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    outcomes = {row[0]: row[1:] for row in rows[1:]}
    assert [row[0] for row in rows] == ["step", *STEPS], done.stdout
    for name in IN_JOBS:
        assert outcomes[name][::2] == ["not possible here", "there is no scheduler (qsub is not on PATH)"], done.stdout
    assert outcomes["signal"][::2] == ["ok", "SIGTERM has reached a program that was started without a job"]
    assert {outcomes[name][0] for name in STEPS if name not in IN_JOBS} == {"ok"}, done.stdout
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == f"ebsif: 11 steps: {11 - len(IN_JOBS)} ok, {len(IN_JOBS)} not possible here"
    assert not list(site.temporary.glob("ebsif-selftest-*"))


def test_what_fails(tmp_path, small_image):
    """A-05: a failure is named, what needs the module isn't run, and the directory with the log stays."""
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    command = ["ebsif", "selftest", small_image("busybox"), "--json"]
    done = site.run(command, check=False, EASYBUILD_INSTALLPATH=tmp_path / "other")
    outcomes = outcomes_in(done.stdout)
    assert done.returncode == 1
    failed = [step for step, (result, _) in outcomes.items() if result == "failed"]
    assert len(failed) == 1 and failed[0] in ("install", "load"), outcomes
    assert outcomes["remove"] == ("not run", f"it needs what failed before ({failed[0]})")
    log = Path(re.search(r"output are in (\S+/log); ", done.stderr)[1])
    assert "$ " in log.read_text()
    assert not (tmp_path / "other").exists()


@pytest.mark.nightly
def test_an_image_without_pip(tmp_path, small_image):
    """A-05: without user software, what needs it isn't possible, and the other steps do without."""
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    command = ["ebsif", "selftest", small_image("python-without-pip"), "--json", *write_site(site, "pbs")]
    done = site.run(command, check=False)
    outcomes = outcomes_in(done.stdout)
    others = {step: one for step, one in outcomes.items() if one[0] != "ok"}
    assert list(others) == ["pack", "extend", *IN_JOBS], others
    reason = "the module has no user software: the Python of the image has no pip or venv"
    assert others["pack"] == others["extend"] == ("not possible here", reason)
    for name in IN_JOBS:
        assert others[name] == ("not possible here", "there is no scheduler (qsub is not on PATH)")
    assert done.returncode == 0
    assert not list(site.work.iterdir())


def test_an_image_that_is_here(tmp_path, site):
    """A-05: without IMAGE, that of an installed module is taken; if there is none, a line says what to do."""
    said = site.run(["ebsif", "selftest"], check=False, MODULEPATH="", EBSIF_SITE="local")
    assert said.returncode == 2
    assert said.stderr.startswith("ebsif: no image is known here: give one with Python; `apptainer pull docker://")
