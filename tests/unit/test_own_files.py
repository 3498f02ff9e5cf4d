"""Files that somebody has put into an installation besides packages."""

import os
import shutil
import subprocess

import pytest
from easybuild.easyblocks.generic.container.usersoftware import FILE_TIME, set_file_times
from ebsif.cli import main
from prefixes import LATER, MINE


@pytest.fixture(params=["directory", "file"])
def edited(request, eb_prefix):
    """An extension with files of all kinds; returns its directory."""
    root = eb_prefix.install(MINE, ["greeting==1.0"])
    software = root / "user-software"
    site = software / "venv/pytorch/lib/python3.11/site-packages"
    write(site, {"greeting.py": "1", "old.py": "1", "greeting-1.0.dist-info/RECORD": "greeting.py,sha256=x,1\n"})
    set_file_times(str(software))
    eb_prefix.add(root, "hello", "1.0")
    # a list of files that nothing can read
    write(site, {"odd-1.0.dist-info/RECORD": "x" * 200000})
    listed = {"hello-1.0.dist-info/RECORD": "hello.py,sha256=x,1\n../../../bin/hello,sha256=x,1\n"}
    write(site, {"hello.py": "1", "../../../bin/hello": "1", "__pycache__/greeting.pyc": "1", **listed})
    write(software, {"my data/a/model.pt": "1", "my data/b": "1"})
    write(site, {"greeting.py": "changed", "loose.py": "1"})
    if request.param == "file":
        subprocess.run(["mksquashfs", software, f"{software}.squashfs", "-quiet", "-no-progress"], check=True)
        shutil.rmtree(software)
    return root


def write(folder, texts):
    """Write files."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


SITE = "/user-software/venv/pytorch/lib/python3.11/site-packages"
LOST = f"/user-software/my data, {SITE}/greeting.py, {SITE}/loose.py"


def test_files_by_hand_are_named(edited, eb_prefix, ebsif):
    """No extension has files that were added by hand; a message says so, and nothing with them is removed unseen."""
    said = ebsif("extend", "mine", "--add", "rich", "-n").err
    assert "added by hand, which are taken along: hello==1.0" in said
    assert f"{MINE} has files that were added or changed by hand, which are not taken along: {LOST}\n" in said
    later = eb_prefix.install(LATER, ["greeting==1.0", "hello==1.0"])
    set_file_times(str(later / "user-software"))
    shown = ebsif("remove", "mine", "--older", "--yes", status=1).err
    assert f"{MINE} has {LOST}, which {LATER} doesn't have: it stays" in shown
    # whoever has copied them, loses nothing
    for path in LOST.split(", "):
        write(later, {f"{path[1:]}/x" if path.endswith("data") else path[1:]: "1"})
    assert main(["remove", "mine", "--older", "--yes"]) == 0
    assert not edited.exists()


def test_scripts_by_hand_are_named(eb_prefix, ebsif):
    """Scripts beside a module's commands and run scripts are named, too; nothing that the installation has."""
    root = eb_prefix.install(MINE, scripts={})
    set_file_times(str(root / "user-software"))
    os.utime(root / "user-software", (FILE_TIME, FILE_TIME))
    assert "by hand" not in ebsif("extend", "mine", "--add", "rich", "-n").err
    write(root, {"runscripts/my-own": "1"})
    said = ebsif("extend", "mine", "--add", "rich", "-n").err
    assert "by hand, which are not taken along: runscripts/my-own\n" in said
