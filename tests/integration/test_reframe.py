"""Checks for ReFrame, run by ReFrame on a Slurm cluster of two nodes."""

import json
import shutil

import pytest
from ebsif.cli import main
from support import CONTAINER_FILES


@pytest.fixture
def catalogue(tmp_path):
    """A catalogue with the installed module, and an archived one."""
    folder = tmp_path / "sites/here"
    (folder / "containers").mkdir(parents=True)
    gpus = {"tasks": 8, "gpus": 8, "cpus_per_task": 7, "memory": "480G", "qos": "q"}
    (folder / "site.yaml").write_text(json.dumps({"name": "here", "description": "Two nodes", "scheduler": {
        "default_partition": "small", "partitions": {"small": {"tasks": 2}, "gpus": gpus}}}))
    record = {"family": "example", "version": "1.0", "label": "writable"}
    (folder / "containers/Example.yaml").write_text(json.dumps({
        "name": "Example", "families": {"example": {
            "file": "example.sif", "init": "conda-injected", "conda_env": "pytorch", "description": "An example",
            "suffix": "{label}", "wrappers": ["python"]}},
        "containers": [record, {**record, "version": "0.9", "archived": True}]}))
    return tmp_path / "sites"


def test_reframe(installed_once, cluster, catalogue, tmp_path):
    """I-05: ReFrame runs the checks: all pass; one fails when something is broken."""
    site = installed_once.copy(tmp_path, installed_once.WRITABLE)
    # the catalogue's container has a wrapper
    wrapper = CONTAINER_FILES / "share/ebsif/wrapper"
    shutil.copy(wrapper, site.prefix / "eb/software" / installed_once.WRITABLE / "bin/python")
    site.run(["ebsif", "reframe", "--site", "here", "--catalogue", catalogue, "-o", tmp_path / "checks"])

    def failures():
        """Run all checks; return the names of all, and of those that failed."""
        command = ["reframe", "-C", tmp_path / "checks/settings.py", "-c", tmp_path / "checks/checks.py", "-r",
                   "--prefix", tmp_path / "runs", "--report-file", tmp_path / "report.json"]
        said = site.run(command, check=False, MODULEPATH=site.modules, **cluster.environment)
        (run,) = json.loads((tmp_path / "report.json").read_text())["runs"]
        cases = run["testcases"]
        failed = {case["name"].split()[0] for case in cases if case["result"] != "pass"}
        assert bool(failed) == bool(said.returncode), said.stdout
        return len(cases), failed, said.stdout

    number, failed, said = failures()
    assert (number, failed) == (4, set()), said
    packages = next(site.prefix.glob("eb/software/Example/*/user-software/venv/*/lib/python3*/site-packages"))
    (packages / "numpy-0.1.dist-info").mkdir()
    (packages / "numpy-0.1.dist-info/METADATA").write_text("Name: numpy\nVersion: 0.1\n")
    number, failed, said = failures()
    assert (number, failed) == (4, {"Packages"}), said
    assert "wrong: numpy is 0.1, not" in said


def test_what_is_written(catalogue, tmp_path, capsys):
    """I-05: partitions come from the profile; archived containers are left out; mistakes are named."""
    words = ["reframe", "--site", "here", "--catalogue", str(catalogue), "-o", str(tmp_path / "checks")]
    assert main([*words, "--partition", "gpus"]) == 0
    assert "checks of 1 module" in capsys.readouterr().out
    data = json.loads((tmp_path / "checks/data.json").read_text())
    assert data["modules"] == {"Example/1.0-writable": {
        "image": "example\\.sif", "python": True, "wrapper": "python", "venv": True}}
    assert data["site"]["partitions"] == [{
        "name": "gpus", "access": ["--partition=gpus", "--qos=q", "--mem=480G"], "tasks": 8, "cpus": 7, "gpus": 8}]
    assert main([*words, "--partition", "none"]) == 3
    assert "unknown partition 'none'" in capsys.readouterr().err
    assert main([*words, "nothing-like-this"]) == 3
    assert "no container to check" in capsys.readouterr().err
