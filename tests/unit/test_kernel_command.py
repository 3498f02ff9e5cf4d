"""Lists of Jupyter kernels, and the start of one. No image is needed."""

import json
import os
import shutil
import sys
from types import SimpleNamespace

import pytest
from ebsif.cli import main
from ebsif.environments import kernels
from ebsif.installed import places
from jupyter_client import KernelManager
from prefixes import BASE, LATER, MINE
from support import CONTAINER_FILES, printed, write_program

START = CONTAINER_FILES / "runscripts/start-kernel.py"
NAME = MINE.replace("/", "-").lower()


@pytest.fixture
def module(eb_prefix, monkeypatch):
    """An installation with a kernel, an account with an empty list of kernels."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(eb_prefix.modules.parents[2] / "jupyter"))
    root = eb_prefix.install(MINE, packages=("ipykernel==7.0",), files=["interpreter/python"])
    kernel = root / "share/jupyter/kernels" / NAME
    kernel.mkdir(parents=True)
    argv = ["{resource_dir}/../../../../interpreter/python"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "metadata": {"ebsif": {"module": MINE}}}))
    return SimpleNamespace(root=root, kernel=kernel, mine=eb_prefix.modules.parents[2] / "jupyter/kernels")


def make_environment(venv, module):
    """Write what make-venv would of an environment of a module, as far as it is read here."""
    for folder in ("host-bin", "bin"):
        (venv / folder).mkdir(parents=True, exist_ok=True)
    (venv / "bin/activate").write_text(f"    _EBSIF_MODULE={module} _EBSIF_VENV={venv}\n")


def test_names_of_kernels(module, ebsif):
    """J-02: names as Jupyter knows them; none stands for a directory with other kernels."""
    assert main(["kernel", "install", MINE, "--user", "--name", "Torch"]) == 0
    assert [path.name for path in module.mine.iterdir()] == ["torch"]
    # in any order
    assert main(["kernel", "install", "--name", "torch", MINE]) == 0
    assert main(["kernel", "--user", "install", MINE, "--name", "torch"]) == 0
    for name in (".", "..", ".torch", "a/b"):
        assert "can't be the name of a kernel" in ebsif("kernel", "install", MINE, "--name", name, status=3).err
        assert main(["kernel", "remove", name]) == 3
    assert main(["kernel", "remove", "Torch"]) == 0
    assert not list(module.mine.iterdir())


def move_user_software(module, place, monkeypatch):
    """Let user software be in a directory of the person's own."""
    place.mkdir()
    (module.root / "user-software").rename(place / "user-software")
    monkeypatch.setenv("EBSIF_USER_SOFTWARE", str(place))


def test_kernels_with_the_same_name(module, ebsif, tmp_path, monkeypatch):
    """J-02: one of another program is neither replaced nor removed; that ours replaces one of ours is said."""
    other = module.mine / "torch"
    other.mkdir(parents=True)
    (other / "kernel.json").write_text('{"argv": ["python"]}')
    assert "is a kernel of another program" in ebsif("kernel", "install", MINE, "--name", "torch", status=3).err
    assert "has no kernel 'torch' of a module (there: none)" in ebsif("kernel", "remove", "torch", status=3).err
    # a directory that an interrupted installation has left
    (other / "kernel.json").unlink()
    assert main(["kernel", "install", MINE, "--name", "torch"]) == 0
    assert ebsif("kernel", "install", MINE, "--name", "torch").err.count("replaces") == 0
    move_user_software(module, tmp_path / "own", monkeypatch)
    said = ebsif("kernel", "install", MINE, "--name", "torch").err
    assert said.startswith(f"ebsif: this replaces the kernel torch of {MINE}\n")


def test_the_kernel_of_an_installation_is_linked(module, ebsif):
    """J-01, J-02: it is listed with the program that Jupyter starts; the installation keeps its kernel."""
    module.mine.mkdir(parents=True)
    link = module.mine / "linked"
    link.symlink_to(module.kernel)
    before = (module.kernel / "kernel.json").read_text()
    assert ebsif("kernel", "list").out == f"linked  {MINE}\n"
    assert f"  {link}\n" in ebsif("remove", MINE, "--dry-run").out
    assert main(["kernel", "remove", "linked"]) == 0
    assert not os.path.lexists(link)
    link.symlink_to(module.kernel)
    assert main(["kernel", "install", MINE, "--name", "linked"]) == 0
    assert not link.is_symlink()
    assert (module.kernel / "kernel.json").read_text() == before


def test_a_kernel_of_an_earlier_extension(module, eb_prefix, ebsif):
    """V-07: where the earlier extensions of a name are removed, its kernels start the newest one."""
    assert main(["kernel", "install", "mine", "--name", "mine"]) == 0
    newest = eb_prefix.install(LATER, packages=("ipykernel==7.0",), files=["interpreter/python"])
    assert f"the kernel mine starts {LATER} now" in ebsif("remove", "mine", "--older", "--yes").err
    assert not module.root.exists()
    (kernel,) = json.loads(ebsif("kernel", "list", "--json").out)
    assert (kernel["module"], kernel["program"]) == (LATER, str(newest / "interpreter/python"))


@pytest.fixture
def two(module, eb_prefix):
    """Two extensions of a name, whose module is loaded by that; their interpreters print their directory."""
    later = eb_prefix.install(LATER, packages=("ipykernel==7.0",))
    for root in (module.root, later):
        (root / "bin").mkdir()
        (root / "bin/make-venv").touch()
        write_program(root / "interpreter/python", f"#!/bin/sh\necho {root} $*\n")
    eb_prefix.alias(LATER, f"{BASE.partition('/')[2]}-mine")
    return SimpleNamespace(mine=module.mine, earlier=module.root, later=later)


def start(folder):
    """Start a kernel as Jupyter does; return what its interpreter prints."""
    argv = json.loads((folder / "kernel.json").read_text())["argv"]
    return printed(argv)


def test_a_kernel_of_the_newest_extension(two, tmp_path, ebsif):
    """V-07: by the name, a kernel starts the newest that is left, also below a prefix; by the date, that one."""
    prefix = tmp_path / "my lab"
    below = ["--prefix", str(prefix)]
    for name, what in (("m1", "mine"), ("dated", LATER)):
        assert main(["kernel", "install", what, "--name", name]) == 0
    assert main(["kernel", "install", "mine", "--name", "lab", *below]) == 0
    kernels_of_name = [two.mine / "m1", prefix / "share/jupyter/kernels/lab"]
    before = [start(folder) for folder in kernels_of_name]
    assert before == 2 * [f"{two.later} -m ipykernel_launcher -f {{connection_file}}\n"]
    assert "stop working" not in ebsif("remove", "mine", "--yes").err
    assert [path.name for path in two.mine.iterdir()] == ["m1"]
    assert [start(folder).split()[0] for folder in kernels_of_name] == 2 * [str(two.earlier)]
    assert main(["kernel", "list"]) == 0
    # the last one
    shown = ebsif("remove", "mine", "--yes").err
    assert "kernels of `ebsif kernel install --prefix` that were made with it stop working" in shown
    assert not list(two.mine.iterdir())
    said = " ".join(ebsif("kernel", "list", *below, status=1).out.split())
    assert (
        said == f"lab {BASE}-mine can't start: {str(two.earlier).rpartition('-')[0]} doesn't exist any more; "
        f"`ebsif kernel remove lab --prefix '{prefix}'` removes it"
    )


def test_a_kernel_that_a_person_has_edited(two, ebsif):
    """A variable in kernel.json is kept aside when the kernel is installed again, and only then."""
    for _ in range(2):
        assert main(["kernel", "install", "mine", "--name", "m1"]) == 0
    path = two.mine / "m1/kernel.json"
    assert sorted(one.name for one in path.parent.iterdir()) == ["kernel.json", "logo-64x64.png", "python"]
    written, spec = path.read_text(), json.loads(path.read_text())
    spec["env"]["OMP_NUM_THREADS"] = "4"
    path.write_text(json.dumps(spec))
    said = ebsif("kernel", "install", "mine", "--name", "m1").err
    assert f"the previous kernel.json is now {path}.old" in " ".join(said.split())
    assert path.read_text() == written
    assert json.loads((path.parent / "kernel.json.old").read_text()) == spec


def test_kernels_if_all_extensions_of_a_name_are_removed_at_once(two, ebsif):
    """V-07, J-02: what is listed before the question has the kernel once; removing earlier ones leaves it."""
    assert main(["kernel", "install", "mine", "--name", "m1"]) == 0
    for arguments, number in (([MINE, LATER], 1), ([MINE], 0), ([LATER], 0), (["mine", "--older"], 0)):
        said = ebsif("remove", *arguments, "--dry-run")
        assert said.out.count(f"  {two.mine / 'm1'}\n") == number
        assert ("stop working" in said.err) == bool(number)


def test_the_active_environment(module, eb_prefix, tmp_path, monkeypatch):
    """J-05, V-07: without a name, the kernel is that of the active environment, of the module that this loads."""
    venv = tmp_path / "env"
    make_environment(venv, f"{BASE}-mine")
    eb_prefix.alias(MINE, f"{BASE.partition('/')[2]}-mine")
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    monkeypatch.setenv("CONTAINERROOT", str(module.root))
    assert main(["kernel", "install"]) == 0
    (path,) = module.mine.glob("*/kernel.json")
    spec = json.loads(path.read_text())
    assert (spec["env"], spec["metadata"]["ebsif"]["module"]) == ({"EBSIF_VENV": str(venv)}, f"{BASE}-mine")


def test_an_environment_of_a_module_that_is_not_there(module, tmp_path, ebsif, monkeypatch):
    """J-05: the environment's module is named, and no other one with a similar name is taken."""
    venv = tmp_path / "env"
    make_environment(venv, MINE)
    assert main(["kernel", "install", str(venv)]) == 0
    # in EasyBuild's prefix, which needn't be on MODULEPATH
    with monkeypatch.context() as patch:
        patch.setenv("MODULEPATH", "/nowhere")
        assert main(["kernel", "install", str(venv)]) == 0
    for name in ("PyTorch/2.13.0", "PyTorch/latest"):
        make_environment(venv, name)
        said = " ".join(ebsif("kernel", "install", str(venv), status=3).err.split())
        assert f"{venv} is an environment of the module {name}: no container module '{name}' is installed here" in said
        assert said.endswith(f"To correct the name: extend-venv-activate {venv} MODULE")


def test_what_jupyter_replaces(module, tmp_path, monkeypatch, ebsif):
    """J-01, J-05: paths with braces reach the kernel unchanged; a path with $, which can't, is named."""
    odd = tmp_path / "{prefix} {x y} {}"
    make_environment(odd, MINE)
    (module.root / "user-software").rename(odd / "user-software")
    monkeypatch.setenv("EBSIF_USER_SOFTWARE", str(odd))
    monkeypatch.setenv("VIRTUAL_ENV", str(odd))
    monkeypatch.setenv("CONTAINERROOT", str(module.root))
    assert main(["kernel", "install", "--name", "odd"]) == 0
    manager = KernelManager(kernel_name="odd", connection_file=str(tmp_path / "file.json"))
    command = f"{module.root}/interpreter/python -m ipykernel_launcher -f {tmp_path}/file.json"
    assert manager.format_kernel_cmd() == command.split()
    assert manager.kernel_spec.env == {"EBSIF_VENV": str(odd), "EBSIF_USER_SOFTWARE": str(odd)}
    odd.rename(tmp_path / "$HOME")
    monkeypatch.setenv("EBSIF_USER_SOFTWARE", str(tmp_path / "$HOME"))
    said = " ".join(ebsif("kernel", "install", MINE, "--name", "other", status=3).err.split())
    assert f"Jupyter may replace the $ in {tmp_path}/$HOME, " in said
    assert not (module.mine / "other").exists()


def test_the_list_for_programs(module, tmp_path, monkeypatch, ebsif):
    """J-02: the list in JSON has every path, also the one because of which a kernel can't start."""
    assert json.loads(ebsif("kernel", "list", "--json").out) == []
    own = tmp_path / "own"
    move_user_software(module, own, monkeypatch)
    assert main(["kernel", "install", MINE, "--name", "torch"]) == 0
    shutil.rmtree(own)
    (found,) = json.loads(ebsif("kernel", "list", "--json", status=1).out)
    paths = {"folder": str(module.mine / "torch"), "program": str(module.root / "interpreter/python")}
    gone = {"user_software": str(own), "missing": str(own), "environment": None}
    assert found == {"name": "torch", "module": MINE, **paths, **gone}
    assert "--json is for list, not for remove" in ebsif("kernel", "remove", "torch", "--json", status=2).err


def test_the_command_that_adds_ipykernel(eb_prefix, ebsif):
    """J-08: it changes an extension, and gives the extension of another module a name."""
    extension = "# Written by `ebsif extend`: yours to change.\n"
    for module, text, command in (
        (BASE, "", f"ebsif extend {BASE} --name jupyter --add ipykernel"),
        (MINE, extension, f"ebsif extend {MINE} --add ipykernel"),
    ):
        eb_prefix.install(module, text=text, files=["interpreter/python"])
        assert ebsif("kernel", "install", module, status=3).err.endswith(f"To add it: {command}\n")


def test_the_commands_that_add_ipykernel_to_user_software(tmp_path):
    """J-08: the module is loaded again if it would not use the directory; files that hide it are removed."""
    squashfs = tmp_path / "user-software.squashfs"
    pip = "start-shell -c 'pip install ipykernel'"
    base = places.Installation(tmp_path, BASE)
    reload = f"module unload {BASE}; module load {BASE}"
    unpacked = f"module load {BASE}; unmake-squashfs && rm -f {squashfs}; {reload}; {pip}"
    assert kernels.adding(base, tmp_path) == unpacked
    (tmp_path / "user-software").mkdir()
    assert kernels.adding(base, tmp_path) == f"module load {BASE}; {pip}"
    squashfs.touch()
    assert kernels.adding(base, tmp_path) == unpacked


def test_modules_of_the_kernel(tmp_path):
    """J-01: a kernel finds its packages if Python leaves the directory of the script out by itself."""
    (tmp_path / "ipykernel").mkdir()
    (tmp_path / "ipykernel/__init__.py").touch()
    (tmp_path / "ipykernel_launcher.py").write_text("import ipykernel, sys; print(sys.argv[1:], *sys.path)")
    for safe in ("", "1"):
        environment = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": safe, "JPY_PARENT_PID": str(os.getpid())}
        said = printed([sys.executable, START, "-f", "x"], env=environment)
        assert said.startswith(f"['-f', 'x'] {tmp_path} ")
        assert str(START.parent) not in said
