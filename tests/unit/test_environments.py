"""Requirements read from virtual environments made by hand."""

import json
import os
from unittest.mock import Mock

import pytest
from ebsif.packages import requirements, venv


def package(packages, name, version="1.0", files=(), direct_url=None):
    """Add a package to a folder of packages, as pip does."""
    info = packages / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: none\n")
    (info / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in [f"{name}.py", *files]))
    (packages / f"{name}.py").touch()
    if direct_url:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    return info


@pytest.fixture
def environment(tmp_path):
    """A virtual environment with every kind of package."""
    root = tmp_path / "environment"
    packages = root / "lib/python3.12/site-packages"
    package(packages, "optuna", "4.5.0", ["../../../bin/optuna", '"a,b.py"'])
    package(packages, "pip", "24.0", ["../../../bin/pip"])
    package(packages, "setuptools", "80.0")
    package(packages, "labeled", "2.0+lumi_aif_gfx90a_1234")
    git = {"vcs": "git", "commit_id": "abc"}
    package(packages, "cloned", direct_url={"url": "https://example.org/c.git", "vcs_info": git})
    package(packages, "part", direct_url={"url": "https://example.org/p.zip", "subdirectory": "a b"})
    package(packages, "fetched", direct_url={"url": "https://example.org/fetched.tar.gz", "archive_info": {}})
    wheel = tmp_path / "built wheel-1.0-py3-none-any.whl"
    wheel.touch()
    package(packages, "built", direct_url={"url": wheel.as_uri(), "archive_info": {}})
    package(packages, "gone", direct_url={"url": "file:///none/gone-1.0.whl", "archive_info": {}})
    package(packages, "mine", direct_url={"url": "file:///home/me/mine", "dir_info": {"editable": True}})
    (packages / "broken-1.0.dist-info").mkdir()
    # nobody waits for it (P-03)
    os.mkfifo(packages / "broken-1.0.dist-info/METADATA")
    (packages / "a,b.py").touch()
    (packages / "__pycache__").mkdir()
    (packages / "old-3.0.egg-info").write_text("Name: old\nVersion: 3.0\n")
    (root / "lib64").symlink_to("lib")
    return root


def test_packages_of_an_environment(environment):
    """Every package with version and origin; whatever can't be a requirement is named."""
    built = environment.parent / "built wheel-1.0-py3-none-any.whl"
    wanted = venv.read(environment)
    fetched = ["cloned @ git+https://example.org/c.git@abc", "fetched @ https://example.org/fetched.tar.gz"]
    pinned = ["gone==1.0", "labeled==2.0+lumi_aif_gfx90a_1234", "old==3.0", "optuna==4.5.0"]
    part = "part @ https://example.org/p.zip#subdirectory=a%20b"
    assert wanted.lines == [built.as_uri(), *fetched, *pinned, part, "setuptools==80.0"]
    broken, gone, mine = wanted.impossible
    assert broken == "broken-1.0.dist-info: no name or version in its metadata, not taken over"
    assert gone.startswith("gone 1.0: /none/gone-1.0.whl, which it was installed from, no longer exists: this version")
    assert mine.startswith("mine 1.0: installed in development mode (pip install -e) from file:///home/me/mine")


def test_an_environment_of_two_pythons(tmp_path):
    """`python -m venv --upgrade` leaves the packages of the earlier Python."""
    for version in ("3.9", "3.12"):
        package(tmp_path / f"lib/python{version}/site-packages", "a", version)
    assert venv.read(tmp_path).lines == ["a==3.12"]


def test_damaged_origins():
    """E-08: they count as unknown."""
    damaged = [[], {"url": "git", "vcs_info": "git"}, {"url": "git", "vcs_info": {"vcs": "git"}}]
    for origin in (*damaged, {"url": "https://example.org", "dir_info": []}):
        line, said, _ = venv.requirement("a", "1.0", json.dumps(origin))
        assert line == "a==1.0" and said.startswith("its direct_url.json can't be read: this version comes from")


def test_a_wheel_in_a_closed_directory(monkeypatch):
    """E-08: of an administrator, for example: that its users can't look for it is no error."""
    origin = json.dumps({"url": "file:///root/a-1.0.whl", "archive_info": {}})
    with monkeypatch.context() as closed:
        closed.setattr(os, "stat", Mock(side_effect=PermissionError(13, "Permission denied")))
        line, said, gone = venv.requirement("a", "1.0", origin)
    assert (line, str(gone)) == ("a==1.0", "/root/a-1.0.whl") and said.startswith(
        "/root/a-1.0.whl, which it was installed from, no longer exists"
    )


def test_an_environment_in_user_software(environment, tmp_path):
    """A module's user software: the environment is in a subdirectory."""
    outer = tmp_path / "user-software"
    (outer / "venv").mkdir(parents=True)
    environment.rename(outer / "venv/pytorch")
    wanted = venv.read(outer)
    assert "optuna==4.5.0" in wanted.lines
    package(outer / "venv/other/lib/python3.12/site-packages", "x")
    with pytest.raises(requirements.RequirementsError, match="several environments .*venv/other, venv/pytorch"):
        venv.read(outer)


def test_no_environment(tmp_path):
    """The error names the path and what is missing."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare/lib/python3.12/site-packages").mkdir(parents=True)
    for name, expected in (
        ("none", "none doesn't exist: a directory or a SquashFS file is required"),
        ("empty", "empty contains no Python environment"),
        ("bare", "bare contains no package that pip can install"),
    ):
        with pytest.raises(requirements.RequirementsError, match=expected):
            venv.read(tmp_path / name)
