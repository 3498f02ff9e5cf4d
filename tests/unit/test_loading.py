"""Scripts that need no loaded module. No image is needed."""

import os
import shutil
import subprocess

import pytest
from easybuild.easyblocks.generic.container.modulefile import LEFT_BEHIND
from easybuild.easyblocks.generic.container.shellmodule import ENVIRONMENT, ShellGenerator, ShellModule
from support import CONTAINER_FILES


@pytest.fixture
def root(tmp_path):
    """An installation whose module sets two variables."""
    return install(tmp_path / "root", "Mine/1.0")


def install(folder, name, statements=""):
    """Write an installation with these statements in its module; return its directory."""
    for part in ("share/ebsif", "bin", "interpreter", "runscripts"):
        shutil.copytree(CONTAINER_FILES / part, folder / part)
    (folder / "share/ebsif/kernel").chmod(0o755)
    (folder / "interpreter/python").chmod(0o755)
    (folder / "a.sif").touch()
    module = ShellModule(str(folder))
    text = module.call("forget", *LEFT_BEHIND) + module.setenv("EBSIF_LOADED_MODULE", name)
    text += module.setenv("CONTAINERROOT", str(folder)) + module.setenv("SIF", str(folder / "a.sif"))
    text += module.declare_list("binds", "_BINDPATH", ",") + module.add("binds", f"{folder}/runscripts:/runscripts")
    text += module.put_both_from("_BINDPATH", "binds") + statements
    (folder / ENVIRONMENT).write_text(module.whole(text))
    return folder


class Runtime:
    """A runtime that prints its environment and its arguments, under either name."""

    def __init__(self, folder):
        """Write it."""
        self.folder = folder
        for name in ("apptainer", "singularity"):
            (folder / name).mkdir(parents=True)
            program = folder / name / name
            program.write_text('#!/bin/sh\n/usr/bin/env -0\nprintf "%s\\0" "$0" "$@"\n')
            program.chmod(0o755)
            # what else scripts need, without a real runtime
            for tool in ("readlink", "stat"):
                (folder / name / tool).symlink_to(shutil.which(tool))

    def run(self, *command, name="apptainer", **variables):
        """Run a command; return the environment (dict) and the arguments (list) of the runtime that it starts."""
        said = subprocess.run([str(one) for one in command], capture_output=True, text=True, check=False,
                              env={"PATH": f"{self.folder}/{name}", **variables})
        assert not said.returncode, said.stderr
        words = said.stdout.split("\0")[:-1]
        start = words.index(f"{self.folder}/{name}/{name}")
        return dict(one.split("=", 1) for one in words[:start]), words[start + 1 :]


@pytest.fixture
def runtime(tmp_path):
    """A runtime."""
    return Runtime(tmp_path / "runtimes")


@pytest.mark.parametrize("name", ["apptainer", "singularity"])
def test_binds_of_a_kernel(root, runtime, tmp_path, name):
    """J-01: by either name of the runtime the same: those of the person, of the module, and of the connection."""
    own = f"{root}/runscripts:/runscripts"

    def binds(**variables):
        environment, _ = runtime.run(root / "share/ebsif/kernel", "-f", "/run/a,b/x.json", name=name, **variables)
        assert environment["APPTAINER_BINDPATH"] == environment["SINGULARITY_BINDPATH"]
        return environment["APPTAINER_BINDPATH"]

    both = [f"{one}_BINDPATH" for one in ("APPTAINER", "SINGULARITY")]
    assert binds() == f"{own},/run/a\\,b"
    assert binds(APPTAINER_BINDPATH="/one", SINGULARITY_BINDPATH="/two") == f"/one,/two,{own},/run/a\\,b"
    # the module is loaded, and one or both have been changed since
    loaded = {"EBSIF_LOADED_MODULE": "Mine/1.0", "CONTAINERROOT": str(root), "SIF": str(root / "a.sif")}
    for first, second in ((own, f"{own},/x"), (f"{own},/x", own), (f"{own},/x", ""), ("", f"{own},/x")):
        assert binds(**loaded, **dict(zip(both, (first, second)))) == f"{own},/x,/run/a\\,b"
    assert binds(**loaded, **dict(zip(both, ("/x", "/y")))) == "/x,/y,/run/a\\,b"
    # those of another module, which the person has added to
    other = install(tmp_path / "other", "Other/1.0", ShellModule("/").setenv("EBSIF_GPU", "--rocm /dev/kfd"))
    loaded.update({"EBSIF_LOADED_MODULE": "Other/1.0", "CONTAINERROOT": str(other), "EBSIF_GPU": "--rocm /dev/kfd"})
    theirs = dict.fromkeys(both, f"/one,{other}/runscripts:/runscripts")
    notes = {f"__EBSIF_EARLIER_{one}": ":/one" for one in both}
    for gone in (False, True):
        assert binds(**loaded, **theirs, **notes) == f"/one,{own},/run/a\\,b"
        assert binds(**loaded, **theirs) == f"{own},/run/a\\,b"
        if not gone:
            shutil.rmtree(other)


def test_a_kernel_of_an_editor(root, runtime):
    """J-03, J-04: one that an editor starts with the interpreter is started like those of Jupyter, and ends with it."""
    python = root / "interpreter/python"
    environment, arguments = runtime.run(
        python, "-X", "frozen_modules=off", "-B", "-m", "ipykernel_launcher", "--ip=127.0.0.1", "--f=/run/x/y.json")
    start = arguments.index("/runscripts/conda-python-simple")
    assert arguments[start + 1 :] == ["-X", "frozen_modules=off", "-B", "/runscripts/start-kernel.py",
                                      "--ip=127.0.0.1", "--f=/run/x/y.json"]
    assert environment["APPTAINER_BINDPATH"].endswith(",/run/x")
    assert environment["JPY_PARENT_PID"] == str(os.getpid())
    for own in ("0", "7"):
        environment, _ = runtime.run(python, "-m", "ipykernel_launcher", "-f", "x", JPY_PARENT_PID=own)
        assert environment["JPY_PARENT_PID"] == own
    for words in (("-m", "ipykernel", "--version"), ("-c", "pass", "-m", "ipykernel_launcher")):
        environment, arguments = runtime.run(python, *words)
        assert "JPY_PARENT_PID" not in environment and arguments[-len(words) :] == list(words)


def test_options_of_a_kernel(root, runtime):
    """J-05: the user software of the kernel counts, not that of Jupyter; the value is not changed."""
    environment, arguments = runtime.run(root / "share/ebsif/kernel", "--user-software", "/a $HOME {x}", "-f", "x",
                                         EBSIF_USER_SOFTWARE="/other")
    assert environment["EBSIF_USER_SOFTWARE"] == "/a $HOME {x}"
    assert arguments[-2:] == ["-f", "x"]


def test_values_that_are_pushed(tmp_path):
    """J-01: a value of 'modextravars' with pushenv replaces the person's, which comes back afterwards."""
    generator = ShellGenerator("/root")
    generator.define_env_var = lambda _: True
    text = generator.set_environment("PUSHED", {"value": "$BASE/x", "pushenv": True})
    root = install(tmp_path / "root", "Mine/1.0", text)
    show = f"source {root / ENVIRONMENT} load; echo $PUSHED; source {root / ENVIRONMENT} unload; echo ${{PUSHED-none}}"
    for own, after in (({}, "none"), ({"PUSHED": "mine"}, "mine")):
        said = subprocess.run(["bash", "-c", show], capture_output=True, text=True, check=True,
                              env={"PATH": "/usr/bin:/bin", "BASE": "/base", **own}).stdout
        assert said.split() == ["/base/x", after]


@pytest.mark.parametrize(("named", "loaded"), [
    ("Mine/1.0", "Mine/.1.0"), ("Mine/.1.0", "Mine/1.0"), ("Mine", "Mine/1.0"), ("Mine", "Mine/.1.0")])
def test_an_environment_of_a_hidden_module(tmp_path, runtime, named, loaded):
    """J-05: a kernel of an environment starts, although its module has been hidden, or made visible, since."""
    root, venv = install(tmp_path / "root", loaded), tmp_path / "venv"
    (venv / "host-bin").mkdir(parents=True)
    (venv / "host-bin/.run").touch(0o755)
    (venv / "bin").mkdir()
    (venv / "bin/activate").write_text(f"VIRTUAL_ENV={venv}\nexport VIRTUAL_ENV\ndeactivate() {{ :; }}\n")
    subprocess.run([root / "bin/extend-venv-activate", venv, named], check=True, env={"PATH": "/usr/bin:/bin"})
    environment, _ = runtime.run(root / "share/ebsif/kernel", "--venv", venv, "-f", "x")
    assert environment["APPTAINERENV_VIRTUAL_ENV"] == str(venv)


def test_the_module_of_an_older_version_is_loaded(root):
    """J-01: what only that module has set has no effect; values that differ for the runtimes are the user's."""
    old = {"EBSIF_LOADED_MODULE": "Old/1.0", "CONTAINERROOT": "/old", "EBSIF_ENTRY_POINT": "/entry.sh",
           "EBSIF_OWN_MODULES": "X", "EBSIF_MOUNTED_USER_SOFTWARE": "/old/user-software",
           "EBSIF_GPU": "--rocm /dev/kfd"}
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
