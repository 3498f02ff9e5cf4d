"""Copying an image while computing its SHA256."""

import hashlib
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import copying
from easybuild.easyblocks.generic.container.record.lockfile import Record
from easybuild.easyblocks.generic.container.values import SQUASHFS
from easybuild.easyblocks.generic.containervenv import ContainerVenv
from easybuild.tools.build_log import EasyBuildError
from support import attempt, printed, write_program

BLOCK = 8192


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Small blocks, so that small files consist of many."""
    monkeypatch.setattr(copying, "BLOCK", BLOCK)


def copy_image(source, target):
    """Copy a file; return its SHA256."""
    with source.open("rb") as image:
        return copying.copy_hashed(image, str(target))


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
    assert copy_image(source, target) == hashlib.sha256(content).hexdigest()
    assert target.read_bytes() == content
    assert [path.name for path in folder.iterdir() if path != source] == ["target.sif"]


def test_planted_links_are_not_followed(tmp_path):
    """P-02: not to the file that somebody has put in the way."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "target.partial").symlink_to(tmp_path / "victim")
    (tmp_path / "source").write_bytes(b"image")
    with pytest.raises(EasyBuildError, match="symbolic link"):
        copy_image(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_write_that_fails(tmp_path):
    """S002-01: a write fails halfway: an error, no partial file, and an earlier copy stays."""
    (tmp_path / "source").write_bytes(os.urandom(20 * BLOCK))
    (tmp_path / "target").write_text("earlier")
    # in a separate process, which has a limit on file size
    code = (
        "import sys; from easybuild.easyblocks.generic.container import copying as c\n"
        "c.BLOCK = int(sys.argv[3])\n"
        "try: c.copy_hashed(open(sys.argv[1], 'rb'), sys.argv[2])\nexcept c.EasyBuildError as err: print(err)"
    )

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 * BLOCK + 100, 10 * BLOCK + 100))

    command = [sys.executable, "-c", code, tmp_path / "source", tmp_path / "target", str(BLOCK)]
    said = printed(command, preexec_fn=limit, timeout=60)
    assert "File too large" in said
    assert f"Copying the image {tmp_path}/source to {tmp_path}/target failed" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]
    assert (tmp_path / "target").read_text() == "earlier"


@pytest.mark.parametrize(("source_mode", "mode"), [(0o644, 0o644), (0o640, 0o640), (0o466, 0o664), (0o4777, 0o775)])
def test_the_copy_keeps_the_mode(tmp_path, source_mode, mode):
    """A copy has the source's mode, without write permission for others."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"image")
    source.chmod(source_mode)
    before = os.umask(0o077)
    try:
        copy_image(source, target)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o7777 == mode


def test_stripes_before_copying(tmp_path, monkeypatch):
    """T-06: on Lustre the image is copied into a file with stripes, which others can't read meanwhile."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {"stat": "echo bd00bd0", "lfs": f'echo "$*" >{tmp_path}/noted; umask 0; : >"${{@: -1}}"'}.items():
        write_program(programs / name, f"#!/bin/sh\n{text}\n".replace("${@: -1}", f"{tmp_path}/target.partial"))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    run, modes = [], []

    def run_program(words, **_):
        run.append(attempt(words))
        return SimpleNamespace(output=run[0].stdout)

    monkeypatch.setattr(copying, "run_program", run_program)

    class Source(io.BytesIO):
        """A file that notes the mode of its copy while it is read."""

        name, fileno = "source", staticmethod(lambda: 0)

        def read(self, size=-1):
            modes.append((tmp_path / "target.partial").stat().st_mode & 0o777)
            return super().read(size)

    copying.copy_hashed(Source(b"image"), str(tmp_path / "target"), ["-c", "8"])
    assert (tmp_path / "noted").read_text() == f"setstripe -c 8 {tmp_path}/target.partial\n"
    assert set(modes) == {0o600} and (tmp_path / "target").read_bytes() == b"image"
    assert (run[0].returncode, run[0].stderr) == (0, "")
    (tmp_path / "source").write_bytes(b"image")
    copy_image(tmp_path / "source", tmp_path / "target")
    assert len(run) == 1


@pytest.mark.usefixtures("configuration")
def test_user_software_of_a_lock_is_verified_as_it_was_copied(tmp_path):
    """R-03: a SquashFS file that changes between its verification and the copy isn't installed."""
    taken = tmp_path / "taken.squashfs"
    taken.write_bytes(b"user software")
    wanted = hashlib.sha256(taken.read_bytes()).hexdigest()
    parts = {"build": SimpleNamespace(squashfs=str(taken)), "spec": SimpleNamespace(lustre_striping=[])}
    easyblock = SimpleNamespace(installdir=str(tmp_path), stages=lambda: ["one"], dry_run=False, **parts)
    easyblock.find_repeated = lambda: Record(user_software={SQUASHFS: wanted})
    easyblock.check_squashfs = lambda found: ContainerVenv.check_squashfs(easyblock, found)
    easyblock.check_squashfs(wanted)
    taken.write_bytes(b"other software")
    with pytest.raises(EasyBuildError, match=r"taken\.squashfs is not the user software of the lock"):
        ContainerVenv.install_additions(easyblock)
