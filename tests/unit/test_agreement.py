"""What scripts and Python have to say alike, because neither can read the other."""

import re

import pytest
from easybuild.easyblocks.generic.container import scripts
from support import CONTAINER_FILES, tracked

PYTHON = "\n".join(path.read_text() for path in tracked("easyblocks/generic/*.py", "easyblocks/generic/container/*.py"))
# what an expression finds in Python, and the same in scripts
SAME = {
    "the status for no pip": (r"NO_PIP_TO_COPY = (\d+)", {"share/ebsif/copy-pip.py": r"NOT_HERE = (\d+)"}),
    "the word of an image that is active by itself": (
        r"'WITH_CONDA': '(\w+)'", {"share/ebsif/run.bash": r'"\$\{SINGULARITYENV_WITH_CONDA:-\}" != (\w+) '}),
    "the module's own directory of run scripts": (
        r"'(/runscripts)/", {"share/ebsif/run.bash": r"\*:(/\w+):\*"}),
}


@pytest.mark.parametrize("what", SAME)
def test_values(what):
    """G-20: a value that a script has and Python expects."""
    expression, files = SAME[what]
    expected = set(re.findall(expression, PYTHON))
    assert len(expected) == 1
    for name, found in files.items():
        assert set(re.findall(found, (CONTAINER_FILES / name).read_text())) == expected, name


def test_what_make_squashfs_says():
    """The line that goes to the output of eb."""
    assert '\nsay "made $squashfs: ' in (CONTAINER_FILES / "bin/make-squashfs").read_text()
    assert """printf '%s: %s\\n' "${0##*/}" "$1" >&2""" in (CONTAINER_FILES / "share/ebsif/common.bash").read_text()
    assert scripts.PACKED == "make-squashfs: made "


def test_variables():
    """Each variable of the module that a script reads is one that the module sets, or that a person may set."""
    persons = {"EBSIF_GPU_VISIBILITY", "EBSIF_NODE_LOCAL", "EBSIF_REPORT"}
    internal = {"EBSIF_ENTERED"}
    read = set()
    for path in CONTAINER_FILES.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            read |= set(re.findall(r"(?<![\w-])(?:CONTAINER_?|EBSIF_)[A-Z_]+", path.read_text()))
    known = set(re.findall(r"(?:CONTAINER_?|EBSIF_)[A-Z_]+", PYTHON))
    assert read - known == persons | internal
    assert {"CONTAINER_GPU", "CONTAINER_USER_SOFTWARE", "CONTAINER_MODULE", "CONTAINER_ENTRY_POINT"} <= read & known


def test_every_program_for_images_is_used():
    """Nothing is left of what was replaced, and nothing is named that isn't there."""
    there = {path.name for path in (CONTAINER_FILES / "sh").iterdir()}
    named = set(re.findall(r"sh_command\('([\w.-]+)'", PYTHON))
    assert there == named
