"""What is installed: found below prefixes and module directories, with the state of each part. No image is needed."""

import hashlib
import json
import os
import shutil

import pytest
from ebsif.errors import UsageError
from ebsif.installed import imagestate, inventory
from prefixes import BASE, LATER, MINE, OTHER


def found(*named):
    """The modules in directories, and the texts of the problems."""
    installations, problems = inventory.installations([str(one) for one in named])
    return [one.module for one in installations], [f"{one.subject}|{one.path}|{one.text}" for one in problems]


def test_every_kind_of_directory(eb_prefix):
    """I-01: by default EasyBuild's prefix; a prefix, its software or modules, one software or installation."""
    root = eb_prefix.install(MINE)
    eb_prefix.install("Tool/.1.0-x", lua=False)
    (eb_prefix.modules / f"{MINE}.lua").unlink()
    # what reinstallations leave is none
    shutil.copytree(root, root.with_name(f"{root.name}.replaced"))
    both = [MINE, "Tool/.1.0-x"], []
    assert found() == found(eb_prefix.software.parent) == found(f"{eb_prefix.software}:{eb_prefix.modules}") == both
    assert found(eb_prefix.modules) == (["Tool/.1.0-x"], [])
    assert found(root) == found(root.parent) == found(root.parent, root) == ([MINE], [])
    (eb_prefix.modules / "large").write_bytes(bytes(5_000_000))
    os.mkfifo(eb_prefix.modules / "pipe")
    assert found(eb_prefix.modules) == (["Tool/.1.0-x"], [])
    with pytest.raises(UsageError, match="nowhere is not a directory: name a prefix"):
        found("nowhere")


def test_what_can_not_be_examined(eb_prefix, monkeypatch):
    """I-01: damaged records, modules without an installation or of another origin, unreadable directories are named."""
    broken, bare, gone, foreign = (eb_prefix.install(one) for one in (MINE, LATER, OTHER, BASE))
    lock = broken / "share/ebsif/lock.json"
    (bare / "share/ebsif/lock.json").unlink()
    shutil.rmtree(gone)
    shutil.rmtree(foreign / "share/ebsif")
    for text in ("{", "[]", "{}", '{"image": {"file": 1}}', '{"image": {"file": "a"}, "venv_packages": ["a"]}',
                 '{"image": {"file": "a", "size": "x"}}', '{"image": {"file": "a"}, "module": []}'):
        lock.write_text(text)
        (one,), problems = inventory.installations()
        assert (one.module, str(lock) in one.damage) == (MINE, True), text
    texts = {one.subject: (one.level, one.text) for one in problems}
    assert texts[LATER] == ("error", f"its installation has no {bare}/share/ebsif/lock.json: install it again with "
                                     "eb --rebuild")
    assert texts[OTHER] == ("error", f"its installation {gone} is gone: remove the module file, or install it again "
                                     "with eb")
    assert texts[BASE] == ("note", "not installed with ebsif, so nothing is known of it")
    # as root, no directory is unreadable
    listed = inventory.Path.iterdir
    monkeypatch.setattr(inventory.Path, "iterdir", lambda path: listed(path) if path.name != "PyTorch" else denied())
    _, problems = inventory.installations([str(eb_prefix.software)])
    assert [str(one) for one in problems] == [f"{eb_prefix.software}/PyTorch:1: warning: can't be read, so what is "
                                              "installed there is unknown: Permission denied"]


def test_a_closed_installation(eb_prefix, monkeypatch):
    """I-01: what others don't let us read is named, found by its module file or its directory."""
    root = eb_prefix.install(MINE)
    (root / "share/ebsif/lock.json").unlink()
    monkeypatch.setattr(inventory, "is_closed", lambda path: path == root)
    said = f"|{root}|can't be read, so what is installed there is unknown: permission denied"
    assert found(eb_prefix.modules) == found(eb_prefix.software) == ([], [said])


def denied():
    """Raise the error of a directory that can't be read."""
    raise PermissionError(13, "Permission denied")


def state(root, **image):
    """The state of the image of an installation whose record is changed, without and with reading it."""
    path = root / "share/ebsif/lock.json"
    record = json.loads(path.read_text())
    record["image"] = {key: value for key, value in {**record["image"], **image}.items() if value is not None}
    path.write_text(json.dumps(record))
    one = inventory.installations([str(root)])[0][0]
    return tuple(imagestate.examine(one, verify) for verify in (False, True))


def test_altered_images(eb_prefix):
    """I-03: truncated, replaced, written to, gone: by size and time; with --verify also where these are the same."""
    root = eb_prefix.install(MINE)
    image = root / "a.sif"
    # of an earlier version of ebsif
    assert [one.state for one in state(root, sha256=None)] == ["size not recorded"] * 2
    recorded = {"kind": "own", "size": 5000, "mtime_ns": image.stat().st_mtime_ns,
                "sha256": hashlib.sha256(bytes(5000)).hexdigest()}
    quick, verified = state(root, **recorded)
    assert (quick.state, verified.state, quick.kind, quick.path, quick.problem) == (
        "as recorded", "verified", "own", image, None)
    image.write_bytes(bytes(5000))
    quick, verified = state(root)
    assert (quick.state, verified.state, quick.is_bad) == ("time changed", "verified", False)
    assert "`ebsif installed --verify` tells whether its content has changed" in quick.problem
    image.write_bytes(b"x" + bytes(4999))
    os.utime(image, ns=(recorded["mtime_ns"], recorded["mtime_ns"]))
    quick, verified = state(root)
    assert (quick.state, verified.state) == ("as recorded", "changed")
    remedy = f"install the module again with `eb --rebuild {MINE.replace('/', '-')}.eb`"
    assert verified.problem.endswith(f"{hashlib.sha256(image.read_bytes()).hexdigest()}: {remedy}")
    for size, word in ((400, "truncated"), (6000, "replaced")):
        image.write_bytes(bytes(size))
        for one in state(root):
            assert (one.state, one.is_bad, one.size) == ("changed", True, size)
            assert f"was {word} after the installation" in one.problem
    image.unlink()
    assert [(one.state, one.path, one.problem) for one in state(root)] == [
        ("gone", None, f"the image {image} is gone: {remedy}")] * 2


def test_images_of_others(eb_prefix, tmp_path):
    """I-03: a reference names whose image is gone or changed, a central image where it should be."""
    root = eb_prefix.install(MINE)
    (root / "a.sif").rename(tmp_path / "a.sif")
    shared = {"kind": "reference", "origin": BASE, "resolved": str(tmp_path / "a.sif"), "size": 5000}
    assert state(root, **shared)[0].state == "as recorded"
    assert state(root, size=6000)[0].problem.endswith(
        f"install {BASE}, whose image it is, again with `eb --rebuild`, then this module")
    (tmp_path / "a.sif").unlink()
    assert f"which is that of {BASE}: install {BASE} again" in state(root)[0].problem
    assert "is the file system mounted? If the image was removed, put the right image back" in \
        state(root, kind="central", origin=None)[0].problem
