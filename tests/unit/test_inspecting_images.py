"""`ebsif show IMAGE`: arguments for the runtime and rejected files, without an image."""

import os

import pytest
from easybuild.easyblocks.generic.container.runtime import passed_variables
from ebsif import processes
from ebsif.images import inspection
from support import write_program

KEPT_AWAY = {"APPTAINER_BIND": "/x", "SINGULARITYENV_A": "1", "LD_PRELOAD": "", "PYTHONPATH": "/x", "CFLAGS": "-g"}
KEPT_AWAY["BASH_ENV"] = "/x"


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """A function that puts a script in place of the runtime."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write(script):
        write_program(tmp_path / "apptainer", f"#!/bin/sh\n{script}\n")

    return write


def test_the_runtime_has_the_environment_of_installations(runtime, tmp_path, monkeypatch):
    """The caller's environment is filtered by the same rules, with the runtime's own directories kept."""
    runtime('env -0 >"$0.environment"\nprintf "%s\\n" "$*" >>"$0.calls"\ncat')
    for name, value in {**KEPT_AWAY, "APPTAINER_TMPDIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    found = inspection.Inspection(path="x.sif", resolved="/x.sif", size=1)
    inspection.with_labels(found)
    assert inspection.run_in_image(found, "sh", text="input").stdout == "input"
    lines = (tmp_path / "apptainer.environment").read_text().split("\0")
    environment = dict(line.split("=", 1) for line in lines if line)
    wanted = passed_variables(os.environ)
    assert {name: environment.get(name) for name in wanted} == wanted
    assert environment["APPTAINER_TMPDIR"] == str(tmp_path)
    assert not set(KEPT_AWAY) & set(environment)
    calls = ["inspect --json --all /x.sif", "--silent exec --cleanenv --no-home --pwd / /x.sif sh"]
    assert (tmp_path / "apptainer.calls").read_text().splitlines() == calls


@pytest.mark.parametrize(("prints", "expected"), [("yes", "prints more than 1.0 MB"), ("sleep 60", "doesn't answer")])
def test_programs_of_an_image_that_never_end(runtime, monkeypatch, prints, expected):
    """P-06: neither output nor time without end; what was started is ended."""
    runtime(prints)
    monkeypatch.setattr(inspection, "SECONDS", 5)
    monkeypatch.setattr(processes, "MOST_WRITTEN", 10**6)
    with pytest.raises(processes.NoAnswerError, match=f"apptainer --silent exec --cleanenv {expected}"):
        inspection.run_in_image(inspection.Inspection(path="x.sif", resolved="/x.sif", size=1), "sh")


@pytest.mark.parametrize("printed", ["{}", "5", "[]", "{'prefix': 1}", "", "x", "None"])
def test_a_python_that_prints_something_else(runtime, printed):
    """P-06: an image whose python3 isn't Python has none."""
    runtime(f"cat <<'END'\n{printed}\nEND")
    found = inspection.with_python(inspection.Inspection(path="x.sif", resolved="/x.sif", size=1))
    assert found.python is None


@pytest.mark.parametrize(
    "labels",
    [
        *("[]", "5", "{'a': {}}"),
        '{"data": []}',
        '{"data": {"attributes": []}}',
        '{"data": {"attributes": {"labels": [1]}}}',
        '{"data": {"attributes": {"runscript": 5}}}',
        '{"data": {"attributes": {"labels": {"a": ["b"]}}}}',
    ],
)
def test_labels_that_are_something_else(runtime, labels):
    """P-06: the metadata of an image is JSON that others wrote: what doesn't fit is left out."""
    runtime(f"cat <<'END'\n{labels}\nEND")
    found = inspection.with_labels(inspection.Inspection(path="x.sif", resolved="/x.sif", size=1))
    assert (found.labels, found.entry_point) == ({}, {})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a b", r"is a directory, not an image \(a SIF file\); .*: apptainer build image\.sif '.*/a b'"),
        ("none", "the file .*/none does not exist"),
        ("fifo", "fifo is not a file"),
    ],
)
def test_files_that_can_not_be_inspected(tmp_path, name, expected):
    """The error says what the file is and what to do, before a program starts."""
    (tmp_path / "a b").mkdir()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(inspection.InspectionError, match=expected):
        inspection.inspect(tmp_path / name)
