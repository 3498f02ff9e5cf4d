"""Permissions: modes and groups of an installation, its use by another account, private temporary files."""

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from account import as_root, in_group
from parts import Installed, example_site
from support import CONTAINER_FILES, printed, write_program

TEXT = Installed.TEXT
# without pip
PACKED = "requirements = [{'verify': ['true']}]\n"
OTHER = "nobody"
# a project's, not the account's own
GROUP = 1
# of each module with user software, and with a wrapper
SCRIPTS = """
    start-shell list-packages make-squashfs unmake-squashfs make-venv extend-venv-activate with-module python
    conda-python-simple init-conda-venv conda-python-distributed get-master find-caches remove-caches show-help
    stage-software slurm-rank flux-rank
"""


@pytest.fixture(scope="module")
def central(base_image):
    """A central installation that others can read: a module with a SquashFS file and one with a directory."""
    prefix = Path(tempfile.mkdtemp(prefix="ebsif-central-"))
    prefix.chmod(0o755)
    site = example_site(prefix, base_image, "EnvironmentModules-Tcl")
    text = TEXT + "wrappers = ['python']\n"
    easyconfigs = [site.easyconfig(text + PACKED, suffix="-file"), site.easyconfig(text, suffix="-directory")]
    command = ["eb", *site.eb_options, *easyconfigs]
    site.run(["bash", "-c", 'umask 022; exec "$@"', "bash", *command])
    yield site
    shutil.rmtree(prefix)


def state(folder):
    """Return all files below a directory with whatever shows that one was touched."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        times = (status.st_mtime_ns, status.st_ctime_ns)
        found[str(path)] = (status.st_ino, status.st_mode, status.st_uid, status.st_size, *times)
    return found


@pytest.mark.parametrize("suffix", ["-file", "-directory"])
def test_another_account_uses_it(central, wheels, tmp_path, fault, suffix):
    """Another account loads, runs, packs and uses pip: the installation doesn't change, and errors say why not.

    G-05: the hint after a failure of pip suits the situation, and following it works.
    """
    case = fault("another account", suffix[1:])
    software = central.prefix / "eb"
    before = state(software)
    script = f"""
        {central.tool.init}
        module use {central.modules}
        module load Example/1.0{suffix} || exit 99
        cd /
        singularity exec $SIF python -c 'import numpy, json.tool; print(numpy.__name__)'
        start-shell -c 'python -c "import xml.dom.minidom; print(1 + 1)"'
        list-packages >/dev/null
        make-squashfs; echo made $?
        unmake-squashfs; echo unmade $?
        singularity exec $SIF pip install --no-index --find-links {wheels} byhand; echo pip $?
        # following pip's hint works
        make-venv $HOME/env; source $HOME/env/bin/activate
        pip install --quiet --no-index --find-links {wheels} byhand
        python -c 'import byhand; print(byhand.__file__)'; deactivate
        # leaving the environment has unloaded the module
        module load Example/1.0{suffix}; mkdir $HOME/place; export EBSIF_USER_SOFTWARE=$HOME/place
        test -e $CONTAINERROOT/user-software || {{ unmake-squashfs && echo own; }}
    """
    with as_root(), tempfile.TemporaryDirectory(prefix="ebsif-home-") as home:
        os.chown(home, 65534, 65534)
        command = ["runuser", "-u", OTHER, "--", "env", f"HOME={home}", f"TMPDIR={home}", f"EBSIF_NODE_LOCAL={home}"]
        command += ["bash", "--norc", "-c", script]
        result = central.run(command, check=False, cwd="/")
    case.kept("numpy\n2\n" in result.stdout, result.stdout + result.stderr)
    if suffix == "-file":
        case.shown("made 2" in result.stdout and "unmade 4" in result.stdout, result.stdout)
        case.said(result.stderr, "can't write to")
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


def check_modes(case, root, may):
    """Check the modes of an installation's files (root) if directories have a certain mode (may)."""
    for path in [
        root / "user-software",
        *(root / "user-software").rglob("*"),
        *(root / "bin").iterdir(),
        *(root / "runscripts").rglob("*"),
        *root.glob("*.sif"),
        *(root / "share/ebsif").rglob("*"),
    ]:
        if path.is_symlink():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        inside = path.is_relative_to(root / "user-software")
        # whoever can enter the installation can use all files that modules and scripts read
        readable = 0o555 if path.is_dir() else 0o444 if path.suffix != ".sif" else 0
        case.kept(mode & readable == readable, f"{path}: {mode:o}")
        case.kept(not mode & stat.S_IWOTH, f"{path}: {mode:o} lets everybody write")
        if inside:
            wanted = 0o444 | (0o111 if path.is_dir() else 0) | (0o020 if may & 0o020 else 0)
            case.kept(mode & wanted == wanted, f"{path}: {mode:o}")
            case.kept(bool(mode & stat.S_IWGRP) == bool(may & 0o020), f"{path}: {mode:o}, the group")


def test_modes_with_a_usual_umask(central, fault):
    """Files of an installation are readable for everyone who can enter it, and writable for no others."""
    check_modes(fault("modes", "umask 022"), central.prefix / "eb/software/Example/1.0-directory", 0o755)


@pytest.mark.parametrize(
    ("umask", "options", "may"),
    [("077", [], 0o755), ("027", ["--group-writable-installdir", "--set-gid-bit"], 0o775), ("000", [], 0o755)],
)
def test_modes(base_image, tmp_path, fault, umask, options, may):
    """
    Modes don't depend on the umask.

    S003-20: helper scripts are a+rx. S002-45: a project group shares the installation.
    """
    case = fault("modes", f"umask {umask} {' '.join(options)}")
    # Environment Modules: Lmod hides unreadable modules even from root, so EasyBuild couldn't load this one
    site = example_site(tmp_path, base_image, "EnvironmentModules-Tcl")
    command = ["eb", *site.eb_options, *options, site.easyconfig(TEXT + "wrappers = ['python']\n")]
    site.run(["bash", "-c", f'umask {umask}; exec "$@"', "bash", *command])
    root = site.root()
    check_modes(case, root, may)
    if options:
        check_group(root / "user-software")
    mode = stat.S_IMODE((root / "share/ebsif/module.conf").stat().st_mode)
    case.kept(mode == 0o644 | may & 0o020, f"module.conf: {mode:o}")
    scripts = [
        path
        for folder in ("bin", "runscripts")
        for path in (root / folder).iterdir()
        if path.is_file() and not path.suffix
    ]
    case.kept({script.name for script in scripts} == set(SCRIPTS.split()), scripts)
    for script in scripts:
        case.kept(stat.S_IMODE(script.stat().st_mode) & 0o555 == 0o555, script)


def check_group(folder):
    """Check that the group can write everything in a folder, and that its directories are set-gid."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            mode = path.stat().st_mode
            wanted = 0o2070 if path.is_dir() else 0o060
            assert mode & wanted == wanted, (path, oct(mode))


def test_user_software_shared_by_a_group(tmp_path, base_image):
    """
    S002-45: a project group shares the installation: modes in directory and SquashFS file allow the group.

    G-12: in a project's set-gid directory, user software is set-gid and the group's, despite umask 077.
    """
    # Environment Modules: Lmod hides unreadable modules even from root
    site = example_site(tmp_path, base_image, "EnvironmentModules-Tcl")
    software = site.prefix / "eb/software"
    software.mkdir(parents=True)
    with as_root():
        os.chown(software, -1, GROUP)
        software.chmod(0o2775)
    easyconfigs = [site.easyconfig(TEXT, suffix="-dir"), site.easyconfig(TEXT + PACKED, suffix="-file")]
    command = ["eb", *site.eb_options, "--group-writable-installdir", *easyconfigs]
    with in_group(GROUP):
        site.run(["bash", "-c", 'umask 077; exec "$@"', "bash", *command])
    for path in (software / "Example").rglob("*"):
        # EasyBuild adds its log and copies last
        if not path.is_symlink() and "easybuild" not in path.parts:
            status = path.lstat()
            wanted = 0o2070 if path.is_dir() else 0o060
            assert status.st_mode & wanted == wanted, (path, oct(status.st_mode))
            assert status.st_gid == GROUP, path
    for suffix in ("-dir", "-file"):
        script = f"umask 0027; module load Example/1.0{suffix}; test -e $CONTAINERROOT/user-software || unmake-squashfs"
        with in_group(GROUP):
            site.bash(script)
        check_group(software / f"Example/1.0{suffix}/user-software")
    with in_group(GROUP):
        site.bash("umask 0077; module load Example/1.0-dir; touch $CONTAINERROOT/user-software/late; make-squashfs")
    squashfs = software / "Example/1.0-dir/user-software.squashfs"
    listing = printed(["unsquashfs", "-ll", squashfs])
    lines = [line for line in listing.splitlines() if "squashfs-root" in line and not line.startswith("l")]
    assert lines
    assert not [line for line in lines if line[4:6] != "rw"]


def test_the_work_directory_is_private(tmp_path, fault):
    """While make-squashfs runs, nobody else can read its work directory, whatever the umask."""
    case = fault("private directories", "make-squashfs")
    root = tmp_path / "installation"
    shutil.copytree(CONTAINER_FILES, root)
    (root / "user-software").mkdir()
    (root / "user-software/file").write_text("x")
    shims = tmp_path / "shims"
    shims.mkdir()
    write_program(
        shims / "mksquashfs",
        f'#!/bin/bash\nstat -c %a "{root}"/.make-squashfs.* >>{tmp_path}/modes\n'
        f'exec {shutil.which("mksquashfs")} "$@"\n',
    )
    command = ["bash", "-c", 'umask 000; exec "$0"', root / "bin/make-squashfs"]
    subprocess.run(command, check=True, capture_output=True, env=dict(os.environ, PATH=f"{shims}:{os.environ['PATH']}"))
    modes = set((tmp_path / "modes").read_text().split())
    case.kept(modes == {"700"}, modes)
