"""Hints for users when pip fails in user software."""

import importlib.util
import logging
import sys

import pytest
from easybuild.easyblocks.generic.container import missing
from support import CONTAINER_FILES


@pytest.fixture
def hints(monkeypatch, tmp_path):
    """The module with the hints, with constraints of an ebsif module in force."""
    monkeypatch.setitem(sys.modules, "ebsif_missing", missing)
    spec = importlib.util.spec_from_file_location("hints", CONTAINER_FILES / "site-packages/ebsif_pip_hints.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "constraints.txt").write_text("numpy==2.4.6\ntorch==2.7.1+rocm6.2.4\n")
    (tmp_path / "module.conf").write_text(f"start A=1\nstart_file PIP_CONSTRAINT={tmp_path}/constraints.txt\n")
    monkeypatch.setattr(module, "SETTINGS", str(tmp_path / "module.conf"))
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    monkeypatch.setattr(module.RESOLVER, "level", logging.INFO)
    return module


def hint(hints, messages=(), status=1):
    """Return what is printed after pip has logged these messages."""
    for message in messages:
        hints.CONFLICTS.filter(logging.makeLogRecord({"msg": message}))
    hints.advise(status)


def test_a_package_of_the_image(hints, monkeypatch, capsys):
    """G-03: the hint names the conflicting packages of the image and the exact command that overrides them."""
    monkeypatch.setattr(sys, "argv", ["pip", "install", "torchvision<0.20"])
    messages = [
        "Cannot install torchvision because these package versions have conflicting dependencies.",
        "The conflict is caused by:\n    torchvision 0.19 depends on torch==2.4\n"
        "    The user requested (constraint) torch==2.7.1+rocm6.2.4",
    ]
    hint(hints, messages)
    text = capsys.readouterr().err
    assert "hint: torch 2.7.1+rocm6.2.4 is a package of the image" in text
    assert "hint:     PIP_CONSTRAINT= pip install 'torchvision<0.20'\n" in text


@pytest.mark.parametrize("message", ["No matching distribution found for x", "x and y have conflicting dependencies"])
def test_another_failure_has_no_hint(hints, monkeypatch, capsys, message):
    """G-05: no hint if the image's packages are not the cause."""
    monkeypatch.setattr(sys, "argv", ["pip", "install", "x"])
    hint(hints, [message])
    hint(hints, [], status=0)
    assert capsys.readouterr().err == ""


def test_nothing_is_imported_late(hints, monkeypatch, capsys):
    """V-05: after a failed build, too: pip 26.3 warns of what is imported once it has begun."""
    late = []

    class Watcher:
        """Like the one of pip."""

        def find_spec(self, name, *_):
            """Note a module that is looked up."""
            late.append(name)

    monkeypatch.setattr(sys, "argv", ["pip", "install", "kernels"])
    monkeypatch.setattr(sys, "meta_path", [Watcher(), *sys.meta_path])
    hints.BUILDS.output = "ModuleNotFoundError: No module named 'packaging'"
    monkeypatch.delitem(sys.modules, "ebsif_missing")
    hint(hints)
    assert "hint: a build needs packaging, which is here" in capsys.readouterr().err
    assert late == []


def test_constraints_of_a_users_own(hints, monkeypatch, capsys, tmp_path):
    """G-03: with constraints of the user's own, those of the image are not blamed."""
    monkeypatch.setattr(sys, "argv", ["pip", "install", "-U", "numpy"])
    hint(hints, status=0)
    assert "numpy 2.4.6 is a package of the image and is kept" in capsys.readouterr().err
    mine = tmp_path / "mine.txt"
    mine.touch()
    monkeypatch.setenv("PIP_CONSTRAINT", f"{mine} https://example.org/more.txt")
    hint(hints, ["conflicting dependencies", "(constraint) numpy==2.4.6"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("prefix", "mounted", "expected", "unexpected"),
    [
        (
            "/user-software/venv/x",
            "/root/user-software.squashfs",
            ["packed in a SquashFS file", "unpacks it", "EBSIF_USER_SOFTWARE=$(realpath DIRECTORY)"],
            [],
        ),
        ("/user-software/venv/x", "/root/user-software", ["creates your own copy"], ["packed", "unpacks"]),
        ("/project/env", "/root/user-software.squashfs", [], ["unmake", "packed"]),
    ],
)
def test_a_directory_without_write_permission(hints, monkeypatch, capsys, prefix, mounted, expected, unexpected):
    """Only advice that works is given, with user software, packed or not, and without it."""
    monkeypatch.setattr(sys, "argv", ["pip", "install", "x"])
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setenv("EBSIF_MOUNTED_USER_SOFTWARE", mounted)
    hint(hints)
    text = capsys.readouterr().err
    for part in [*expected, f"you can't change {prefix} here", "make-venv DIRECTORY"]:
        assert part in text
    for part in unexpected:
        assert part not in text
