"""A disk that is full: in the copy of the image, in pip, mksquashfs, unsquashfs, the module file."""

import os
import random
import shlex
import shutil
import subprocess

import pytest
from parts import Installed, wheel_settings
from support import CONTAINER_FILES, make_wheel

TEXT = Installed.TEXT
WORKS = "module load Example/1.0 && singularity exec $SIF python -c 'import hello'"


@pytest.fixture
def noise(wheels, tmp_path):
    """Wheels, one of them with 30 MB that can't be compressed."""
    folder = tmp_path / "wheels"
    shutil.copytree(wheels, folder)
    text = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789ABCDEF", k=40_000_000))
    make_wheel(folder, "noise", module_text=f"data = {text!r}\n")
    return folder


def in_small(site, path, size, script, wheels, **environment):
    """Run a script with a small file system at a path, which is gone when it ends; `eb` and `module` are there."""
    prelude = [f"mount -t tmpfs -o size={size} none {shlex.quote(str(path))}", site.tool.init,
               f"module use {shlex.quote(str(site.modules))}",
               "eb() { command eb " + " ".join(map(shlex.quote, site.eb_options)) + ' "$@"; }',
               f"resize() {{ mount -o remount,size=$1 {shlex.quote(str(path))}; }}",
               f"used() {{ du -sk {shlex.quote(str(path))} | cut -f 1; }}"]
    command = ["unshare", "--mount", "--map-root-user", "bash", "--noprofile", "--norc", "-c",
               "\n".join([*prelude, script])]
    return site.run(command, check=False, **wheel_settings(wheels), **environment)


INSTALLED_BEFORE = """
    set -e
    eb {before} >/dev/null
    {tighten}
    set +e
    eb {after} --rebuild {options} >{log} 2>&1 && echo "it did not fail"
    ({works}) && echo "the earlier one works"
    echo "beside it:" $(ls {beside})
    {widen}
    eb {after} --rebuild {options} >{log}.again 2>&1 && echo "a second attempt succeeds"
    ({works}) && echo "the new one works"
"""


@pytest.mark.parametrize(("place", "where", "requirement", "tighten"), [
    ("the copy of the image", "eb/software", "greeting", "resize $(($(used) + 50000))k"),
    ("mksquashfs", "eb/software", "noise", "resize $(($(used) + 99192832 / 1024 + 3000))k"),
    ("pip", "build", "noise", "resize 20m"),
    ("the module file", "eb/modules", "greeting", "resize $(($(used) + 4))k"),
])
def test_installing_again(site, noise, tmp_path, fault, place, where, requirement, tighten):
    """The earlier installation works, the message says that the disk is full, with more space it succeeds."""
    case = fault("disk full", f"in {place}")
    small = site.prefix / where
    small.mkdir(parents=True)
    before = site.easyconfig(TEXT + "requirements = ['hello']\n")
    before = before.rename(tmp_path / "before.eb")
    after = site.easyconfig(TEXT + f"requirements = ['hello', {requirement!r}]\n")
    log = tmp_path / "log"
    options = f"--buildpath={site.prefix}/build"
    script = INSTALLED_BEFORE.format(before=before, after=after, tighten=tighten, widen="resize 2g", works=WORKS,
                                     log=log, options=options, beside=site.prefix / "eb/software/Example")
    result = in_small(site, small, "2g", script, noise)
    said = log.read_text() if log.exists() else ""
    case.kept("the earlier one works" in result.stdout, result.stdout + result.stderr + said[-2000:])
    case.kept("beside it: 1.0\n" in result.stdout, result.stdout)
    case.shown("it did not fail" not in result.stdout, "eb said nothing of it")
    case.shown("disk is full" in said or "No space left on device" in said, said[-2000:])
    again = (tmp_path / "log.again").read_text()
    case.kept("a second attempt succeeds" in result.stdout, again[-2000:])
    case.kept("the new one works" in result.stdout, result.stderr)


@pytest.mark.parametrize("name", ["make-squashfs", "unmake-squashfs"])
def test_squashfs_commands(tmp_path, fault, name):
    """What was there stays, nothing half-made is left, the message says what happened; then it succeeds."""
    case = fault("disk full", f"in {name}")
    root = tmp_path / "installation"
    root.mkdir()
    made, source = ("user-software.squashfs", "user-software")[:: 1 if name == "make-squashfs" else -1]
    script = f"""
        cd {root}
        mount -t tmpfs -o size=100m none {root}
        cd {root}
        cp -r {CONTAINER_FILES}/. .
        mkdir user-software
        head -c 20000000 /dev/urandom >user-software/file
        cp user-software/file {tmp_path}/file
        {"bin/make-squashfs; rm -r user-software" if name.startswith("un") else ""}
        mount -o remount,size=25m {root}
        bin/{name} 2>{tmp_path}/said && echo "it did not fail"
        ls -A >{tmp_path}/left
        mount -o remount,size=100m {root}
        bin/{name} && test -e {made} && test -e {source} && echo "a second attempt succeeds"
        rm -rf user-software
        bin/unmake-squashfs && cmp user-software/file {tmp_path}/file && echo "nothing is lost"
    """
    result = subprocess.run(["unshare", "--mount", "--map-root-user", "bash", "-c", script], capture_output=True,
                            text=True, check=False, env={**os.environ, "SIF": "/nonexistent"})
    said = (tmp_path / "said").read_text()
    left = (tmp_path / "left").read_text().split()
    case.shown("it did not fail" not in result.stdout, said)
    case.said(said, "nothing was changed", "o space left on device")
    case.kept(source in left and made not in left and not [one for one in left if one.startswith(".")], left)
    case.kept("a second attempt succeeds" in result.stdout, result.stderr)
    case.kept("nothing is lost" in result.stdout, result.stderr)
