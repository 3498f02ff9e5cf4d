"""Shell scripts of the project, and those that `ebsif job` writes, pass shellcheck."""

import re

import pytest
from ebsif.catalog import site
from ebsif.jobs import launchers
from ebsif_command import run_ebsif
from support import CHECKOUT, attempt, tracked


def shellcheck(*arguments):
    """Run shellcheck; its output is the message if it fails."""
    result = attempt(["shellcheck", *map(str, arguments)], cwd=CHECKOUT)
    assert result.returncode == 0, result.stdout + result.stderr


# in parts, for several processes
@pytest.mark.parametrize("part", range(4))
def test_the_scripts_of_the_project(part):
    """Found by file name or first line."""
    scripts = [
        path
        for path in tracked()
        if path.suffix in (".sh", ".bash")
        or (not path.suffix and re.match(rb"#!.*\b(ba)?sh|# shellcheck shell=", path.read_bytes()[:80]))
    ]
    assert len(scripts) >= 10
    shellcheck("-x", *scripts[part::4])


@pytest.mark.parametrize("name", site.names())
def test_the_scripts_for_batch_systems(name, tmp_path):
    """Scripts for all sites, with either launcher and all optional parts, and scripts that run eb."""
    more = ["--data", "a b", "--signal", "60", "PyTorch/2.7.1-x", "--", "train.py"]
    wanted = {one: ["--nodes", "2", "--launcher", one, *more] for one in launchers.LAUNCHERS}
    if site.read(name).scheduler:
        wanted["install"] = ["--install", "mine.eb", "--", "--robot", "a b"]
    for kind, arguments in wanted.items():
        run_ebsif(["job", "--site", name, "--account", "A", "-o", tmp_path / kind, *arguments]).check_returncode()
    # without warnings about files of the machine that the script is for
    shellcheck("--exclude=SC1090,SC1091,SC2016", *(tmp_path / kind for kind in wanted))
