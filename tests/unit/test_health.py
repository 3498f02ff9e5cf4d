"""The checks of installed modules that need other hardware than this machine has, from what would be found there."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from ebsif.catalogue import site as sites
from ebsif.findings import ERROR, NOTE, OK, WARNING, Finding
from ebsif.installed import places
from ebsif.installed.health import examination, files, hardware, machine, nodes, running, tables
from ebsif.installed.health.machine import Machine
from ebsif.installed.health.subject import Subject
from ebsif.installed.softwarestate import SoftwareState

LUMI = sites.read("lumi")


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


@pytest.mark.parametrize(("image", "facts", "driver", "level"), [
    (["torch==2.7.1+rocm6.2.4"], {}, ["6.1", "7.0"], None), (["torch==2.7.1+rocm6.2.4"], {}, ["6.3", "7.0"], ERROR),
    (["torch==2.10+rocm7.0"], {}, ["6.1", "7.0"], None), (["torch==2.10+rocm7.1"], {}, ["6.1", "7.0"], ERROR),
    # the image's own version counts, not the label
    (["torch==2.7.1+rocm6.2.4"], {"rocm": "6.3.4"}, ["6.3", "7.0"], None),
    ([], {"rocm": "5.6.1"}, ["6.1", "7.0"], ERROR), ([], {}, ["6.1", "7.0"], None),
    (["torch==2.7.1+rocm6.2.4"], {}, None, None)])
def test_the_driver_of_rocm(subject, image, facts, driver, level):
    """S001-18: an image's ROCm is compared with the range in the site's profile; both ends belong to it."""
    found = problems(hardware.driver, subject(image, facts=facts, site=LUMI.model_copy(update={"driver_rocm": driver})))
    assert [one[0] for one in found] == ([level] if level else [])
    assert not found or "ebsif upgrade" in found[0][1]


@pytest.mark.parametrize(("image", "file", "text", "expected"), [
    ("torch==2+rocm7.0", "sys/module/amdgpu/version", "30.30.2\n", None),
    ("torch==2+rocm6.2", "sys/module/amdgpu/version", "30.30.2\n", "driver 30.30.2 of this node, which supports 6.3"),
    ("torch==2+rocm6.2", "sys/module/amdgpu/version", "6.12\n", None),
    ("torch==2+cu126", "proc/driver/nvidia/version", "NVRM version: NVIDIA Kernel Module  550.54.15  x\n", None),
    ("torch==2+cu130", "proc/driver/nvidia/version", "NVRM version: NVIDIA Kernel Module  550.54.15  x\n",
     "CUDA 13.0 needs driver 580 or newer, this node has 550.54.15")])
def test_the_driver_of_this_node(subject, image, file, text, expected):
    """S001-18: without a profile, the driver of the node is looked up in a table with sources."""
    found = problems(hardware.driver, subject([image], site=None, node={file: text}))
    assert (found[0][0] == ERROR and expected in found[0][1]) if expected else not found


@pytest.mark.parametrize(("image", "user", "expected"), [
    (["torch==2+rocm6.2"], ["nvidia-nccl-cu12==2", "einops==1"], "ROCm, and user software has"),
    (["torch==2+rocm6.2", "flash-attn==2+cu126"], [], "ROCm, and the image has"),
    (["torch==2+cu126", "nvidia-nccl-cu12==2"], ["cupy-rocm-5-0==13"], "CUDA, and user software has"),
    (["torch==2+cu126", "nvidia-nccl-cu12==2", "cupy-cuda12x==13"], ["flash-attn==2+cu126"], None),
    # a third-party image without a label on a ROCm site (S002-19)
    (["torch==2", "nvidia-cublas-cu12==12"], [], "ROCm, and the image has"),
    (["numpy==2"], ["einops==1"], None)])
def test_packages_for_another_gpu(subject, image, user, expected):
    """S002-19, I-04: CUDA wheels in a ROCm container, and the reverse."""
    found = problems(files.wheels, subject(image, user))
    assert (found[0][0] == WARNING and expected in found[0][1]) if expected else not found


PLUGIN = {"network-plugin": ["/opt/lib/librccl-net.so"]}


@pytest.mark.parametrize(("image", "facts", "python", "expected"), [
    (["torch==2+rocm6.2"], PLUGIN, {}, None), (["torch==2+cpu"], {}, {}, None),
    (["torch==2+rocm6.2"], {}, {}, (WARNING, "RCCL has no plugin for Slingshot")),
    # S004-05: a stock NCCL
    (["torch==2+cu126", "nvidia-nccl-cu12==2.26"], {}, {}, (WARNING, "nvidia-nccl-cu12 2.26 has no plugin")),
    # S004-14: built for another libfabric
    (["torch==2+rocm6.2"], PLUGIN, {"fabric": {"version": "1.15", "interface": [1, 5]},
                                    "needed": {"/opt/lib/librccl-net.so": [1, 8]}},
     (ERROR, "needs a newer libfabric than 1.15")),
    (["torch==2+rocm6.2"], PLUGIN, {"fabric": {"version": "2.1", "interface": [1, 8]},
                                    "needed": {"/opt/lib/librccl-net.so": [1, 8]}}, None)])
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
    assert "nccl 2.21 (Conda) has no plugin" in problems(hardware.plugin, one)[0][1]


@pytest.mark.parametrize(("library", "site", "found"), [
    ("Open MPI v4.1.6, package: x", LUMI, True), ("Open MPI v4.1.6", None, False), ("MPICH Version: 4.3", LUMI, False),
    ("MPI VERSION : CRAY MPICH version 8.1.29", LUMI, False), (None, LUMI, False)])
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
    (level, text), = problems(hardware.provider, one)
    assert level == ERROR and "no libcxi.so.1" in text
    assert not problems(hardware.provider, replace(one, machine=Machine(Path("/nowhere"))))


def test_what_a_node_lacks(tmp_path):
    """I-12: GPU and network of the node, or that they were not looked at."""
    said = {one.subject: (one.level, one.text) for one in machine.unseen(Machine(tmp_path))}
    assert said["GPU"][0] == said["network"][0] == NOTE
    assert "not looked at" in said["GPU"][1] and "not looked at" in said["network"][1]
    for name in ("dev/kfd", "sys/module/amdgpu/version", "sys/class/cxi/cxi0/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("6.12.12\n")
    assert [(one.level, one.text) for one in machine.unseen(Machine(tmp_path))] == [
        (OK, "rocm, driver 6.12.12"), (OK, "Slingshot")]


def test_squashfuse_is_missing(tmp_path, monkeypatch):
    """I-04: an ordinary user needs squashfuse, unless the runtime is installed setuid."""
    program, library = tmp_path / "apptainer", tmp_path / "lib"
    program.write_text(f"#!/bin/sh\necho LIBEXECDIR={library}\n")
    program.chmod(0o755)
    monkeypatch.setattr(machine, "SYSTEM_PATH", "/nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    (library / "apptainer/bin").mkdir(parents=True)
    (found,) = machine.mounting(str(program))
    assert found.level == ERROR and found.subject == "squashfuse" and "Install the package squashfuse" in found.text
    (library / "apptainer/bin/squashfuse_ll").write_text("")
    (library / "apptainer/bin/squashfuse_ll").chmod(0o755)
    assert [one.subject for one in machine.mounting(str(program)) if one.level == ERROR] in ([], ["FUSE"])
    (library / "apptainer/bin/squashfuse_ll").unlink()
    (library / "apptainer/bin/starter-suid").write_text("")
    assert not list(machine.mounting(str(program)))


def test_no_runtime():
    """I-04: without a runtime nothing is started."""
    (found,) = machine.runtime({}, set())
    assert found.level == ERROR and "load the site's module" in found.text
    # an update of the runtime is no problem
    (found,) = machine.runtime({"/usr/bin/apptainer": "apptainer version 2"}, {"apptainer version 1"})
    assert found.level == OK


def test_findings_of_several_nodes():
    """I-04: what all nodes have is said once, a problem of some names these."""
    everywhere, fine, here = (Finding(level, "m", text) for level, text in ((ERROR, "a"), (OK, "b"), (WARNING, "c")))
    found = list(nodes.combine({"n1": [everywhere, fine], "n2": [everywhere, here], "n3": [everywhere]}))
    assert found == [everywhere, fine, replace(here, text="on n2, but not on n1, n3: c")]


@pytest.mark.parametrize(("works", "expected"), [
    ({1: True, 2: True}, None), ({1: True, 2: False}, "one node works, but 2 nodes don't: timed out"),
    ({1: False, 2: False}, "two ranks on one node can't communicate: timed out")])
def test_one_node_or_many(subject, monkeypatch, works, expected):
    """S002-20: a problem of the network is told from one of the container."""
    one = subject()
    (one.installation.root / "runscripts").mkdir()
    (one.installation.root / "runscripts/conda-python-distributed").write_text("")
    monkeypatch.setattr(running, "load", lambda one: one.environment.update(SIF="x") or [])
    monkeypatch.setattr(nodes, "all_reduce", lambda one, number: (works[number], "timed out"))
    found = list(nodes.communication(one.installation, 2))
    assert [expected in each.text for each in found] == ([True] if expected else [])


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
    assert [(each.level, each.text.split()[0]) for each in files.binds(one)] == [
        (ERROR, "/nowhere/libcxi.so.1"), (WARNING, "/nowhere/spool")]


def test_an_error_ends_the_checks_of_a_module(subject):
    """I-04: nothing else is reported of a module: later stages would only repeat it."""
    called = []

    def fails(one):
        called.append("fails")
        yield one.error("broken")

    def breaks(one):
        called.append("breaks")
        raise OSError("no such file")

    one = subject()
    assert [each.text for each in examination.run(one, [(fails, breaks), (fails,)])] == ["broken", "no such file"]
    assert called == ["fails", "breaks"]


def test_sources_of_the_tables():
    """S001-18: the versions of drivers have sources."""
    text = Path(tables.__file__).read_text()
    assert len(re.findall("https://", text)) >= 3
