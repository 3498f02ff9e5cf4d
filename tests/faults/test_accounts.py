"""Who may do what: modes and groups of an installation, its use by another account, files of the temporary kind."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from parts import Installed, example_site, wheel_settings
from support import CONTAINER_FILES

TEXT = Installed.TEXT
OTHER = "nobody"


@pytest.fixture(scope="module")
def central(base_image, wheels):
    """A central installation: one module with a SquashFS file, one with a directory; others may read it."""
    prefix = Path(tempfile.mkdtemp(prefix="ebsif-central-"))
    prefix.chmod(0o755)
    site = example_site(prefix, base_image, "EnvironmentModules-Tcl")
    site.eb(site.easyconfig(TEXT + "requirements = ['greeting']\nwrappers = ['python']\n", suffix="-file"),
            site.easyconfig(TEXT, suffix="-directory"), **wheel_settings(wheels))
    yield site
    shutil.rmtree(prefix)


def state(folder):
    """Every file below a directory with what tells whether it was touched."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_mode, status.st_uid, status.st_size,
                            status.st_mtime_ns, status.st_ctime_ns)
    return found


@pytest.mark.parametrize("suffix", ["-file", "-directory"])
def test_another_account_uses_it(central, wheels, tmp_path, fault, suffix):
    """Loading, programs, packing, pip: nothing in the installation changes, and what can't be done is said.

    use D10, G-05: the hint when pip fails is about what is there, and following it works.
    """
    case = fault("another account", suffix[1:])
    software = central.prefix / "eb"
    before = state(software)
    home = Path(tempfile.mkdtemp(prefix="ebsif-home-"))
    script = "\n".join([
        central.tool.init, f"module use {central.modules}", f"module load Example/1.0{suffix} || exit 99", "cd /",
        "singularity exec $SIF python -c 'import numpy, json.tool; print(numpy.__name__)'",
        "start-shell -c 'python -c \"import xml.dom.minidom; print(1 + 1)\"'",
        "list-packages >/dev/null", "make-squashfs; echo made $?", "unmake-squashfs; echo unmade $?",
        f"singularity exec $SIF pip install --no-index --find-links {wheels} byhand; echo pip $?",
        # what pip's hint says works
        "make-venv $HOME/env; source $HOME/env/bin/activate",
        f"pip install --quiet --no-index --find-links {wheels} byhand",
        "python -c 'import byhand; print(byhand.__file__)'; deactivate",
        "mkdir $HOME/place; export EBSIF_USER_SOFTWARE=$HOME/place",
        "test -e $CONTAINERROOT/user-software || { unmake-squashfs && echo own; }"])
    try:
        os.chown(home, 65534, 65534)
        command = ["runuser", "-u", OTHER, "--", "env", f"HOME={home}", f"TMPDIR={home}", "bash", "--norc", "-c",
                   script]
        result = central.run(command, check=False, cwd="/")
    finally:
        shutil.rmtree(home)
    case.kept("numpy\n2\n" in result.stdout, result.stdout + result.stderr)
    if suffix == "-file":
        case.shown("made 2" in result.stdout and "unmade 4" in result.stdout, result.stdout)
        case.said(result.stderr, "can't write in")
        case.kept("own" in result.stdout, result.stderr)
    else:
        case.shown("made 4" in result.stdout and "unmade 2" in result.stdout, result.stdout)
    case.shown("pip 0" not in result.stdout, "pip said nothing of it")
    case.said(result.stderr, "hint:   make-venv DIRECTORY")
    packed = suffix == "-file"
    case.shown(("packed in a SquashFS file" in result.stderr) == packed, result.stderr)
    case.said(result.stderr, "export EBSIF_USER_SOFTWARE=$(realpath DIRECTORY); unmake-squashfs")
    case.kept(f"{home}/env/lib/python3.11/site-packages/byhand.py" in result.stdout, result.stdout + result.stderr)
    after = state(software)
    case.kept(before == after, sorted(set(before.items()) ^ set(after.items()))[:4])


@pytest.mark.parametrize(("umask", "options", "may"), [
    ("077", [], 0o755), ("022", [], 0o755), ("002", ["--group-writable-installdir", "--set-gid-bit"], 0o775),
    ("027", ["--group-writable-installdir", "--set-gid-bit"], 0o775),
    ("000", [], 0o755)])
def test_modes(base_image, wheels, tmp_path, fault, umask, options, may):
    """What is in an installation can be read by whoever may enter it, is written by no others, whatever the umask."""
    case = fault("modes", f"umask {umask} {' '.join(options)}")
    site = example_site(tmp_path, base_image, "EnvironmentModules-Tcl")
    command = ["eb", *site.eb_options, *options, site.easyconfig(TEXT + "wrappers = ['python']\n")]
    site.run(["bash", "-c", f'umask {umask}; exec "$@"', "bash", *command], **wheel_settings(wheels))
    root = site.prefix / "eb/software/Example/1.0"
    for path in [root / "user-software", *(root / "user-software").rglob("*"), *(root / "bin").iterdir(),
                 *(root / "runscripts").iterdir(), *root.glob("*.sif"), root / "share/ebsif/lock.json"]:
        if path.is_symlink():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        inside = path.is_relative_to(root / "user-software")
        case.kept(not mode & stat.S_IWOTH, f"{path}: {mode:o} lets everybody write")
        if inside:
            wanted = 0o444 | (0o111 if path.is_dir() else 0) | (0o020 if may & 0o020 else 0)
            case.kept(mode & wanted == wanted, f"{path}: {mode:o}")
            case.kept(bool(mode & stat.S_IWGRP) == bool(may & 0o020), f"{path}: {mode:o}, the group")


def test_work_is_private(tmp_path, fault):
    """While make-squashfs works, nobody else can look into its work directory, whatever the umask."""
    case = fault("private directories", "make-squashfs")
    root = tmp_path / "installation"
    shutil.copytree(CONTAINER_FILES, root)
    (root / "user-software").mkdir()
    (root / "user-software/file").write_text("x")
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "mksquashfs").write_text(
        f'#!/bin/bash\nstat -c %a "{root}"/.make-squashfs.* >>{tmp_path}/modes\n'
        f'exec {shutil.which("mksquashfs")} "$@"\n')
    (shims / "mksquashfs").chmod(0o755)
    subprocess.run(["bash", "-c", 'umask 000; exec "$0"', root / "bin/make-squashfs"], check=True, capture_output=True,
                   env=dict(os.environ, PATH=f"{shims}:{os.environ['PATH']}"))
    modes = set((tmp_path / "modes").read_text().split())
    case.kept(modes == {"700"}, modes)


def test_cache_files_are_one_s_own(tmp_path, fault):
    """What `ebsif render` remembers is in the person's cache, which nobody else can write or read."""
    case = fault("private directories", "the cache of render")
    command = [Path(sys.prefix) / "bin/ebsif", "render", "--site", "local", "-o", "easyconfigs"]
    subprocess.run(["bash", "-c", 'umask 000; exec "$@"', "bash", *command], cwd=tmp_path, check=True,
                   capture_output=True, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    (path,) = (tmp_path / ".cache/ebsif/render").iterdir()
    case.kept(stat.S_IMODE(path.parent.stat().st_mode) == 0o700, oct(path.parent.stat().st_mode))
