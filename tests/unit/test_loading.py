"""Scripts that need no loaded module. No image is needed."""

import shutil
import subprocess

import pytest
from easybuild.easyblocks.generic.container.shellmodule import ENVIRONMENT, ShellModule
from support import CONTAINER_FILES


@pytest.fixture
def root(tmp_path):
    """An installation whose module sets two variables."""
    folder = tmp_path / "root"
    shutil.copytree(CONTAINER_FILES / "share/ebsif", folder / "share/ebsif")
    shutil.copytree(CONTAINER_FILES / "bin", folder / "bin")
    module = ShellModule(str(folder))
    text = module.setenv("EBSIF_LOADED_MODULE", "Mine/1.0") + module.setenv("CONTAINERROOT", str(folder))
    (folder / ENVIRONMENT).write_text(module.whole(text))
    return folder


def test_the_module_of_an_older_version_is_loaded(root):
    """J-01: what only that module has set has no effect; values that differ for the runtimes are the user's."""
    old = {"EBSIF_LOADED_MODULE": "Old/1.0", "CONTAINERROOT": "/old", "EBSIF_ENTRY_POINT": "/entry.sh",
           "EBSIF_OWN_MODULES": "X", "EBSIF_MOUNTED_USER_SOFTWARE": "/old/user-software", "EBSIF_GPU": "rocm"}
    for prefix in ("APPTAINER", "SINGULARITY"):
        old.update({f"{prefix}_OVERLAY": "/old/masks:ro", f"{prefix}_ROCM": "1", f"{prefix}ENV_X": "1"})
    old["APPTAINERENV_MINE"] = "1"
    result = subprocess.run([root / "bin/with-module", "env"], capture_output=True, text=True, check=True,
                            env={"PATH": "/usr/bin:/bin", **old})
    left = dict(line.split("=", 1) for line in result.stdout.splitlines())
    assert {name: left[name] for name in old if name in left} == {
        "EBSIF_LOADED_MODULE": "Mine/1.0", "CONTAINERROOT": str(root), "APPTAINERENV_MINE": "1"}


def test_an_environment_of_another_module(root, tmp_path):
    """J-05: the message names both modules."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "host-bin").mkdir()
    before = (root / "share/ebsif/activate-before.sh").read_text()
    (venv / "bin/activate").write_text(f"_EBSIF_MODULE=Other/1.0 _EBSIF_VENV={venv}\n{before}")
    result = subprocess.run([root / "bin/with-module", "echo", "x"], capture_output=True, text=True, check=False,
                            env={"PATH": "/usr/bin:/bin", "EBSIF_VENV": str(venv)})
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"with-module: the environment {venv} belongs to the module Other/1.0, not to Mine/1.0\n"


def test_no_program_on_path(root):
    """J-01: where no program finds out the size of the image, nobody is told that the image has changed."""
    image = root / "a.sif"
    image.write_text("12345")
    module = ShellModule(str(root))
    text = module.declare("image", str(image)) + module.setenv("CONTAINERROOT", str(root))
    for size, path, said in ((5, "/usr/bin", ""), (6, "/usr/bin", "changed"), (6, "/nowhere", "")):
        notice = module.when(module.has_other_size("image", size), module.notice_on_load("changed"))
        (root / ENVIRONMENT).write_text(module.whole(text + notice))
        result = subprocess.run(["/bin/bash", "-c", f"source '{root / ENVIRONMENT}'"], capture_output=True, text=True,
                                check=True, env={"PATH": path})
        assert result.stderr.endswith(f"{said}\n" if said else "") and bool(result.stderr) == bool(said)
