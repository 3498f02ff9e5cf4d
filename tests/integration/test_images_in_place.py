"""Modules for images where they lie: the commands of docs/images-in-place.md, and its workflow."""

import hashlib
import json
import os
import shutil
import subprocess

import pytest
import yaml
from parts import example_site
from support import CHECKOUT, blocks

WORKFLOW = CHECKOUT / "docs/examples/modules.yml"
APPL = "/appl/"


@pytest.fixture
def center(tmp_path, base_image):
    """A site with a modules tool, and a directory for what the page has in /appl."""
    site = example_site(tmp_path, base_image)
    site.appl = tmp_path / "appl"
    (site.appl / "containers").mkdir(parents=True)
    return site


def put(center, small_image, name):
    """Put an image where the center has them, with what its release says beside it."""
    path = center.appl / "containers" / f"{name}.sif"
    shutil.copy(small_image("busybox"), path)
    path.with_suffix(".md").write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    path.with_suffix(".json").write_text(json.dumps({"pip": [{"name": "torch", "version": "2.11.0"}]}))
    return path


def steps(job):
    """Return the commands of a job of the workflow, without those that set up the machine."""
    content = yaml.safe_load(WORKFLOW.read_text().replace("\non:", "\n'on':"))
    return [step["run"] for step in content["jobs"][job]["steps"] if "run" in step and "pip install" not in step["run"]]


def run_steps(center, job, check=True):
    """Run the commands of a job as GitHub does, each in a shell of its own; return what they print."""
    said, environment = "", yaml.safe_load(WORKFLOW.read_text())["env"]
    for step in steps(job):
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step]
        done = center.run(
            command, check, **{name: value.replace(APPL, f"{center.appl}/") for name, value in environment.items()}
        )
        said += done.stdout + done.stderr
    assert "Traceback" not in said
    return said


def git(center, *words):
    """Run git in the repository of the center; return what it prints."""
    return center.run(["git", "-c", "user.name=x", "-c", "user.email=x@localhost", *words]).stdout


def test_the_page_and_its_workflow(center, small_image):
    """V-08: docs/images-in-place.md as it stands; a record in a pull request becomes a module, again if it changes."""
    first = put(center, small_image, "alpha-1.0")
    making, updating = (text.replace(APPL, f"{center.appl}/") for text in blocks("docs/images-in-place.md"))
    git(center, "init", "--quiet", "--bare", "--initial-branch=main", "remote.git")
    git(center, "init", "--quiet", "--initial-branch=main")
    git(center, "remote", "add", "origin", "remote.git")
    said = center.bash(
        f"set -e\n{making}\nmodule use $EASYBUILD_PREFIX/modules/all\nmodule load alpha/1.0\n"
        "echo image $SIF; singularity exec $SIF cat /etc/hostname >/dev/null"
    )
    assert f"\nimage {first}\n" in said.stdout
    record = center.work / "mysite/containers/alpha.yaml"
    # what the release states, and the image stays where the profile says
    assert hashlib.sha256(first.read_bytes()).hexdigest() in record.read_text()
    assert "image" not in yaml.safe_load(record.read_text())["containers"][0]
    assert not list((center.appl / "modules").rglob("*.sif"))
    git(center, "add", "mysite")
    git(center, "commit", "--quiet", "--message", "first")
    # a new image; the commands for cron
    put(center, small_image, "alpha-1.1")
    # the nightly job proposes its record as a branch
    run_steps(center, "update")
    assert "version: 1.1" in git(center, "show", "origin/new-images:mysite/containers/alpha.yaml")
    # the pull request shows what would be installed
    said = run_steps(center, "check")
    assert "alpha/1.1 would be installed from " in said and "alpha/1.0 would" not in said
    modules = center.appl / "modules/modules/all/alpha"
    assert [path.name for path in modules.iterdir()] == ["1.0.lua"]
    # merged: installed, and again only what has changed
    run_steps(center, "install")
    times = {version: (modules / f"{version}.lua").stat().st_mtime_ns for version in ("1.0", "1.1")}
    record.write_text(record.read_text().replace("version: 1.1", "version: 1.1\n    warnings: [read this]"))
    said = center.bash(f"set -e\nexport EBSIF_SITE=mysite EASYBUILD_PREFIX={center.appl}/modules\n{updating}")
    assert "2 containers in the catalog, 1 installed now\n" in said.stderr
    assert (modules / "1.0.lua").stat().st_mtime_ns == times["1.0"]
    assert "read this" in (modules / "1.1.lua").read_text()


def test_an_image_that_was_moved(center, small_image):
    """Module and doctor say what to correct in the easyconfig; a rebuild alone would look where it was."""
    path = put(center, small_image, "alpha-1.0")
    easyconfig = center.easyconfig(
        f"easyblock = 'ContainerInstall'\nsources = ['{path.name}']\n"
        f"image = 'central'\nimage_dirs = ['{path.parent}']\ninit = 'none'\n"
    )
    center.eb(easyconfig, f"--sourcepath={path.parent}")
    moved = center.appl / "elsewhere" / path.name
    moved.parent.mkdir()
    path.rename(moved)
    load = "module load Example && singularity exec $SIF true && echo $SIF"
    said = "".join(center.bash(load, check=False).stderr.split())
    assert "Ifitwasmoved,correctitsdirectoryintheeasyconfig,andreinstallthemodule" in said
    copy = next((center.prefix / "eb/software/Example").glob("*/easybuild/*.eb"))
    doctor = center.run(["ebsif", "doctor", "--installed", str(center.prefix / "eb")], check=False)
    assert doctor.returncode == 1 and f"correct its directory in {copy} (" in " ".join(doctor.stdout.split())
    copy.write_text(copy.read_text().replace(str(path.parent), str(moved.parent)))
    center.eb(copy, "--rebuild", f"--sourcepath={moved.parent}")
    assert center.bash(load).stdout.strip() == str(moved)


def test_the_workflow_is_valid():
    """V-08: its keys are those of GitHub Actions, and each job runs for one event on a machine of one's own."""
    content = yaml.safe_load(WORKFLOW.read_text().replace("\non:", "\n'on':"))
    assert set(content) == {"name", "on", "permissions", "env", "defaults", "concurrency", "jobs"}
    assert set(content["on"]) == {"pull_request", "push", "schedule"}
    assert {job["if"].split("'")[1] for job in content["jobs"].values()} == set(content["on"])
    for name, job in content["jobs"].items():
        assert set(job) == {"if", "runs-on", "steps"} and job["runs-on"][0] == "self-hosted"
        assert job["steps"][0] == {"uses": "actions/checkout@v4"}
        assert all(set(step) == {"name", "run"} for step in job["steps"][1:]) and steps(name)
        for step in job["steps"][1:]:
            subprocess.run(["bash", "-n", "-c", step["run"]], check=True, env=os.environ)
