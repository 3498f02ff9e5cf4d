"""Everything again as an ordinary user, where the tests run as root."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from parts import TOOLS, Installed
from support import CHECKOUT, Site

ORDINARY = "nobody"


@pytest.fixture(scope="module")
def user_site(base_image, wheels):
    """A site of an ordinary user: the caller, or an account without rights if that is root."""
    user = ORDINARY if os.getuid() == 0 else None
    prefix = Path(tempfile.mkdtemp(prefix="ebsif-user-"))
    prefix.chmod(0o755)
    image = prefix / "image.sif"
    shutil.copy(base_image, image)
    venv = prefix / "venv"
    # the account has to reach the virtual environment; the one of the checkout may lie where it can't
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", venv], check=True)
    # from a copy: building writes into the source, which other tests use
    source = prefix / "source"
    source.mkdir()
    parts = ["setup.cfg", "pyproject.toml", "README.md", "LICENSE", "generator", "easyblocks", "easyconfigs"]
    subprocess.run(["cp", "-r", *(CHECKOUT / name for name in parts), source], check=True)
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "--quiet", source]
    subprocess.run([str(word) for word in pip], check=True, capture_output=True)
    site = Site(prefix / "site", TOOLS["Lmod-Lua"](), venv, user)
    if user:
        account = pwd.getpwnam(user)
        for path in [prefix, *prefix.glob("site/**")]:
            os.chown(path, account.pw_uid, account.pw_gid)
    yield site
    shutil.rmtree(prefix)


def test_an_ordinary_user_installs_and_uses_both_modules(user_site, base_image, wheels):
    """S002-42, S002-33, S002-32, S001-08: installation and use need no rights: runtime, SquashFS mount and pip."""
    installed = Installed(user_site, user_site.prefix.parent / "image.sif", wheels)
    code = "import greeting, numpy; print(greeting.__file__, numpy.__file__)"
    assert installed.output(installed.SQUASHED, f"singularity exec $SIF python -c '{code}'").split() == [
        "/user-software/venv/pytorch/lib/python3.11/site-packages/greeting.py",
        "/opt/miniconda3/envs/pytorch/lib/python3.11/site-packages/numpy/__init__.py",
    ]
    output = installed.output(
        installed.WRITABLE,
        f"""
        set -e
        id -u
        singularity exec -B {wheels} $SIF pip install --quiet --no-index --find-links {wheels} byhand
        make-squashfs
        rm -r $CONTAINERROOT/user-software
        module unload {installed.WRITABLE}; module load {installed.WRITABLE}
        list-packages
        """,
    )
    assert output.split()[0] != "0"
    assert "byhand" in output
