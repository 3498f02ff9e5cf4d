"""What the self-test says and leaves when something goes wrong; the integration tests run it as a whole."""

import sys
from pathlib import Path

import pytest
from ebsif import selftest
from ebsif.cli import main


@pytest.mark.parametrize("arguments", [["image.sif", "--site", "nosuch"], ["missing.sif"]])
def test_no_directory_for_a_mistake(tmp_path, monkeypatch, capsys, arguments):
    """A-05: a mistake in the command line leaves no directory."""
    monkeypatch.chdir(tmp_path)
    Path("image.sif").touch()
    monkeypatch.setattr(sys, "argv", ["ebsif", "selftest", *arguments])
    assert main() == 3
    assert capsys.readouterr().err.startswith("ebsif: ")
    assert [path.name for path in tmp_path.iterdir()] == ["image.sif"]


def test_ctrl_c(tmp_path, monkeypatch, capsys):
    """A-05: after Ctrl-C, the last line names the directory."""
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    Path("image.sif").touch()
    monkeypatch.setattr(selftest.SelfTest, "examine", interrupted)
    monkeypatch.setattr(sys, "argv", ["ebsif", "selftest", "image.sif"])
    assert main() == 130
    (folder,) = tmp_path.glob("ebsif-selftest-*")
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"; remove {folder} afterwards")
