"""Two installations change places, whatever the system offers for it."""

import ctypes
import os
import py_compile

import pytest
from easybuild.easyblocks.generic.containerreplace import Place
from easybuild.easyblocks.generic.containerusersoftware import FILE_TIME, ContainerUserSoftware, remove_bytecode


@pytest.fixture(params=["at once", "with three renames"])
def place(request, tmp_path, monkeypatch):
    """An installation and its replacement, on a system that can exchange them at once, or not."""
    if request.param == "with three renames":
        monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    for name in ("1.0", "1.0.replace"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)
    return Place(str(tmp_path / "1.0"))


def content(tmp_path):
    """What is where."""
    return {path.name: (path / "which").read_text() for path in tmp_path.iterdir()}


def test_exchange(place, tmp_path):
    """Once: the replacement is in place; twice: everything is as it was."""
    place.exchange()
    assert content(tmp_path) == {"1.0": "1.0.replace", "1.0.replace": "1.0"}
    place.exchange()
    assert content(tmp_path) == {"1.0": "1.0", "1.0.replace": "1.0.replace"}


def test_recover(place, tmp_path):
    """Killed after the first of three renames: the installation is back; otherwise nothing is touched."""
    (tmp_path / "1.0").rename(place.spare)
    place.recover()
    place.recover()
    assert content(tmp_path) == {"1.0": "1.0", "1.0.replace": "1.0.replace"}


def test_what_is_set_aside_overwrites_nothing(tmp_path):
    """Set aside twice in one second: both are kept."""
    software = ContainerUserSoftware(str(tmp_path / "1.0"))
    (tmp_path / "1.0").mkdir()
    paths = []
    for text in ("one", "two"):
        (tmp_path / "1.0" / "user-software.squashfs").write_text(text)
        paths += software.set_aside(["user-software.squashfs"], prefix=str(tmp_path / "1.0"))
    assert [open(path).read() for path in paths] == ["one", "two"]  # noqa: PTH123, SIM115


def test_bytecode_that_stays(tmp_path):
    """Only that of source files with the time of all files; none is left of others, nor a directory without any."""
    for folder, time in (("kept", FILE_TIME), ("compiled", FILE_TIME + 1)):
        source = tmp_path / folder / "module.py"
        source.parent.mkdir()
        source.write_text("1")
        os.utime(source, (time, time))
        py_compile.compile(source, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    cache = next(tmp_path.glob("kept/__pycache__"))
    (cache / "damaged.pyc").write_bytes(b"")
    (cache / "nowhere.pyc").symlink_to("/does/not/exist")
    (cache / "hash.pyc").write_bytes(b"0123" + b"\1\0\0\0" + bytes(8))
    remove_bytecode(str(tmp_path))
    assert len(list(cache.iterdir())) == 1
    assert (tmp_path / "compiled" / "module.py").exists()
    assert not (tmp_path / "compiled" / "__pycache__").exists()
