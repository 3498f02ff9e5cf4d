"""The record of EasyBuild's own suites, run on the easyblock proposed to it."""

import hashlib
import json
import re

from support import CHECKOUT

RECORD = json.loads((CHECKOUT / "tests/data/upstream.json").read_text())
EASYBLOCK = CHECKOUT / "docs/upstream/containerimage.py"
PAGE = (CHECKOUT / "docs/upstream.md").read_text()


def test_the_suites_passed_with_this_easyblock():
    """W-06, W-08: recorded with the file as it is (again: scripts/test-upstream), and shown in the proposal."""
    assert RECORD["easyblock"] == hashlib.sha256(EASYBLOCK.read_bytes()).hexdigest()
    assert set(RECORD["passed"]) == {"style", "general", "init_easyblocks", "module"}
    shown = re.search(r"<!-- record -->\n(.*?)<!-- end of record -->", PAGE, re.DOTALL).group(1)
    assert re.findall(r"^\| (\w+) \| passed \|$", shown, re.MULTILINE) == [*RECORD["passed"]]
    assert "FAILED" not in shown
    for value in (RECORD["date"], RECORD["framework"], RECORD["easyblocks"][:9]):
        assert value in shown


def test_its_size_is_as_stated():
    """W-06: what the proposal says about the files."""
    assert f"{len(EASYBLOCK.read_text().splitlines())} lines with the header" in PAGE
    for path in EASYBLOCK.parent.glob("*.patch"):
        lines = re.findall(r"^\+(?!\+\+ )(.*)", path.read_text(), re.MULTILINE)
        # as upstream checks
        assert max(map(len, lines)) <= 120
        added = len(lines)
        assert re.search(rf"\({EASYBLOCK.parent.name}/{path.name}\) .* {added} \|$", PAGE, re.MULTILINE), (path, added)


def test_it_cites_what_there_is_and_says_who_made_it():
    """A-04: earlier issues and the other easyblock; the policy on AI, and what it asks for; and it is small."""
    for link in (
        "EESSI/software-layer/issues/323",
        "generic/apptainer.py",
        "easybuild-framework/issues/122",
        "docs/policies/ai.md",
    ):
        assert f"{link})" in PAGE, link
    declared = " ".join(PAGE.partition("## Who made it")[2].split())
    assert "written by AI coding agents" in declared and "answers for it" in declared
    assert len(EASYBLOCK.read_text().splitlines()) <= 150


def test_nothing_depends_on_it():
    """Nothing of the product uses the proposed easyblock."""
    for path in [
        *(CHECKOUT / "easyblocks").rglob("*.py"),
        *(CHECKOUT / "generator").rglob("*.py"),
        CHECKOUT / "pyproject.toml",
    ]:
        assert not re.search(r"ContainerImage\b|containerimage\b", path.read_text()), path
