"""Files that several processes change."""

import contextlib
import errno
import fcntl
import os
import pwd
import subprocess
import sys
import tempfile
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ebsif import files, filling
from ebsif.errors import EbsifError


@pytest.mark.parametrize(("number", "works"), [(errno.ENOSYS, True), (errno.ENOLCK, True), (errno.EIO, False)])
def test_file_systems_without_locks(tmp_path, monkeypatch, number, works):
    """R-10: where a file system can't lock files, commands go on without; other errors of locks are errors."""
    monkeypatch.setattr(fcntl, "lockf", Mock(side_effect=OSError(number, "Function not implemented")))
    with contextlib.nullcontext() if works else pytest.raises(OSError, match="Errno 5"), files.locked(tmp_path):
        assert works


@pytest.mark.parametrize("kind", ["alone", "held", "of another account", "closed"])
def test_a_lock_without_a_file(tmp_path, kind):
    """No file for the lock stays in a directory of easyconfigs, and nobody is kept from working there."""
    path = tmp_path / files.LOCK
    if kind == "held":
        # by a process that removes it
        program = (
            "import sys; from pathlib import Path; from ebsif import files\n"
            "with files.alone(Path(sys.argv[1])): print('locked', flush=True); input()\n"
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", program, tmp_path], **pipes, text=True) as holder:
            assert holder.stdout.readline() == "locked\n"
            threading.Timer(1, lambda: holder.stdin.write("\n") and holder.stdin.close()).start()
            with files.alone(tmp_path):
                assert path.exists()
                assert holder.wait() == 0
    elif kind == "of another account":
        path.touch(0o444)
        with files.alone(tmp_path):
            assert path.exists()
        path.unlink()
    else:
        tmp_path.chmod(0o755 if kind == "alone" else 0o555)
        with files.alone(tmp_path):
            assert path.exists() == (kind == "alone")
        tmp_path.chmod(0o755)
    assert not list(tmp_path.iterdir())


def test_links_in_a_directory_for_one_s_own_group(tmp_path, monkeypatch):
    """With the umask 002, which a group of one's own allows, one's links are still followed."""
    mode, number = tmp_path.stat().st_mode, tmp_path.stat().st_gid
    tmp_path.chmod(0o775)
    name = pwd.getpwuid(os.geteuid()).pw_name
    for group, members, works in ((name, [], True), (name, [name], True), (name, ["other"], False), ("all", [], False)):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / "there")
        there = SimpleNamespace(gr_name=group, gr_mem=members)
        monkeypatch.setattr(files.grp, "getgrgid", lambda _, there=there: there)
        refused = pytest.raises(EbsifError, match="is a link that others may have put there")
        with contextlib.nullcontext() if works or number in (0, os.geteuid()) else refused:
            files.replace(tmp_path / "link", "new")
    tmp_path.chmod(mode)
    assert (tmp_path / "there").read_text() == "new"


def test_a_link_stays(tmp_path):
    """C-04: the file to which a link leads gets the new content, also if it doesn't exist yet."""
    (tmp_path / "shared").mkdir()
    for name in ("there", "missing"):
        (tmp_path / name).symlink_to(tmp_path / "shared" / name)
    (tmp_path / "shared/there").write_text("old")
    for name in ("there", "missing"):
        files.replace(tmp_path / name, "new")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "shared" / name).read_text() == "new"
    with filling.filled(tmp_path / "made", "docs", overwrite=False) as made:
        (made / "there").write_text("one")
    (tmp_path / "made/there").rename(tmp_path / "shared/there")
    (tmp_path / "made/there").symlink_to(tmp_path / "shared/there")
    with filling.filled(tmp_path / "made", "docs", overwrite=False) as made:
        (made / "there").write_text("two")
    assert (tmp_path / "made/there").is_symlink()
    assert (tmp_path / "shared/there").read_text() == "two"


def test_replacing_a_file_in_a_closed_directory(tmp_path, monkeypatch):
    """E-15: the directory is named, because opening the file wouldn't help; other errors name the file."""
    (tmp_path / "x").touch(0o444)
    for error, expected in (
        (PermissionError(errno.EACCES, "Permission denied"), tmp_path),
        (OSError(errno.ENOSPC, "No space left on device"), tmp_path / "x"),
    ):

        def refuse_new(path, *_, error=error, **__):
            error.filename = str(path)
            raise error

        monkeypatch.setattr(files.Path, "open", refuse_new)
        with pytest.raises(OSError, match=error.strerror) as raised:
            files.replace(tmp_path / "x", "new")
        assert raised.value.filename == str(expected)


def test_a_directory_that_can_not_be_filled(tmp_path, monkeypatch):
    """C-04: the error names the directory that was asked for, not a temporary one."""

    def refuse_directory(path, _):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(tempfile._os, "mkdir", refuse_directory)
    with pytest.raises(PermissionError) as error, filling.filled(tmp_path / "made", "docs", overwrite=False):
        pass
    assert error.value.filename == str(tmp_path / "made")


def test_a_list_of_files_that_names_others(tmp_path):
    """C-04: a list of files that somebody else has written lets nothing outside of the directory be removed."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "made").mkdir()
    digest = filling.digest(tmp_path / "mine")
    (tmp_path / "made/.ebsif-docs").write_text(f"{digest}  ../mine\n{digest}  {tmp_path}/mine\n")
    with filling.filled(tmp_path / "made", "docs", overwrite=False) as made:
        (made / "new").touch()
    assert (tmp_path / "mine").exists() and (tmp_path / "made/new").exists()


def test_a_damaged_list_of_files(tmp_path):
    """C-04: without it, nothing tells who has written the files: they are only replaced on request."""
    for overwrite in (False, True):
        (tmp_path / "new").write_text("mine")
        (tmp_path / ".ebsif-docs").write_bytes(b"\xff\xfe")
        refused = contextlib.nullcontext() if overwrite else pytest.raises(EbsifError, match="--overwrite")
        with refused, filling.filled(tmp_path, "docs", overwrite) as made:
            (made / "new").touch()
        assert (tmp_path / "new").read_text() == ("" if overwrite else "mine")


def test_a_file_that_makes_room_comes_back(tmp_path, monkeypatch):
    """C-04: if its successor can't be written, it has its name again."""
    path = tmp_path / "a.eb"
    path.write_text("mine")
    monkeypatch.setattr(files, "replace", Mock(side_effect=OSError(errno.ENOSPC, "no space")))
    with pytest.raises(OSError, match="no space"):
        files.write_new({path: "new"}, aside=True)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.eb", "mine")]
