"""What ordinary users may and may not do, and another account with the installations of this one."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from account import OWN_MOUNTS, as_root
from parts import Installed


def test_a_machine_without_squashfuse(installed_once):
    """I-04: the doctor says so; with it, nothing is wrong with what an ordinary user has installed."""
    assert os.geteuid() != 0
    site = installed_once.site
    doctor = ["ebsif", "doctor", "--installed", site.prefix / "eb"]
    assert site.run(doctor).stderr.endswith("2 modules checked: nothing is wrong\n")
    hide = 'for path in $(type -ap squashfuse squashfuse_ll); do mount --bind /dev/null "$path" || exit 9; done; "$@"'
    result = site.run([*OWN_MOUNTS, "bash", "-c", hide, "bash", *doctor], check=False)
    said = " ".join((result.stdout + result.stderr).split())
    assert result.returncode == 1 and "error: squashfuse: not found" in said and "2 modules checked: 1 error" in said


@pytest.fixture
def users_directory():
    """The home directory of another user than the installations' owner, with a directory for user software."""
    with as_root():
        home = Path(tempfile.mkdtemp(prefix="ebsif-home-"))
        os.chown(home, 1, 1)
    yield home
    with as_root():
        shutil.rmtree(home)


@pytest.mark.parametrize("module", [Installed.WRITABLE, Installed.SQUASHED])
def test_a_users_own_user_software(installed_once, users_directory, wheels, module):
    """G-05: one's own user software starts from another account's module, with either kind of user software."""
    root = installed_once.root(module)
    before = sorted((str(path), path.lstat().st_ctime_ns) for path in root.rglob("*"))
    site = installed_once.site
    script = f"""
        {site.tool.init}
        module use {site.modules}
        cd; id -un
        echo "# there is none yet"
        export EBSIF_USER_SOFTWARE=$HOME/place
        unmake-squashfs 2>/dev/null
        unset EBSIF_USER_SOFTWARE
        module load {module} || exit 99
        singularity exec $SIF pip install --no-index nothing 2>&1 | grep hint
        unmake-squashfs; echo "unmade $?"
        echo "# its own"
        mkdir place; export EBSIF_USER_SOFTWARE=$HOME/place
        unmake-squashfs; echo "unmade $?"
        module unload {module}; module load {module}
        singularity exec -B {wheels} $SIF pip install --quiet --no-index --find-links {wheels} byhand && echo pip
        make-squashfs; echo "made $?"
        rm -r place/user-software
        module unload {module}; module load {module}
        singularity exec $SIF python -c 'import byhand; print(byhand.__file__)'
        unmake-squashfs; echo "unmade $?"
    """
    command = ["runuser", "-u", "daemon", "--", "env", f"HOME={users_directory}", f"TMPDIR={users_directory}"]
    command += [f"EBSIF_NODE_LOCAL={users_directory}", "bash", "--norc", "-c", script]
    with as_root():
        result = site.run(command, check=False, cwd="/")
    said = result.stdout + result.stderr
    first, second = result.stdout.split("# its own\n")
    assert "EBSIF_USER_SOFTWARE=$(realpath DIRECTORY)" in first, said
    assert "hint: user software is packed" in first if module == Installed.SQUASHED else "packed" not in first, said
    assert f"unmade {4 if module == Installed.SQUASHED else 2}" in first, said
    assert second.splitlines() == [
        "unmade 0",
        "pip",
        "made 0",
        "/user-software/venv/pytorch/lib/python3.11/site-packages/byhand.py",
        "unmade 0",
    ], said
    assert f"reload the module to use and change {users_directory}/place/user-software" in result.stderr, said
    # only the user's own files are suggested for removal
    for line in said.splitlines():
        if "remove" in line:
            assert str(root) not in line, line
    assert f"(rm '{users_directory}/place/user-software.squashfs')" in result.stderr, said
    assert sorted((str(path), path.lstat().st_ctime_ns) for path in root.rglob("*")) == before


def test_closed_places_of_a_person(site):
    """F-09: a configuration file, its directory or a home directory that can't be read stops no command."""
    configuration = site.home / ".config/ebsif/config.yaml"
    configuration.parent.mkdir(parents=True, exist_ok=True)
    configuration.write_text("site: lumi\n")
    for closed in (configuration, configuration.parent, site.home):
        mode = closed.stat().st_mode
        closed.chmod(0)
        try:
            said = site.run(["env", f"HOME={site.home}", "ebsif", "list"], cwd="/")
        finally:
            closed.chmod(mode)
        assert "PyTorch/2.13.0" in said.stdout
        told = f"{configuration} can't be read, so its settings are not used"
        assert (told in said.stderr) == (closed != site.home)
    configuration.unlink()
