"""The run script that copies user software and images to nodes, without a container and a scheduler."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from support import CONTAINER_FILES, attempt, write_program

PROGRAM = CONTAINER_FILES / "runscripts/stage-software"


class Node:
    """A node with a loaded module: an image and user software in an installation, and a directory of its own."""

    def __init__(self, folder):
        self.root, self.local = folder / "in, stallation:1", folder / "local"
        for path in (self.root / "runscripts", self.root / "share/ebsif", self.local):
            path.mkdir(parents=True)
        self.image, self.software = self.root / "image.sif", self.root / "user-software.squashfs"
        self.image.write_bytes(b"image")
        self.software.write_bytes(b"software")
        self.binds = r"/scratch," + str(self.software).replace(",", r"\,").replace(":", r"\:") + ":/user-software:ro,/x"
        self.environment = {
            **{"PATH": os.environ["PATH"], "CONTAINERROOT": self.root, "EBSIF_NODE_LOCAL": self.local},
            **{"SIF": self.image, "SIFEXAMPLE": self.image, "EBSIF_MOUNTED_USER_SOFTWARE": self.software},
            **{f"{runtime}_BINDPATH": self.binds for runtime in ("SINGULARITY", "APPTAINER")},
        }

    def run(self, *arguments, status=0, **environment):
        """Run the script; return (standard output, standard error)."""
        result = attempt(["bash", PROGRAM, *arguments], env={**self.environment, **environment})
        assert result.returncode == status, result.stderr
        return result.stdout, result.stderr

    def plan(self, *options):
        """Plan what to copy; return the directory and the lines for the files."""
        self.environment["EBSIF_STAGED"] = text = self.run("--plan", *options)[0].rstrip("\n")
        place, *files = text.splitlines()
        return place, files

    def seen(self):
        """Return what a rank sees: its arguments and variables."""
        names = ("SIF", "SIFEXAMPLE", "EBSIF_MOUNTED_USER_SOFTWARE", "SINGULARITY_BINDPATH", "APPTAINER_BINDPATH")
        code = "printf '%s\\n' " + " ".join(['"$@"', *(f'"${name}"' for name in names)])
        return self.run("--use", "bash", "-c", code, "bash", self.image, self.image)[0].splitlines()


@pytest.fixture
def node(tmp_path):
    """A node."""
    return Node(tmp_path)


def digest(path):
    """Return the SHA256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_ranks_of_a_node_use_its_copies(node):
    """T-05: image and user software are copied, and image, binds and variables lead to the copies until their end."""
    place, files = node.plan("--image")
    assert files == [f"{digest(path)} {path}" for path in (node.software, node.image)]
    shared = node.seen()
    assert shared == [str(node.image)] * 4 + [str(node.software), node.binds, node.binds]
    assert node.run("--copy") == ("", "")
    image, software = f"{place}/image.sif", f"{place}/user-software.squashfs"
    binds = f"/scratch,{software}:/user-software:ro,/x"
    assert node.seen() == [image, str(node.image), image, image, software, binds, binds]
    assert Path(place).stat().st_mode & 0o777 == 0o700
    node.run("--remove")
    assert list(node.local.iterdir()) == [] and node.seen() == shared


def test_a_broadcast_is_checked(node):
    """T-05: what a command has copied is used if its digest is right; otherwise it is removed, and that is said."""
    place, _ = node.plan("--image")
    assert node.seen()[0] == str(node.image)
    node.run("--prepare")
    node.run("--broadcast", "cp", "--preserve")
    assert node.seen()[0] == str(node.image), "a copy that nobody has checked"
    with Path(place, "image.sif.new").open("a") as copy:
        copy.write("more")
    _, said = node.run("--check")
    assert f"the copy of {node.image} has another SHA256" in said and said.count("\n") == 1
    assert node.seen()[:1] + node.seen()[4:5] == [str(node.image), f"{place}/user-software.squashfs"]
    assert [path.name for path in Path(place).iterdir()] == ["user-software.squashfs"]


def test_several_tasks_of_a_node_copy_at_once(node, tmp_path):
    """Each has a copy of its own until that is checked, and says nothing if another one was faster."""
    place, _ = node.plan()
    # each has copied, or has looked at the SHA256, before the first one renames
    (tmp_path / "bin").mkdir()
    waiting = (
        f'#!/bin/bash\nPATH=${{PATH#*:}} "${{0##*/}}" "$@"\nstatus=$?\ntouch {tmp_path}/"${{0##*/}}-$PPID"\n'
        f'until (($(ls {tmp_path} | grep -c "^${{0##*/}}-") >= 3)); do sleep 0.02; done\nexit "$status"\n'
    )
    for step, names in ((["--copy"], ("cp", "sha256sum")), (["--check"], ("sha256sum",))):
        for path in (*tmp_path.glob("bin/*"), *tmp_path.glob("cp-*"), *tmp_path.glob("sha256sum-*")):
            path.unlink()
        for name in names:
            write_program(tmp_path / "bin" / name, waiting)
        if step == ["--check"]:
            Path(place, "user-software.squashfs").rename(Path(place, "user-software.squashfs.new"))
        environment = {**node.environment, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "env": environment}
        tasks = [subprocess.Popen(["bash", PROGRAM, *step], **options) for _ in range(3)]
        assert [(task.communicate(timeout=300)[1], task.returncode) for task in tasks] == [("", 0)] * 3
        assert [path.name for path in Path(place).iterdir()] == ["user-software.squashfs"]
    assert Path(place, "user-software.squashfs").read_bytes() == b"software"


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["--broadcast", "false"], 1, "false failed: ranks read "),
        (["--check"], 0, ""),
        (["--remove"], 0, ""),
        (["--prepare"], 1, "no directory for the copies"),
        (["--copy"], 0, "no directory for the copies"),
        ([], 64, "usage: "),
    ],
)
def test_ranks_start_without_copies(node, arguments, status, expected):
    """T-05: where the directory on the node is gone, or the broadcast fails, the ranks use the shared files."""
    node.plan()
    node.local.rmdir()
    assert expected in node.run(*arguments, status=status)[1]
    assert node.seen()[4] == str(node.software)


def test_nothing_to_copy(node):
    """T-05: a directory with user software is not copied, and without the module there is nothing to copy."""
    node.software.unlink()
    node.software.mkdir()
    assert "is not copied to the nodes because it is a directory" in node.run("--plan", status=1)[1]
    assert node.plan("--image")[1] == [f"{digest(node.image)} {node.image}"]
    assert "load the module" in node.run("--plan", status=1, SIF="/gone")[1]


def test_the_directory_on_the_node(node):
    """T-05: the copies are where the caches of jobs are: in the first directory that is there."""

    def place(**variables):
        return str(Path(node.run("--plan", EBSIF_NODE_LOCAL="", **variables)[0].splitlines()[0]).parent)

    # a module without caches
    assert place() == "/tmp"
    settings = node.root / "share/ebsif/module.conf"
    settings.write_text("start A=1\ncache_node ${DISK}/x\ncache_node /not/${DISK}/there\n")
    assert "no directory on this node" in node.run("--plan", status=1, EBSIF_NODE_LOCAL="/gone")[1]
    (node.local / "x").mkdir()
    assert place(DISK=str(node.local)) == f"{node.local}/x"
    settings.write_text("cache_node relative\ncache_node /dev/shm\n")
    assert place(DISK="") == "/dev/shm"


def test_the_recorded_digest(node):
    """T-05: that of the image is in the record of the installation; user software may have changed since."""
    record = {"image": {"sha256": "b" * 64}, "user_software": {node.software.name: "a" * 64}}
    (node.root / "share/ebsif/lock.json").write_text(json.dumps(record, indent=2, sort_keys=True))
    assert node.plan("--image")[1] == [f"{digest(node.software)} {node.software}", f"{'b' * 64} {node.image}"]
