"""The checks of installed modules that need other hardware than this machine has, from what would be found there."""

import importlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.host.loader import Loader
from easybuild.easyblocks.generic.container.imageprograms import IMPORTS, read_program
from easybuild.easyblocks.generic.container.missing import TOOLS
from easybuild.easyblocks.generic.container.packages import GPU_PACKAGES
from easybuild.easyblocks.generic.container.sitevalues import CACHES, GPU_KINDS
from ebsif.catalog import reading
from ebsif.catalog import site as sites
from ebsif.images import inspection
from ebsif.installed import places, search
from ebsif.installed.health import examination, files, hardware, hostfiles, machine, nodes, running
from ebsif.installed.health.machine import Machine
from ebsif.installed.health.subject import Subject
from ebsif.installed.softwarestate import SoftwareState
from ebsif.render import easyconfig
from ebsif.report.findings import ERROR, NOTE, OK, WARNING, Finding, print_findings
from support import CONTAINER_FILES, add_package, printed, write_program

LUMI = sites.read("lumi")
sys.path.append(str(CONTAINER_FILES / "site-packages"))
imports = importlib.import_module("ebsif_imports")


@pytest.fixture
def subject(eb_prefix, tmp_path):
    """A function that returns a module with these packages, and what its container says, on a node with these files."""

    def get(image=(), user=(), facts=None, python=None, site=LUMI, node=None, **record):
        root = eb_prefix.install("Example/1.0-x", user, image_packages=list(image), **record)
        for name, text in (node or {}).items():
            (tmp_path / "node" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "node" / name).write_text(text)
        one = Subject(places.of_directory(root), Machine(tmp_path / "node"), site)
        one.__dict__["software"] = SoftwareState("not packed", True) if user else None
        one.image_facts, one.python = dict(facts or {}), dict(python or {})
        return one

    return get


def problems(check, one):
    """Return the texts of a check by level."""
    return [(finding.level, finding.text) for finding in check(one)]


@pytest.mark.parametrize(
    ("image", "user", "expected"),
    [
        (["ray==2.51.2"], [], ["Ray 2.51.2 has no tokens (2.52 has), so `ebsif job` starts it only on nodes that the"]),
        (["ray==2.51.2", "vllm==0.9.1"], ["ray==2.60.0"], ["vLLM before 0.10.2 has no socket file, and asks for its"]),
        (["vllm==0.25.0+lumi"], [], []),
        # as start-ray.py says in the job
        (["ray==2.52.0rc1"], [], []),
    ],
)
def test_servers_that_others_could_use(subject, image, user, expected):
    """Y-02: doctor says which packages are too old to be closed in jobs."""
    found = problems(running.servers, subject(image, user))
    assert [level for level, _ in found] == [NOTE] * len(expected)
    assert all(text.startswith(begin) for (_, text), begin in zip(found, expected))


@pytest.mark.parametrize(
    ("image", "facts", "driver", "level"),
    [
        (["torch==2.7.1+rocm6.2.4"], {}, ["6.1", "7.0"], None),
        (["torch==2.7.1+rocm6.2.4"], {}, ["6.3", "7.0"], ERROR),
        (["torch==2.10+rocm7.1"], {}, ["6.1", "7.0"], ERROR),
        # the image's own version counts, not the label
        (["torch==2.7.1+rocm6.2.4"], {"rocm": "6.3.4"}, ["6.3", "7.0"], None),
        ([], {"rocm": "5.6.1"}, ["6.1", "7.0"], ERROR),
        ([], {}, ["6.1", "7.0"], None),
        # all numbers that are known count
        ([], {"rocm": "6.2.1"}, ["6.2.4", "7.2"], ERROR),
        ([], {"rocm": "7.2.3"}, ["6.2", "7.2.1"], ERROR),
        ([], {"rocm": "7.2.3"}, ["6.2", "7"], None),
        (["torch==2+rocm6.2"], {}, ["6.2.4", "7.2"], None),
        (["torch==2.7.1+rocm6.2.4"], {}, None, None),
    ],
)
def test_the_driver_of_rocm(subject, image, facts, driver, level):
    """S001-18: an image's ROCm is compared with the range in the site's profile; both ends belong to it."""
    profile = LUMI.model_copy(update={"driver_rocm": driver})
    found = problems(hardware.driver, subject(image, facts=facts, site=profile))
    assert [one[0] for one in found] == ([level] if level else [])
    assert not found or "ebsif upgrade" in found[0][1]
    # `ebsif check` and `render` say the same of a record with this version
    version = facts.get("rocm") or "".join(image).partition("+rocm")[2]
    record = SimpleNamespace(site=profile, components={"rocm": version} if version else {}, gpu_kind="rocm")
    assert bool(easyconfig.driver_problem(record)) == bool(level)


AMD = {"sys/module/amdgpu/version": "30.30.2\n"}
NVIDIA = {"proc/driver/nvidia/version": "NVRM version: NVIDIA Kernel Module  550.54.15  x\n"}


@pytest.mark.parametrize(
    ("image", "node", "expected"),
    [
        ("torch==2+rocm7.0", AMD, None),
        ("torch==2+rocm6.2", AMD, "driver 30.30.2 of this node, which supports 6.3"),
        ("torch==2+cu126", NVIDIA, None),
        ("torch==2+cu130", NVIDIA, "CUDA 13.0 needs driver 580 or newer, and this node has 550.54.15"),
    ],
)
def test_the_driver_of_this_node(subject, image, node, expected):
    """S001-18: without a profile, the driver of the node is looked up in a table with sources."""
    found = problems(hardware.driver, subject([image], site=None, node=node))
    assert (found[0][0] == ERROR and expected in found[0][1]) if expected else not found


@pytest.mark.parametrize(
    ("image", "user", "expected"),
    [
        (["torch==2+rocm6.2"], ["nvidia-nccl-cu12==2", "einops==1"], "ROCm, but user software has packages for CUDA"),
        (["torch==2+rocm6.2", "flash-attn==2+cu126"], [], "ROCm, but the image has"),
        (["torch==2+cu126", "nvidia-nccl-cu12==2"], ["cupy-rocm-5-0==13"], "CUDA, but user software has packages for"),
        (["torch==2+cu126", "nvidia-nccl-cu12==2", "cupy-cuda12x==13"], ["flash-attn==2+cu126"], None),
        # a third-party image without a label on a ROCm site (S002-19)
        (["torch==2+rocm6.2"], ["jax-cuda12-plugin==0.7"], "(jax-cuda12-plugin 0.7)"),
        # XGBoost works without NCCL
        (["torch==2+rocm6.2"], ["nvidia-nccl-cu12==2", "xgboost==3"], None),
        (["torch==2+cpu"], ["nvidia-nccl-cu12==2"], None),
    ],
)
def test_packages_for_another_gpu(subject, image, user, expected):
    """S002-19, I-04: CUDA wheels in a ROCm container, and the reverse."""
    found = problems(files.wheels, subject(image, user))
    assert (found[0][0] == WARNING and expected in found[0][1]) if expected else not found


def test_how_to_remove_packages(subject):
    """I-04: the advice names a command for extensions and unpacked user software, and the requirements for others."""
    one = subject(["torch==2+rocm6.2"], ["nvidia-nccl-cu12==2", "jax-cuda12-pjrt==1"])
    both = "jax-cuda12-pjrt nvidia-nccl-cu12"
    one.__dict__["software"] = SoftwareState("not packed", True)
    assert f"start-shell -c 'pip uninstall -y {both}'`" in problems(files.wheels, one)[0][1]
    one.__dict__["software"] = SoftwareState("packed", False)
    # not the copy in the installation
    assert f"in {one.easyconfig}, and run `eb --rebuild {one.easyconfig}`" in problems(files.wheels, one)[0][1]
    one.installation.__dict__["extension"] = ("mine", "20261122")
    # what others need can't be removed alone
    for asked, advice in (
        ("nvidia_nccl_cu12>1\njax-cuda12-pjrt==1\n", f"remove them with `{{}} {both} "),
        ("nvidia-nccl-cu12\njax\n", "remove them with `{} nvidia-nccl-cu12 "),
        ("jax\n", "remove the packages that need them with `{} PACKAGE "),
    ):
        one.record.stages = [{"name": "mine", "requirements": asked}]
        assert f"{advice.format(f'ebsif extend {one.module} --remove')}--rebuild`" in problems(files.wheels, one)[0][1]


PLUGIN = {"network-plugin": ["/opt/lib/librccl-net.so"]}
NEEDED = {"/opt/lib/librccl-net.so": [1, 8]}
OLDER, NEWER = ({"version": "1.15", "interface": [1, 5]}, {"version": "2.1", "interface": [1, 8]})


@pytest.mark.parametrize(
    ("image", "facts", "python", "expected"),
    [
        (["torch==2+rocm6.2"], PLUGIN, {}, None),
        (["torch==2+cpu"], {}, {}, None),
        (["torch==2+rocm6.2"], {}, {}, (WARNING, "RCCL has no plugin for Slingshot")),
        # S004-05: a stock NCCL
        (["torch==2+cu126", "nvidia-nccl-cu12==2.26"], {}, {}, (WARNING, "nvidia-nccl-cu12 2.26 has no plugin")),
        # a site with GPUs, but a container without RCCL; one with it, but without torch
        (["numpy==2"], {}, {}, None),
        (["torch==2"], {}, {"torch": {}}, None),
        ([], {"network-library": ["/opt/rocm/lib/librccl.so.1"]}, {}, (WARNING, "RCCL has no plugin")),
        # the NCCL of XGBoost
        (["torch==2+rocm6.2", "nvidia-nccl-cu12==2.26"], {}, {}, (WARNING, "RCCL has no plugin")),
        # S004-14: built for another libfabric
        (["torch==2+rocm6.2"], PLUGIN, {"fabric": OLDER, "needed": NEEDED}, (ERROR, "needs a newer libfabric than 1")),
        (["torch==2+rocm6.2"], PLUGIN, {"fabric": NEWER, "needed": NEEDED}, None),
    ],
)
def test_the_plugin(subject, image, facts, python, expected):
    """S002-19, S004-05, S004-14: no plugin, a stock NCCL, a plugin for another libfabric."""
    one = subject(image, facts=facts, python=python)
    found = problems(hardware.plugin, one)
    assert (found[0][0] == expected[0] and expected[1] in found[0][1]) if expected else not found
    # without a high-speed network
    assert not problems(hardware.plugin, replace(one, site=None))


def test_a_stock_nccl_of_conda(subject):
    """S004-05: conda-forge's NCCL is in the record."""
    one = subject(["torch==2+cu126"], conda_packages={"/opt/conda": ["nccl==2.21", "x==1"]})
    ((level, text),) = problems(hardware.plugin, one)
    assert level == WARNING and text.startswith("nccl 2.21 (Conda) has no plugin")


@pytest.mark.parametrize(
    ("library", "site", "found"),
    [
        ("Open MPI v4.1.6, package: x", LUMI, True),
        ("Open MPI v4.1.6", None, False),
        ("MPICH Version: 4.3", LUMI, False),
        ("MPI VERSION : CRAY MPICH version 8.1.29", LUMI, False),
        (None, LUMI, False),
    ],
)
def test_the_mpi_of_mpi4py(subject, library, site, found):
    """S002-19: mpi4py with another ABI than MPICH's, where Cray MPICH should replace it."""
    assert bool(problems(hardware.mpi, subject(python={"mpi": library}, site=site))) is found


@pytest.mark.parametrize(("torch", "expected"), [({"mpi": False}, True), ({"mpi": True}, False), (None, False)])
def test_the_mpi_backend(subject, torch, expected):
    """S003-03, S004-13: what torch says of its MPI backend is a note."""
    found = problems(hardware.mpi_backend, subject(python={"torch": torch}))
    assert bool(found) is expected
    assert not found or (found[0][0] == NOTE and "MPI backend not available" in found[0][1])


def test_the_provider(subject):
    """S001-18: on a node with Slingshot, libfabric without the library of its provider."""
    facts = {"fabric": {"libfabric.so.1": True, "libcxi.so.1": False}}
    one = subject(python=facts, node={"sys/class/cxi/cxi0/x": ""})
    ((level, text),) = problems(hardware.provider, one)
    assert level == ERROR and "libcxi.so.1 isn't in the container: add the host's libcxi.so.1 to `binds`" in text
    assert not problems(hardware.provider, replace(one, machine=Machine(Path("/nowhere"))))


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("libcxi.so.1", "because libcxi.so.1 needs libdep.so.3, which isn't in the container: add the host's libdep"),
        ("libfabric.so.1", "libfabric.so.1 needs libdep.so.3, which isn't in the container: add the host's libdep"),
        ("", "because libcxi.so.1 isn't in the container"),
    ],
)
def test_a_library_that_lacks_another(subject, tmp_path, broken, expected):
    """K-02, field 0a: a bound library whose dependency is missing isn't said to be missing; in the loader's words."""

    def link(name, *options):
        command = ["gcc", "-shared", "-x", "c", "-", "-o", tmp_path / name, f"-Wl,-soname,{name}", *options]
        subprocess.run(command, input="unsigned fi_version(void) { return 1 << 16; }", text=True, check=True)

    link("libdep.so.3")
    link("libfabric.so.1")
    if broken:
        link(broken, "-x", "none", "-Wl,--no-as-needed", tmp_path / "libdep.so.3")
    (tmp_path / "libdep.so.3").unlink()
    text = Path(hardware.__file__).with_name("programs").joinpath("inside.py").read_text()
    functions = text[text.index("def look_at_fabric") : text.index("def look_around")]
    code = f"import ctypes, json, re\n{functions}\nprint(json.dumps(look_at_fabric()))"
    fabric = printed([sys.executable, "-c", code], env={"LD_LIBRARY_PATH": str(tmp_path)})
    one = subject(python={"fabric": json.loads(fabric)}, node={"sys/class/cxi/cxi0/x": ""})
    ((level, said),) = problems(hardware.provider, one)
    assert level == ERROR and expected in said


def test_a_library_for_a_newer_system(subject):
    """K-02: no bind helps a library that needs a newer glibc."""
    loader = "/lib64/libc.so.6: version `GLIBC_2.38' not found (required by /usr/lib64/libcxi.so.1)"
    fabric = {"libfabric.so.1": True, "libcxi.so.1": False, "said": {"libcxi.so.1": loader}}
    ((_, text),) = problems(hardware.provider, subject(python={"fabric": fabric}, node={"sys/class/cxi/cxi0/x": ""}))
    assert "libcxi.so.1 needs glibc 2.38, and the image has an older one" in text and "binds" not in text


def test_what_a_node_lacks(tmp_path):
    """I-12: GPU and network of the node, or that they were not looked at."""
    said = {one.subject: (one.level, one.text) for one in machine.unseen(Machine(tmp_path))}
    assert said["GPU"][0] == said["network"][0] == NOTE
    assert "checked" in said["GPU"][1] and "checked" in said["network"][1]
    for name in ("dev/kfd", "sys/module/amdgpu/version", "sys/class/cxi/cxi0/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("6.12.12\n")
    seen = [(OK, "rocm, driver 6.12.12"), (OK, "Slingshot")]
    assert [(one.level, one.text) for one in machine.unseen(Machine(tmp_path))] == seen


def test_squashfuse_is_missing(tmp_path, monkeypatch):
    """I-04: an ordinary user needs squashfuse, unless the runtime is installed setuid."""
    program, library = tmp_path / "apptainer", tmp_path / "lib"
    write_program(program, f"#!/bin/sh\necho LIBEXECDIR={library}\n")
    monkeypatch.setattr(machine, "SYSTEM_PATH", "/nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    (library / "apptainer/bin").mkdir(parents=True)
    (found,) = machine.mounting(str(program))
    assert found.level == ERROR and found.subject == "squashfuse" and "install the package squashfuse" in found.text
    write_program(library / "apptainer/bin/squashfuse_ll", "")
    assert [one.subject for one in machine.mounting(str(program)) if one.level == ERROR] in ([], ["FUSE"])
    (library / "apptainer/bin/squashfuse_ll").unlink()
    (library / "apptainer/bin/starter-suid").write_text("")
    assert not list(machine.mounting(str(program)))


def test_no_runtime():
    """I-04: without a runtime nothing is started."""
    (found,) = machine.runtime({}, set())
    assert found.level == ERROR and "load the site's module" in found.text
    # an update of the runtime is no problem, and PATH can't choose between two in one directory
    beside = {"/usr/bin/apptainer": "apptainer version 1", "/usr/bin/singularity": "singularity-ce 4"}
    (found,) = machine.runtime(beside, {"singularity-ce 4"})
    assert found.level == OK
    (found,) = machine.runtime({**beside, "/usr/bin/apptainer": None}, set())
    assert found.level == ERROR and "doesn't run: repair it" in found.text
    (found,) = machine.runtime({"/usr/bin/apptainer": "apptainer version 2"}, {"apptainer version 1"})
    assert found.level == OK


def test_a_link_to_the_runtime(tmp_path, monkeypatch):
    """I-04: Apptainer's link `singularity` is no other runtime; a runtime that hangs is one that doesn't run."""
    program = write_program(tmp_path / "apptainer", "#!/bin/sh\necho apptainer version 1\n")
    (tmp_path / "singularity").symlink_to("apptainer")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = {path: said for path, said in machine.runtimes_on_path().items() if path.startswith(str(tmp_path))}
    assert found == {str(program): "apptainer version 1"}
    monkeypatch.setattr(machine, "LONGEST", 0.2)
    program.write_text("#!/bin/sh\nsleep 60\n")
    assert machine.version_of(str(program)) is None and machine.library_folder(str(program)) == "/nowhere"


def finished(status, stdout="", stderr=""):
    """Return the CompletedProcess of a program."""
    return subprocess.CompletedProcess([], status, stdout, stderr)


@pytest.mark.parametrize(
    ("works", "level", "expected"),
    [
        ({1: "nccl", 2: "nccl"}, None, None),
        ({1: "gloo", 2: "gloo"}, NOTE, "RCCL was not tested between the nodes"),
        ({1: "gloo", 2: ""}, ERROR, "one node works, but 2 nodes don't: timed out"),
        ({1: "", 2: ""}, ERROR, "two ranks on one node can't communicate: timed out"),
    ],
)
def test_one_node_or_many(subject, monkeypatch, works, level, expected):
    """S002-20, I-12: a problem of the network is told from one of the container; RCCL that wasn't used is named."""
    one = subject(["torch==2+rocm6.2"])
    (one.installation.root / "runscripts").mkdir()
    (one.installation.root / "runscripts/conda-python-distributed").write_text("")

    def all_reduce(_, number):
        return finished(not works[number], f"all-reduce of 2 ranks with {works[number]}: sum 2", "timed out")

    monkeypatch.setattr(nodes, "all_reduce", all_reduce)
    found = list(nodes.communication(one, 2))
    assert [(each.level, expected in each.text) for each in found] == ([(level, True)] if expected else [])


@pytest.mark.parametrize(
    ("number", "subject", "expected"),
    [
        (1, "x", "only this node was checked"),
        (2, "GPU", "communication was not checked"),
        (2, "Example/1.0-x", "besides"),
        (2, None, "besides"),
    ],
)
def test_what_is_not_checked(eb_prefix, monkeypatch, number, subject, expected):
    """I-12, S002-20: the communication of modules without errors is tested, in a job, on nodes without errors."""
    one = places.of_directory(eb_prefix.install("Example/1.0-x"))
    monkeypatch.setattr(nodes, "number_of_nodes", lambda: number)
    monkeypatch.setattr(nodes, "is_job", lambda: True)
    monkeypatch.setattr(running, "load", lambda one: one.environment.update(SIF="x") or [])
    monkeypatch.setattr(nodes, "communication", lambda *_: [Finding(NOTE, "x", "tested")])
    found = [finding.text for finding in nodes.examine([Finding(ERROR, subject, "")] if subject else [], [one])]
    assert found[0].startswith(expected)
    assert found[1:] == (["tested"] if number == 2 and not subject else [])
    # a step that runs it on each node
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", "2")
    assert not list(nodes.examine([], [one]))


@pytest.mark.parametrize("there", [True, False])
def test_a_check_of_two_nodes_without_slurm(there, monkeypatch):
    """I-12: nobody is told to run a command of Slurm where another scheduler is."""
    monkeypatch.setattr(nodes.shutil, "which", lambda name: f"/usr/bin/{name}" if there else None)
    (finding,) = nodes.examine([], [])
    assert ("`salloc" in finding.text, "only checked in Slurm jobs" in finding.text) == (there, not there)


def test_versions_in_the_container(tmp_path):
    """I-05: the program in the container compares versions with the record, and names what can't be imported."""
    for name, version, text in (("fine", "1.0", ""), ("other", "2.0", ""), ("broken", "1.0", "1 / 0")):
        add_package(tmp_path, name, version, {f"{name}.py": text})
    record = {"image_packages": ["gone==1"], "venv_packages": ["fine==1.0", "other==1.0", "broken==unknown"]}
    command = [sys.executable, "-c", Path(nodes.PROGRAMS, "inside.py").read_text(), "-", read_program(IMPORTS)]
    said = printed(command, input=json.dumps(record), env={"PYTHONPATH": str(tmp_path)})
    found = json.loads(said.splitlines()[-1].partition("\t")[2])
    assert found["differences"] == ["gone is missing, not 1", "other is 2.0, not 1.0"]
    (problem,) = found["problems"]
    assert (problem["names"], problem["error"].split(":")[0]) == (["broken"], "ZeroDivisionError")


def test_what_is_printed(monkeypatch, capsys):
    """I-04, E-10: a terminal has 80 columns, but a command in advice is one line, to be copied; a pipe has lines."""
    command = "`" + " && ".join(["module use /somewhere/else"] * 4) + "`"
    findings = [Finding(NOTE, "GPU", "none"), Finding(ERROR, "Example/1.0", f"repair it with {command}, and so on")]
    print_findings(findings)
    in_lines = ["note: GPU: none", f"error: Example/1.0: repair it with {command}, and so on"]
    assert capsys.readouterr().out.splitlines() == in_lines
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    print_findings(findings)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "note: GPU: none" and f"  {command}," in lines
    print_findings(findings, heading="Example/1.0")
    assert capsys.readouterr().out.startswith("  note: none\n  error: repair it with\n")


TORCH = """class cuda:
    devices = [{devices}]
    is_available = classmethod(lambda one: bool(one.devices))
    device_count = classmethod(lambda one: len(one.devices))
    set_device = synchronize = staticmethod(lambda *_: None)
    get_device_properties = classmethod(lambda one, index: type("x", (), {{"uuid": one.devices[index]}}))


class Tensor(list):
    item = lambda self: 2
    __getitem__ = lambda self, index: self
    numel = element_size = lambda self: 4


ones = lambda number, device: Tensor([2])
"""
DISTRIBUTED = """import sys
is_available = is_nccl_available = lambda: True
all_reduce = destroy_process_group = lambda *_: None


class TCPStore(dict):
    def __init__(self, *_):
        super().__init__({{"device 1": {other!r}}})

    set = dict.__setitem__
    get = lambda self, key: self[key].encode()


def init_process_group(backend, **_):
    sys.stderr.write(backend)
"""


@pytest.mark.parametrize(
    ("devices", "other", "backend"),
    [("'gpu0'", "other gpu1", "nccl"), ("'gpu0'", "HOST gpu0", "gloo"), ("'gpu0'", "", "gloo"), ("", "", "gloo")],
)
def test_ranks_that_share_a_gpu(tmp_path, devices, other, backend):
    """S002-20: RCCL and NCCL refuse two ranks with one GPU, and need one: all ranks then agree on gloo."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("from torch import distributed\n" + TORCH.format(devices=devices))
    other = other.replace("HOST", socket.gethostname())
    (tmp_path / "torch/distributed.py").write_text(DISTRIBUTED.format(other=other))
    rank = {"PYTHONPATH": str(tmp_path), "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    command = [sys.executable, Path(nodes.PROGRAMS, "allreduce.py")]
    done = subprocess.run(command, env=rank, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"all-reduce of 2 ranks with {backend}: sum 2, "), done
    assert done.stderr == backend


@pytest.mark.parametrize(
    ("torch", "problem", "level"),
    [
        ("2+cu126", "ImportError: libcuda.so.1: cannot open shared object file", NOTE),
        ("2+cu126", "RuntimeError: Found no NVIDIA driver on your system", NOTE),
        ("2+rocm6.2", "RuntimeError: No HIP GPUs are available", NOTE),
        # libraries that an image must have, packages for another kind of GPU
        ("2+cu126", "ImportError: libcudart.so.12: cannot open shared object file", ERROR),
        ("2+rocm6.2", "ImportError: libcuda.so.1: cannot open shared object file", ERROR),
        ("2+cpu", "ImportError: libcuda.so.1: cannot open shared object file", ERROR),
    ],
)
def test_imports_that_need_a_gpu(subject, torch, problem, level):
    """I-12: what can't be imported on a login node, because it has no GPU, is a note; on a node with a GPU an error."""
    kinds = [kind for kind, pattern in imports.NO_GPU.items() if pattern.search(problem)]
    found = {"names": ["fast"], "error": problem, "text": "`import fast` fails", "gpu": kinds, "culprit": "fast"}
    found.update({"lines": [], "replace": [], "libraries": [], "why": "", "lacks": "", "newer": "", "build": ""})
    one = subject([f"torch=={torch}"], python={"problems": [found]})
    assert [found[0] for found in problems(running.imports, one)] == [level]
    one.machine.gpu = "cuda" if "cu" in torch else "rocm"
    assert [found[0] for found in problems(running.imports, one)] == [ERROR]


def test_tables_know_the_kinds_of_gpu():
    """C-01: GPU_KINDS is the home of all that differs; what other tables add, they add for each kind and no other."""
    assert imports.NO_GPU.keys() == GPU_PACKAGES.keys() == GPU_KINDS.keys()
    others = {one.gpu for one in (*(tool for _, tool in TOOLS), *CACHES.values()) if one.gpu}
    assert others == set(GPU_KINDS)


@pytest.mark.parametrize(("image", "expected"), [(["numpy==2.0"], [ERROR]), ([], [])])
def test_a_python_that_does_not_start(subject, monkeypatch, image, expected):
    """I-04: an image with packages has a Python; one without any may lack it."""
    one = subject(image, facts={"end": ""})
    one.__dict__.update(environment={}, easyconfig="x.eb")
    monkeypatch.setattr(Subject, "read_image", lambda self: subprocess.CompletedProcess([], 1, "", "python: not found"))
    found = list(running.start(one))
    assert [each.level for each in found] == expected
    assert all("Python doesn't start in the container: python: not found" in each.text for each in found)


def test_binds_that_are_gone(subject):
    """I-04: without a library, programs don't start; a directory may be on other nodes only."""
    one = subject(optional_binds=["/nowhere/libcxi.so.1", "/nowhere/spool", "/proc"])
    one.__dict__["easyconfig"] = "x.eb"
    expected = [(ERROR, "/nowhere/libcxi.so.1"), (WARNING, "/nowhere/spool")]
    assert [(each.level, each.text.split()[0]) for each in files.binds(one)] == expected


def test_what_an_update_of_the_system_has_changed(subject, tmp_path):
    """K-02: moved, missing, another build, and what needs more now; glibc and what the image has don't count."""

    def make(name, *needed):
        (tmp_path / "code.c").write_text("")
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", tmp_path / name, tmp_path / "code.c"]
        subprocess.run([*command, "-Wl,--no-as-needed", "-Wl,--build-id", *needed], check=True)
        return tmp_path / name

    def examine():
        node = one.machine = Machine()
        found = [finding for check in (files.binds, hostfiles.there, hostfiles.needs) for finding in check(one)]
        found += hostfiles.new_builds(node, [one.installation, one.installation])
        return [(each.level, each.text) for each in found]

    old, new, of_image = make("libold.so.1"), make("libnew.so.1"), make("libserved.so.1")
    root, moved, tool = make("libcxi.so.1", old, of_image), make("libz.so.1"), tmp_path / "tool"
    tool.touch()
    glibc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
    libraries = {"builds": Loader().builds(map(str, (root, old, moved)))}
    libraries["binds"] = [f"{path}:/host-libraries/{path.name}:ro" for path in (root, old, moved)]
    libraries["served"] = {"libserved.so.1": "/lib/libserved.so.1"}
    programs = {"builds": Loader().builds([str(tool)]), "binds": [f"{tool}:/host-programs/bin/tool:ro"]}
    programs["binds"] += [f"{path}:/host-programs/lib/{Path(path).name}:ro" for path in (new, *glibc)]
    binds = [str(path) for path in (root, old, moved, tool)]
    one = subject(optional_binds=binds, host_libraries=libraries, host_programs=programs)
    one.__dict__["easyconfig"] = "x.eb"
    assert not examine()
    make("libnew.so.1", old)
    make("libcxi.so.1", old, new, of_image)
    tool.write_text("new")
    again = f"install the module again with `{one.rebuild}`"
    needs = [
        (ERROR, f"{path} needs {name} since an update of the system, which the container doesn't have: {again}")
        for path, name in ((root, "libnew.so.1"), (new, "libold.so.1"))
    ]
    build = "has another build than when Example/1.0-x, Example/1.0-x were installed, and containers use the new one: "
    found = examine()
    assert found[:2] == needs
    assert [level for level, _ in found[2:]] == [NOTE, NOTE]
    assert [text.startswith(f"{path} {build}") for (_, text), path in zip(found[2:], (root, tool))] == [True, True]
    for path in (old, moved, tool):
        path.unlink()
    gone = "is missing, which the container had when the module was installed: put it back"
    found = examine()
    assert (found[0][0], found[0][1].partition(",")[0]) == (ERROR, f"{old} is missing")
    assert gone in found[0][1]
    assert found[1] == (ERROR, f"{moved} has moved to /lib/x86_64-linux-gnu/libz.so.1: {again}")
    assert (found[2][0], found[2][1].partition(", or")[0]) == (WARNING, f"{tool} {gone}")
    assert found[3:5] == needs


RANK = {"version": "MPICH 4", "opened": ["/host-libraries/libmpi.so.12"], "of host": True, "rank": 0, "size": 2}
OTHER = {**RANK, "rank": 1}


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([RANK, OTHER], [(NOTE, "Example/1.0-x: rank 0 of 2 has /host-libraries/libmpi.so.12 (MPICH 4); rank 1 of 2")]),
        ([RANK], [(ERROR, "ranks can't start MPI: aborted")]),
        ([{**RANK, "size": 1}] * 2, [(WARNING, "each rank of `srun` starts MPI alone"), (NOTE, "Example/1.0-x")]),
        (
            [{**RANK, "of host": False, "opened": ["/user-software/lib/libmpi.so.12"]}, OTHER],
            [(ERROR, "mpi4py opens /user-software/lib/libmpi.so.12, not /usr/lib/m.so of the host"), (NOTE, "")],
        ),
    ],
)
def test_the_mpi_of_ranks(subject, monkeypatch, ranks, expected):
    """K-01: in a job, doctor says which MPI each rank has; software with its own is told to open the host's."""
    one = subject(user=["mpi4py==4"], host_libraries={"libraries": {"libmpi.so.12": "/usr/lib/m.so"}})
    one.__dict__["user_packages"] = {"mpi4py": "4"}
    said = "".join(json.dumps(rank) + "\n" for rank in ranks)
    monkeypatch.setattr(nodes, "started", lambda *_: finished(1, f"hello\n1\n{said}", "aborted"))
    found = problems(nodes.mpi, one)
    assert [level for level, _ in found] == [level for level, _ in expected]
    assert all(text.startswith(begin) for (_, text), (_, begin) in zip(found, expected))
    if "of the host" in found[0][1]:
        assert "add 'MPI4PY_LIBMPI': '/host-libraries/libmpi.so.12' to container_env in Example" in found[0][1]


def test_libraries_that_the_image_can_not_load(subject):
    """K-02: what the image's loader says of the libraries as they are now."""
    said = ["libnew.so.2 => not found", "libc.so.6: version `GLIBC_2.99' not found (required by libcxi.so.1)"]
    found = problems(hostfiles.unloadable, subject(facts={"host-library": said}))
    assert [level for level, _ in found] == [ERROR]
    assert f"libraries of the host: {said[0]} (and 1 more). After an update" in found[0][1]


def test_a_module_that_is_being_installed(subject, eb_prefix):
    """I-03: eb hasn't written all of it yet, so nothing is wrong; EasyBuild's lock may be left over, and is named."""
    one = subject()
    root = one.installation.root
    lock = eb_prefix.software / ".locks" / (str(root).replace("/", "_") + ".lock")
    lock.mkdir(parents=True)
    text = f"eb is installing {one.module}: wait until it is done; if no eb is running anywhere, remove its lock {lock}"
    assert problems(lambda one: examination.run(one, examination.ON_DISK), one) == [(WARNING, text)]
    # eb knows the directory by the path that is configured, others by that without links
    link = eb_prefix.software.parent / "linked"
    link.symlink_to(eb_prefix.software)
    theirs = lock.with_name(lock.name.replace("software", "linked"))
    assert places.easybuild_lock(link / "Example/1.0-x") == lock
    lock.rename(theirs)
    assert places.easybuild_lock(link / "Example/1.0-x") == link / ".locks" / theirs.name
    theirs.rename(lock)
    (root / "share/ebsif/lock.json").unlink()
    assert [(each.level, each.text) for each in search.installations()[1]] == [(WARNING, text)]


def test_an_error_ends_the_checks_of_a_module(subject):
    """I-04: a stage with an error is completed; later ones would only repeat it."""

    def fails(one):
        yield one.error("broken")

    def breaks(one):
        raise OSError("no such file")

    def warns(one):
        yield one.warning("odd")

    found = examination.run(subject(), [(warns,), (fails, breaks, warns), (warns,)])
    assert [each.text for each in found] == ["odd", "broken", "no such file", "odd"]


CONTAINERS = reading.read(LUMI, sites.SITES / "lumi")


def findings(name="image.sif", profile=LUMI, **values):
    """Return the findings about an image by part."""
    found = inspection.Inspection(path=f"/images/{name}", resolved=f"/images/{name}", size=1, **values)
    return {finding.subject: finding for finding in hardware.examine_image(found, profile, CONTAINERS)}


@pytest.mark.parametrize(
    ("libraries", "text", "note"),
    [
        (["/usr/lib/libmpi.so.12"], "ABI of MPICH, /usr/lib/libmpi.so.12", False),
        (["/usr/lib/libmpi.so.40.40.1"], "Open MPI, /usr/lib/libmpi.so.40.40.1: an MPI with the ABI of", True),
        (["/usr/lib/libmpi.so.12", "/opt/ompi/libmpi.so.40"], "two in the image", True),
        ([], "none in the image", True),
    ],
)
def test_the_abi_of_mpi(libraries, text, note):
    """S001-14 (in part): read from the library's name."""
    finding = findings(libraries=libraries)["MPI"]
    assert text in finding.text
    assert (finding.level == NOTE) == note


def test_provider_and_plugin():
    """S001-14 (in part): those in the image, and those that the site provides."""
    libraries = ["/opt/libfabric/lib/libfabric.so.1"]
    parts = findings(libraries=libraries, components={"libfabric": "1.22.0"}, plugins=["/opt/lib/librccl-net.so"])
    assert parts["libfabric"].text == f"1.22.0, {libraries[0]}; for Slingshot /usr/lib64/libcxi.so.1 of lumi"
    assert parts["RCCL plugin"].text == "/opt/lib/librccl-net.so"
    local = findings(libraries=libraries, profile=sites.read("local"))
    assert "no libcxi, so it can't use Slingshot" in local["libfabric"].text
    # no GPUs, no plugin
    assert list(local) == ["image", "libfabric", "MPI"]


def test_an_image_of_the_site():
    """Recognized by its file name; nothing is promised for other images."""
    one = CONTAINERS[-1]
    assert one.module in findings(one.file_name)["image"].text
    other = findings("julia.sif")["image"]
    assert other.level == NOTE and "not in the catalog of lumi" in other.text
