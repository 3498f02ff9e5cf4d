"""The compatibility table, its record, and the versions that the project allows."""

import re
import sys

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from support import CHECKOUT, CONTAINER_FILES, project

sys.path.insert(0, str(CHECKOUT / "tools/versions"))

import record


def versions(part, step="install"):
    """Return the recorded versions of a part, for which a step was tried, oldest first."""
    return sorted(Version(row["version"]) for row in record.read() if row["part"] == part and step in row["steps"])


def test_the_table_is_the_record():
    """W-05, W-08: the table of the documentation is what was recorded, and everything worked."""
    rows = record.read()
    assert record.TABLE.findall(record.PAGE.read_text()) == [record.table(rows)]
    assert {row["part"] for row in rows} == set(record.PARTS)
    assert not [row for row in rows if set(row["steps"].values()) != {record.WORKS}]
    # a release needs a record of its own
    assert {row["ebsif"] for row in rows} == {(CONTAINER_FILES / "VERSION").read_text().strip()}
    assert all(re.fullmatch(r"[0-9a-f]{7,}(-dirty)?", row["commit"]) for row in rows)
    # a step that was left out is neither recorded nor shown as one that works
    assert {row["version"] for row in rows if "without" in record.tried_version(row)} == {"3.6", "3.7", "3.8"}
    assert {row["version"] for row in rows if set(row["steps"]) != set(record.STEPS)} == {"3.6", "3.7", "3.8"}


def test_a_version_that_fails_is_shown_as_such():
    """W-05: the table has the steps that failed or were left out of each version."""
    steps = {**dict.fromkeys(record.STEPS[1:-1], record.WORKS), "install": record.FAILS}
    assert record.tried_version({"version": "1.0", "steps": steps}) == "1.0 (fails: install; without commands)"


def test_versions_are_those_that_the_project_allows():
    """W-05: the oldest versions that were tried are the lower bounds of pyproject.toml, and all others are allowed."""
    required = {one.name: one.specifier for one in map(Requirement, project()["dependencies"])}
    for name in ("easybuild-framework", "easybuild-easyblocks"):
        assert bound(required[name]) == versions("EasyBuild")[0]
    assert all(version in required["easybuild-framework"] for version in versions("EasyBuild"))
    pythons = SpecifierSet(project()["requires-python"])
    assert bound(pythons) == versions("Python", "commands")[0]
    assert [version for version in versions("Python") if version in pythons] == versions("Python", "commands")
    assert f"{versions('Python')[0]} and newer" in record.PAGE.read_text()


def bound(specifier):
    """Return the lower bound of a specifier that consists of nothing else (Version)."""
    (one,) = specifier
    assert one.operator == ">="
    return Version(one.version)


def test_the_release_is_for_the_pythons_that_were_tried():
    """W-05, W-10: the wheels of a release are those for the Pythons of the table."""
    text = (CHECKOUT / "scripts/build-easyconfig").read_text()
    pythons = re.findall(r'"([\d.]+)"', re.search(r"^PYTHONS = (.*)", text, re.MULTILINE).group(1))
    assert pythons == [str(version) for version in versions("Python", "commands")]
