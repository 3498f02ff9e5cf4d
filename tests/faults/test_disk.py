"""A full disk while copying the image, in pip, mksquashfs, unsquashfs, and while writing the module file."""

import base64
import os
import random
import shlex
import shutil

import pytest
from account import OWN_MOUNTS
from aptrepository import binds_of, make_deb
from parts import Installed, example_site, wheel_settings
from support import CONTAINER_FILES, attempt, make_wheel, write_program

MODULE = Installed.SQUASHED
TEXT = Installed.TEXT + "versionsuffix = '-squashed'\n"
WORKS = f"module load {MODULE} && singularity exec $SIF python -c 'import hello'"


@pytest.fixture
def noise(wheels, tmp_path):
    """Wheels, one of them with 5 MB of incompressible data."""
    folder = tmp_path / "wheels"
    shutil.copytree(wheels, folder)
    text = base64.b64encode(random.Random(1).randbytes(5_000_000)).decode()
    make_wheel(folder, "noise", module_text=f"data = {text!r}\n")
    return folder


# The step that fails, the directory that is a small file system, and what fills it, in the order of an installation:
# each attempt retries after the one before, and gets further. Without --every-point: the first and the last one.
PLACES = [
    ("pip", "build", "resize build 5m"),
    ("the copy of the image", "eb/software", "resize eb/software $(($(used eb/software) + 50000))k"),
    ("mksquashfs", "eb/software", "resize eb/software $(($(used eb/software) + 99192832 / 1024 + 3000))k"),
    ("the module file", "eb/modules", "resize eb/modules $(($(used eb/modules) + 4))k"),
]


def in_small(site, places, script, wheels=None, **environment):
    """Run a script with `eb` and `module`, and with small file systems in some directories, removed when it ends."""
    mounts = [f"mount -t tmpfs -o size=2g none {shlex.quote(str(site.prefix / place))}" for place in places]
    prefix = shlex.quote(str(site.prefix))
    prelude = [
        *mounts,
        site.tool.init,
        f"module use {shlex.quote(str(site.modules))}",
        "eb() { command eb " + " ".join(map(shlex.quote, site.eb_options)) + ' "$@"; }',
        f"resize() {{ mount -o remount,size=$2 {prefix}/$1; }}",
        f"used() {{ du -sk {prefix}/$1 | cut -f 1; }}",
    ]
    command = [*OWN_MOUNTS, "bash", "--noprofile", "--norc", "-c", "\n".join([*prelude, script])]
    return site.run(command, check=False, **(wheel_settings(wheels) if wheels else {}), **environment)


ATTEMPT = """
    set -e
    {tighten}
    set +e
    eb {after} --rebuild {options} >{log}.{number} 2>&1 && echo "{number} did not fail"
    ({works}) && echo "{number} the earlier one works"
    echo "{number} beside it:" $(ls {beside})
    resize {where} 2g
"""


def test_reinstalling(installations, noise, tmp_path, fault, request):
    """The earlier installation works, the error says that the disk is full, and with more space it succeeds."""
    site = installations("Lmod-Lua").copy(tmp_path, MODULE)
    steps = PLACES if request.config.getoption("--every-point") else [PLACES[0], PLACES[-1]]
    places = dict.fromkeys(where for _, where, _ in PLACES)
    before = tmp_path / "before"
    for place in places:
        (site.prefix / place).mkdir(parents=True, exist_ok=True)
        shutil.copytree(site.prefix / place, before / place, symlinks=True)
    after = site.easyconfig(TEXT + "requirements = ['hello', 'noise']\n")
    log, options = tmp_path / "log", f"--buildpath={site.prefix}/build"
    same = {"after": after, "works": WORKS, "log": log, "options": options}
    same["beside"] = site.prefix / "eb/software/Example"
    attempts = [
        ATTEMPT.format(number=number, tighten=tighten, where=where, **same)
        for number, (_, where, tighten) in enumerate(steps)
    ]
    again = f'eb {after} --rebuild {options} >{log}.again 2>&1 && echo "a second attempt succeeds"'
    script = "\n".join([f"cp -a {before}/. {site.prefix}", *attempts, again, f'({WORKS}) && echo "the new one works"'])
    result = in_small(site, places, script, noise)
    for number, (place, _, _) in enumerate(steps):
        case = fault("disk full", f"in {place}")
        path = tmp_path / f"log.{number}"
        said = path.read_text() if path.exists() else ""
        case.kept(f"{number} the earlier one works" in result.stdout, result.stdout + result.stderr + said[-2000:])
        case.kept(f"{number} beside it: 1.0-squashed\n" in result.stdout, result.stdout)
        case.shown(f"{number} did not fail" not in result.stdout, "eb said nothing of it")
        case.shown("disk is full" in said or "No space left on device" in said, said[-2000:])
    case = fault("disk full", "more space")
    case.kept("a second attempt succeeds" in result.stdout, (tmp_path / "log.again").read_text()[-2000:])
    case.kept("the new one works" in result.stdout, result.stderr)


def test_a_first_installation(small_image, tmp_path, fault):
    """E-15, S002-01: nothing half-made stays, and the message says it in words; with more space it succeeds."""
    site = example_site(tmp_path, small_image("busybox"))
    easyconfig = site.easyconfig("easyblock = 'ContainerInstall'\nsources = ['example.sif']\ninit = 'none'\n")
    # while scripts are written, and the image
    sizes = ("20k", "700k")
    left = f"find {site.prefix}/eb/software/Example {site.modules} -name '1.0*'"
    attempts = [f"resize eb/software {size}; eb {easyconfig} >said.{size} 2>&1; {left} >left.{size}" for size in sizes]
    for path in (site.prefix / "eb/software", site.modules):
        path.mkdir(parents=True)
    result = in_small(
        site,
        ["eb/software"],
        "\n".join(
            [*attempts, "resize eb/software 2g", f"eb {easyconfig} >/dev/null && module load Example/1.0 && ls $SIF"]
        ),
    )
    for size in sizes:
        case = fault("disk full", f"in a first installation, {size}")
        said = (site.work / f"said.{size}").read_text()
        case.said(said, "the disk is full")
        case.shown("[Errno" not in said and "Traceback" not in said, said[-2000:])
        left = (site.work / f"left.{size}").read_text()
        case.kept(not left, left)
    case.kept("example.sif" in result.stdout, result.stdout + result.stderr)


@pytest.mark.nightly
def test_system_packages(base_image, tmp_path, fault):
    """V-04: while the image's directories are copied to TMPDIR: directory and variable are named, it is emptied."""
    case = fault("disk full", "in TMPDIR, for system packages")
    repository = tmp_path / "repository"
    make_deb(repository, "greet", files={"usr/share/greet": "hello"})
    site = example_site(tmp_path, base_image)
    easyconfig = site.easyconfig(
        "easyblock = 'ContainerInstall'\nsources = ['example.sif']\ninit = 'none'\nsystem_packages = ['greet']\n"
    )
    (site.prefix / "small").mkdir()
    df = write_program(tmp_path / "df", "#!/bin/sh\necho 9000000000\n")
    result = in_small(
        site,
        ["small"],
        f"""
        resize small 100m
        TMPDIR={site.prefix}/small eb {easyconfig} >said 2>&1 && echo "it did not fail"
        # there is less space than is found at first
        TMPDIR={site.prefix}/small EBSIF_INSTALL_BIND=$EBSIF_INSTALL_BIND,{df}:/usr/bin/df eb {easyconfig} >later 2>&1
        find {site.prefix}/small -name 'system-*' -o -size +1M >left
        resize small 2g
        TMPDIR={site.prefix}/small eb {easyconfig} >again 2>&1 && echo "a second attempt succeeds"
    """,
        EBSIF_INSTALL_BIND=binds_of(repository),
    )
    case.shown("it did not fail" not in result.stdout, result.stdout)
    for name in ("said", "later"):
        said = (site.work / name).read_text()
        case.said(said, "the disk is full", "export TMPDIR=DIRECTORY")
        case.shown("Traceback" not in said and "[Errno" not in said, said)
    case.kept((site.work / "left").read_text() == "", (site.work / "left").read_text())
    case.kept("a second attempt succeeds" in result.stdout, (site.work / "again").read_text()[-2000:])


@pytest.mark.parametrize("name", ["make-squashfs", "unmake-squashfs"])
def test_squashfs_commands(tmp_path, fault, name):
    """Existing files stay, no partial file is left, the error says what happened; with more space it succeeds."""
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
    result = attempt([*OWN_MOUNTS, "bash", "-c", script], env={**os.environ, "SIF": "/nonexistent"})
    said = (tmp_path / "said").read_text()
    left = (tmp_path / "left").read_text().split()
    case.shown("it did not fail" not in result.stdout, said)
    case.said(said, "nothing was changed", "o space left on device")
    case.kept(source in left and made not in left and not [one for one in left if one.startswith(".")], left)
    case.kept("a second attempt succeeds" in result.stdout, result.stderr)
    case.kept("nothing is lost" in result.stdout, result.stderr)
