"""Copying an image while computing its SHA256."""

import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import imagecopy, lockfile
from easybuild.easyblocks.generic.container.usersoftware import SQUASHFS
from easybuild.easyblocks.generic.containervenv import ContainerVenv
from easybuild.tools.build_log import EasyBuildError

BLOCK = 8192


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Small blocks, so that small files consist of many."""
    monkeypatch.setattr(imagecopy, "BLOCK", BLOCK)


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    """A directory on disk, and one in memory."""
    if request.param == "disk":
        yield tmp_path
    else:
        path = Path(tempfile.mkdtemp(dir="/dev/shm"))
        yield path
        shutil.rmtree(path)


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 10 * BLOCK, 10 * BLOCK + 4095])
def test_the_copy_is_the_same_file(tmp_path, folder, size):
    """S002-01: files of any size: same bytes, correct SHA256, nothing else beside the copy."""
    content = os.urandom(size)
    source, target = tmp_path / "source", folder / "target.sif"
    source.write_bytes(content)
    assert imagecopy.copy_image(str(source), str(target)) == hashlib.sha256(content).hexdigest()
    assert target.read_bytes() == content
    assert [path.name for path in folder.iterdir() if path != source] == ["target.sif"]


def test_a_clone_is_not_written(tmp_path, monkeypatch):
    """Where the file system shares blocks between copies, the image is read once for its SHA256 and not written."""
    def clone(image, copy):
        Path(copy.name).write_bytes(Path(image.name).read_bytes())
        return True

    monkeypatch.setattr(imagecopy, "is_cloned", clone)
    monkeypatch.setattr(imagecopy, "write", None)
    content = os.urandom(5 * BLOCK + 7)
    (tmp_path / "source").write_bytes(content)
    digest = imagecopy.copy_image(str(tmp_path / "source"), str(tmp_path / "target"))
    assert digest == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "target").read_bytes() == content


def test_the_size_of_writes(tmp_path):
    """E-01: for large writes Linux looks for large pieces of memory; file systems that want them say so (Lustre)."""
    sizes = []
    with (tmp_path / "target").open("wb", buffering=0) as file:
        wanted = max(imagecopy.WRITE, os.fstat(file.fileno()).st_blksize)

        def partly(block):
            sizes.append(len(block))
            return file.write(block[:-1] if len(sizes) == 1 else block)

        content = os.urandom(3 * wanted + 5)
        imagecopy.write(SimpleNamespace(fileno=file.fileno, write=partly), memoryview(content))
    assert sizes == [wanted, wanted, wanted, 6]
    assert (tmp_path / "target").read_bytes() == content
    assert imagecopy.WRITE == 128 * 1024


def test_the_copy_is_not_kept_in_memory(tmp_path, monkeypatch):
    """S002-01: Linux may drop what it has written so far: the image is large, and the earlier copy is still there."""
    told = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *advice: told.append(advice))
    source = tmp_path / "source"
    source.write_bytes(bytes(2 * BLOCK + 7))
    imagecopy.copy_image(str(source), str(tmp_path / "target"))
    assert told == [(0, size, os.POSIX_FADV_DONTNEED) for size in (BLOCK, 2 * BLOCK, 2 * BLOCK + 7)]


def test_a_failed_copy_leaves_nothing(tmp_path):
    """S002-01: a copy that fails leaves no file that could be mistaken for an image."""
    target = tmp_path / "target.sif"
    with pytest.raises(EasyBuildError, match="Copying the image /does/not/exist.sif to .*target.sif failed"):
        imagecopy.copy_image("/does/not/exist.sif", str(target))
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails(tmp_path):
    """S002-01: a write fails halfway: an error, no partial file, and an earlier copy stays."""
    (tmp_path / "source").write_bytes(os.urandom(20 * BLOCK))
    (tmp_path / "target").write_text("earlier")
    # in a separate process, which has a limit on file size
    code = ("import sys; from easybuild.easyblocks.generic.container import imagecopy as c\n"
            "c.BLOCK = int(sys.argv[3])\n"
            "try: c.copy_image(*sys.argv[1:3])\nexcept c.EasyBuildError as err: print(err)")

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 * BLOCK + 100, 10 * BLOCK + 100))

    result = subprocess.run([sys.executable, "-c", code, tmp_path / "source", tmp_path / "target", str(BLOCK)],
                            capture_output=True, text=True, check=True, preexec_fn=limit, timeout=60)
    assert "File too large" in result.stdout
    assert f"Copying the image {tmp_path}/source to {tmp_path}/target failed" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]
    assert (tmp_path / "target").read_text() == "earlier"


@pytest.mark.parametrize(("source_mode", "mode"), [(0o644, 0o644), (0o640, 0o640), (0o755, 0o755), (0o466, 0o664),
                                                  (0o4777, 0o775)])
def test_the_copy_keeps_the_mode(tmp_path, source_mode, mode):
    """defects A11, lumi B8: the source's mode, without write permission for others."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"image")
    source.chmod(source_mode)
    before = os.umask(0o077)
    try:
        imagecopy.copy_image(str(source), str(target))
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o7777 == mode


MD5, SHA256, OTHER = "5" * 32, "a" * 64, "b" * 64


@pytest.mark.parametrize(("checksum", "right"), [
    (None, True), (SHA256, True), (OTHER, False), (MD5, True), ("6" * 32, False),
    (("sha256", SHA256), True), (("sha256", OTHER), False), (("size", 7), True), (("size", 8), False),
    ((OTHER, SHA256), True), ((OTHER, ("size", 7)), True), ((OTHER, OTHER), False), ((OTHER, OTHER, SHA256), True),
    ([SHA256, MD5], True), ([SHA256, OTHER], False), ({"x.sif": SHA256}, True), ({"x.sif": OTHER}, False),
    ({"x.sif": None}, True), ({"y.sif": SHA256}, False), ([{"x.sif": (OTHER, SHA256)}], True)])
def test_every_form_of_checksum(checksum, right):
    """G-06 (defects A4): the easyconfig's checksum, in any form of EasyBuild, is compared with the installed image."""
    found = {"sha256": SHA256, "md5": MD5, "size": 7}
    assert imagecopy.is_verified(checksum, "x.sif", found.__getitem__) is right


def test_stripes_before_copying(tmp_path, monkeypatch):
    """T-06: on Lustre the image is copied into a file with stripes, which others can't read meanwhile."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {"stat": "echo bd00bd0", "lfs": f'echo "$*" >{tmp_path}/noted; umask 0; : >"${{@: -1}}"'}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n".replace("${@: -1}", f"{tmp_path}/target.partial"))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    run = []
    monkeypatch.setattr(imagecopy, "run_program", lambda words, **_: run.append(subprocess.run(
        words, check=True, capture_output=True, text=True)) or type("Result", (), {"output": run[0].stdout}))
    modes = []
    monkeypatch.setattr(imagecopy, "transfer", lambda image, copy: modes.append(
        os.fstat(copy.fileno()).st_mode & 0o777) or ("digest", copy.write(image.read())))
    (tmp_path / "source").write_bytes(b"image")
    imagecopy.copy_image(str(tmp_path / "source"), str(tmp_path / "target"), ["-c", "8"])
    assert (tmp_path / "noted").read_text() == f"setstripe -c 8 {tmp_path}/target.partial\n"
    assert modes == [0o600] and (tmp_path / "target").read_bytes() == b"image"
    assert run[0].stderr == ""
    imagecopy.copy_image(str(tmp_path / "source"), str(tmp_path / "target"), [])
    assert len(run) == 1


@pytest.mark.usefixtures("configuration")
def test_user_software_of_a_lock_is_verified_as_it_was_copied(tmp_path):
    """R-03: a SquashFS file that changes between its verification and the copy isn't installed."""
    taken = tmp_path / "taken.squashfs"
    taken.write_bytes(b"user software")
    wanted = hashlib.sha256(taken.read_bytes()).hexdigest()
    easyblock = SimpleNamespace(
        installdir=str(tmp_path), stages=["one"], dry_run=False, squashfs_to_take=str(taken),
        spec=SimpleNamespace(lustre_striping=[]), repeated={lockfile.USER_SOFTWARE: {SQUASHFS: wanted}})
    easyblock.check_squashfs = lambda found: ContainerVenv.check_squashfs(easyblock, found)
    easyblock.check_squashfs(wanted)
    taken.write_bytes(b"other software")
    with pytest.raises(EasyBuildError, match=r"taken\.squashfs is not the user software of the lock"):
        ContainerVenv.install_additions(easyblock)
