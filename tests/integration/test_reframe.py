"""Checks for ReFrame, run by ReFrame on a Slurm cluster of two nodes."""

import json
import shutil

import pytest
from ebsif.cli import main
from support import CONTAINER_FILES


@pytest.fixture
def catalog(tmp_path):
    """A catalog with the installed module, and an archived one."""
    folder = tmp_path / "sites/here"
    (folder / "containers").mkdir(parents=True)
    gpus = {"tasks": 8, "gpus": 8, "cpus_per_task": 7, "memory": "480G", "qos": "q"}
    (folder / "site.yaml").write_text(
        json.dumps(
            {
                "name": "here",
                "description": "Two nodes",
                "gpu": "rocm",
                "scheduler": {"default_partition": "small", "partitions": {"small": {"tasks": 2}, "gpus": gpus}},
            }
        )
    )
    record = {"family": "example", "version": "1.0", "label": "writable"}
    (folder / "containers/Example.yaml").write_text(
        json.dumps(
            {
                "name": "Example",
                "families": {
                    "example": {
                        "file": "example.sif",
                        "init": "conda-injected",
                        "conda_env": "pytorch",
                        "description": "An example",
                        "suffix": "{label}",
                        "wrappers": ["python"],
                    }
                },
                "containers": [record, {**record, "version": "0.9", "archived": True}],
            }
        )
    )
    return tmp_path / "sites"


@pytest.mark.nightly
def test_reframe(installed_once, cluster, catalog, tmp_path):
    """I-05: ReFrame runs the checks: all pass; each fails when its part is broken, and the report says why."""
    site = installed_once.copy(tmp_path, installed_once.WRITABLE)
    root = site.root(installed_once.WRITABLE)
    # the catalog's container has a wrapper
    wrapper = root / "bin/python"
    shutil.copy(CONTAINER_FILES / "share/ebsif/wrapper", wrapper)
    site.run(["ebsif", "reframe", "--site", "here", "--catalog", catalog, "-o", tmp_path / "checks"])

    def reasons(*options, **environment):
        """Run checks; return the reason of each that failed, None for the others, and ReFrame's output."""
        command = ["reframe", "-C", tmp_path / "checks/settings.py", "-c", tmp_path / "checks/checks.py", "-r"]
        command += ["--prefix", tmp_path / "runs", "--report-file", tmp_path / "report.json", *options]
        said = site.run(command, check=False, **{"MODULEPATH": site.modules, **cluster.environment, **environment})
        (run,) = json.loads((tmp_path / "report.json").read_text())["runs"]
        found = {
            case["name"].split()[0]: None if case["result"] == "pass" else case["fail_reason"]
            for case in run["testcases"]
        }
        assert any(found.values()) == bool(said.returncode), said.stdout
        assert len(found) == len(run["testcases"])
        return found, said.stdout

    found, said = reasons()
    assert found == dict.fromkeys(["AllReduce", "Commands", "Packages", "Ranks"]), said
    # another version, a wrapper that runs the host's Python, a network on which ranks don't find each other
    packages = next(root.glob("user-software/venv/*/lib/python3*/site-packages"))
    (packages / "numpy-0.1.dist-info").mkdir()
    (packages / "numpy-0.1.dist-info/METADATA").write_text("Name: numpy\nVersion: 0.1\n")
    wrapper.unlink()
    wrapper.symlink_to("/usr/bin/python3")
    found, said = reasons(MASTER_ADDR="nowhere.invalid")
    assert "numpy is 0.1, not" in found["Packages"], said
    assert "the command python runs the Python in ['/usr']" in found["Commands"], said
    assert "0 of 4 ranks have the right sum; " in found["AllReduce"], said
    assert found["Ranks"] is None, said
    # all ranks are the first one
    program = root / "runscripts/conda-python-distributed"
    text = program.read_text()
    program.write_text(text.replace("export RANK=$rank", "export RANK=0"))
    found, said = reasons("-n", "Ranks")
    assert "the ranks are [0, 0], not 0 to 1" in found["Ranks"], said
    found, said = reasons("-n", "Commands", MODULEPATH="/nowhere")
    assert f"{installed_once.WRITABLE} can't be loaded" in found["Commands"], said


def test_what_is_written(catalog, tmp_path, capsys):
    """I-05: partitions come from the profile; archived containers are left out; mistakes are named."""
    words = ["reframe", "--site", "here", "--catalog", str(catalog), "-o", str(tmp_path / "checks")]
    assert main([*words, "--partition", "gpus"]) == 0
    assert "checks of 1 module" in capsys.readouterr().err
    data = json.loads((tmp_path / "checks/data.json").read_text())
    expected = {"Example/1.0-writable": {"image": "example\\.sif", "python": True, "wrapper": "python", "venv": True}}
    assert data["modules"] == expected
    assert data["site"]["partitions"] == [
        {"name": "gpus", "access": ["--partition=gpus", "--qos=q", "--mem=480G"], "tasks": 8, "cpus": 7, "gpus": 8}
    ]
    assert main([*words, "--partition", "gpus"]) == 0
    # C-04
    (tmp_path / "checks/settings.py").write_text("edited")
    assert main(words) == 3
    assert "(settings.py): choose another directory, or replace them with --overwrite" in capsys.readouterr().err
    assert (tmp_path / "checks/settings.py").read_text() == "edited"
    assert main([*words, "--overwrite"]) == 0
    assert main([*words, "--partition", "none"]) == 3
    assert "unknown partition 'none'" in capsys.readouterr().err
    assert main([*words, "nothing-like-this"]) == 3
    assert "there is no container 'nothing-like-this'" in capsys.readouterr().err
