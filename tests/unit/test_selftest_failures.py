"""What the self-test says and leaves when something goes wrong; the integration tests run it as a whole."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from ebsif import selftest
from ebsif.catalog.settings import read_settings
from ebsif.cli import main
from ebsif.errors import EbsifError
from ebsif.selftest import EXTENSION, MODULE, ImpossibleError


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """A self-test whose module is installed; it waits a moment only."""
    monkeypatch.setattr(selftest, "QUEUE", 0.1)
    monkeypatch.setattr(selftest, "GRACE", 10)
    monkeypatch.setattr(selftest, "PAUSE", 0.05)
    image = tmp_path / "image.sif"
    image.touch()
    made = selftest.SelfTest(image, tmp_path, read_settings(None, ()), ())
    made.installed = [MODULE]
    return made


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    """Programs of Slurm: a job stays in the queue, and can't be canceled."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "scancel"):
        (folder / name).write_text(f"#!/bin/sh\necho '{name}: error: Invalid job id specified' >&2\nexit 1\n")
    (folder / "squeue").write_text("#!/bin/sh\necho PENDING\n")
    (folder / "sinfo").write_text("#!/bin/sh\n")
    for program in folder.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_site_whose_jobs_need_an_account(scheduler, trial, monkeypatch):
    """A-05: without an account, no job is possible, and the line to type is shown; with one, it is submitted."""
    monkeypatch.setattr(trial, "profile", read_settings("lumi", ()).site())
    with pytest.raises(ImpossibleError, match="site lumi need an account: .* -- --account NAME"):
        trial.start_ranks()
    monkeypatch.setattr(trial, "of_job", ("--account", "mine"))
    monkeypatch.setattr(trial, "ebsif", lambda *_: "Submitted batch job 7\n")
    with pytest.raises(ImpossibleError, match="still in the queue"):
        trial.start_ranks()


def test_a_relative_path_of_ebsif(trial, monkeypatch):
    """A-05: ebsif may be started by a relative path: the commands have another current directory."""
    monkeypatch.chdir(Path(sys.prefix).parent)
    monkeypatch.setattr(sys, "argv", [f"{Path(sys.prefix).name}/bin/ebsif"])
    assert trial.ebsif("--version").startswith("ebsif ")


def test_the_message_of_a_command(trial):
    """A-05: the message is that of ebsif and of the program that it has run, not what looks like one."""
    text = "echo 'ebsif: done'; echo 'ERROR: no'; echo 'note: a path: it' >&2; echo 'INFO:    Cleaning up' >&2; exit 1"
    with pytest.raises(EbsifError, match=r"^done; ERROR: no$"):
        trial.command(["sh", "-c", text])
    with pytest.raises(EbsifError, match=r"^error: b$"):
        trial.command(["sh", "-c", "echo 'sbatch: a'; echo 'error: b'; echo 'WARNING: c'; exit 1"])


def test_after_a_failed_extension(trial, monkeypatch):
    """A-05: later steps use, and remove, what has been installed."""
    said = []

    def ebsif(*words, **_):
        said.append(words)
        if words[0] == "extend":
            raise EbsifError("no")
        return ""

    monkeypatch.setattr(trial, "ebsif", ebsif)
    monkeypatch.setattr(selftest.shutil, "which", lambda name: name)
    monkeypatch.setattr(trial, "require_answer", lambda: None)
    program = trial.folder / "bin/make-squashfs"
    program.parent.mkdir()
    program.touch()
    trial.loaded = {"CONTAINERROOT": str(trial.folder)}
    with pytest.raises(EbsifError, match="^no$"):
        trial.extend()
    with pytest.raises(EbsifError, match="has printed no ID of the job"):
        trial.start_ranks()
    trial.remove()
    assert said[1][:2] == ("job", MODULE)
    assert said[2] == ("remove", MODULE, "--yes")


def test_both_modules_are_removed(trial, monkeypatch):
    """A-05: the extension is removed before the module that it needs."""
    said = []
    monkeypatch.setattr(trial, "ebsif", lambda *words: said.append(words))
    trial.installed.append(EXTENSION)
    trial.remove()
    assert said == [("remove", EXTENSION, MODULE, "--yes")]


@pytest.mark.parametrize("arguments", [["image.sif", "--site", "nosuch"], ["missing.sif"]])
def test_no_directory_for_a_mistake(tmp_path, monkeypatch, capsys, arguments):
    """A-05: a mistake in the command line leaves no directory."""
    monkeypatch.chdir(tmp_path)
    Path("image.sif").touch()
    monkeypatch.setattr(sys, "argv", ["ebsif", "selftest", *arguments])
    assert main() == 3
    assert capsys.readouterr().err.startswith("ebsif: ")
    assert [path.name for path in tmp_path.iterdir()] == ["image.sif"]


@pytest.mark.parametrize("name", ["a,b", "a:b"])
def test_a_directory_that_cannot_be_bound(tmp_path, monkeypatch, capsys, name):
    """A-05: a directory where no module works is refused: binds and MODULEPATH would end at the comma or colon."""
    monkeypatch.chdir(tmp_path)
    Path("image.sif").touch()
    Path(name).mkdir()
    monkeypatch.setattr(sys, "argv", ["ebsif", "selftest", "image.sif", "--directory", name])
    assert main() == 2
    assert "because of the comma or colon: choose another directory" in capsys.readouterr().err
    assert not list(Path(name).iterdir())


def test_ctrl_c(tmp_path, monkeypatch, capsys):
    """A-05: after Ctrl-C, the last line names the directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(selftest.SelfTest, "examine", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(sys, "argv", ["ebsif", "selftest", "image.sif"])
    Path("image.sif").touch()
    assert main() == 3 and "image.sif is not a SIF file: give an image, or the name" in capsys.readouterr().err
    Path("image.sif").write_bytes(bytes(32) + b"SIF_MAGIC")
    assert main() == 130
    (folder,) = tmp_path.glob("ebsif-selftest-*")
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"; remove {folder} afterwards")
