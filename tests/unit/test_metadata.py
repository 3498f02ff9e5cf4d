"""The metadata of the project: pyproject.toml, and the files for citation that repeat a part of it."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from packaging.requirements import Requirement
from support import CHECKOUT, CONTAINER_FILES, attempt, project, tracked

VERSION_FILE = CONTAINER_FILES / "VERSION"
VERSION = VERSION_FILE.read_text().strip()
WORKFLOWS = sorted((CHECKOUT / ".github/workflows").glob("*.yml"))
# What jobs may write; others only read the repository.
RIGHTS = {
    "build": {"id-token", "attestations"},
    "index": {"id-token"},
    "page": {"contents"},
    "deploy": {"pages", "id-token"},
}
CITATION = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text())
CODEMETA = json.loads((CHECKOUT / "codemeta.json").read_text())
CHANGES = (CHECKOUT / "CHANGELOG.md").read_text()


def test_files_for_citation_agree_with_the_project():
    """CITATION.cff and codemeta.json repeat what pyproject.toml and the file VERSION have."""
    about = project()
    assert about["dynamic"] == ["version"]
    assert CITATION["version"] == CODEMETA["version"] == VERSION
    assert CITATION["abstract"] == CODEMETA["description"] == about["description"]
    assert CITATION["keywords"] == CODEMETA["keywords"] == about["keywords"]
    assert CITATION["authors"] == about["authors"]
    assert [one["name"] for one in CODEMETA["author"]] == [one["name"] for one in about["authors"]]
    assert CITATION["license"] == about["license"]
    assert CODEMETA["license"].endswith(f"/{about['license']}")
    needed = [f"Python{about['requires-python']}", *about["dependencies"]]
    assert list(map(Requirement, CODEMETA["softwareRequirements"])) == list(map(Requirement, needed))
    assert CITATION.get("repository-code") == CODEMETA.get("codeRepository") == about["urls"].get("Repository")


def test_the_release_has_a_day():
    """Each section of the list of changes has the day of its release, except for the next one."""
    headings = re.findall(r"^## (.*)", CHANGES, re.MULTILINE)
    days = dict(re.fullmatch(r"([\d.]+) \((unreleased|\d{4}-\d\d-\d\d)\)", heading).groups() for heading in headings)
    assert "unreleased" not in list(days.values())[1:]
    assert str(CITATION["date-released"]) == CODEMETA["dateModified"] == days[VERSION]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_is_there_with_few_rights(path):
    """Workflows use actions by digest, commands of this repository, and rights to publish only where it's done."""
    content = yaml.safe_load(path.read_text())
    assert content["permissions"] == {"contents": "read"}
    for name, job in content["jobs"].items():
        writes = {right for right, value in job.get("permissions", {}).items() if value == "write"}
        assert writes in (set(), RIGHTS.get(name)), name
        steps = job.get("steps", [{"uses": job["uses"]}] if "uses" in job else [])
        for used in (step["uses"] for step in steps if "uses" in step):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", used) or (CHECKOUT / used).is_file(), used
        for command in (step["run"] for step in steps if "run" in step):
            subprocess.run(["bash", "-n", "-c", command], check=True)
            for script in re.findall(r"\bscripts/[\w-]+", command):
                assert (CHECKOUT / script).is_file(), script


def test_a_workflow_runs_each_target_with_tests():
    """Whatever `make` can test or measure is run by a workflow, for each change or each week."""
    targets = set(re.findall(r"^(check|bench|test[\w-]*):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    weekly = yaml.safe_load((CHECKOUT / ".github/workflows/weekly.yml").read_text())["jobs"]["test"]
    assert targets == {"check", "test", *weekly["strategy"]["matrix"]["target"]}


def test_the_catalog_has_a_directory_of_its_own():
    """`ebsif docs` refuses a directory with other pages, such as the manual's pages for LUMI."""
    steps = yaml.safe_load((CHECKOUT / ".github/workflows/pages.yml").read_text())["jobs"]["build"]["steps"]
    (folder,) = re.findall(r"-o pages/(\S+)", " ".join(step.get("run", "") for step in steps))
    assert not (CHECKOUT / "docs" / folder.partition("/")[0]).exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("echo >new", "there are changes that are not committed"),
        ("sed -i 's/^## 0.*/## 0/' CHANGELOG.md && git commit -qam x", "CHANGELOG.md has no section '## "),
        ("git tag v$(cat $VERSION) && git commit -q --allow-empty -m x", " is another commit: change "),
        ("git tag v$(cat $VERSION)", "add the line 'Repository = \"https://example.org/ebsif\"' to [project.urls]"),
    ],
    ids=["uncommitted", "changes", "tag", "repository"],
)
def test_a_release_that_lacks_something_is_refused(tmp_path, change, said):
    """A release that lacks something is refused before anything is built, with the remedy."""
    for path in tracked("CHANGELOG.md", "pyproject.toml", "scripts/build-release", "scripts/lib.sh", str(VERSION_FILE)):
        target = tmp_path / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    # setting everything up is the next step
    (tmp_path / "scripts/setup-venv").write_text("#!/bin/sh\necho not refused >&2\nexit 1\n")
    who = "git config user.name x && git config user.email x@example.org"
    script = f"git init -q . && {who} && git add . && git commit -qm 1 && {change} && exec scripts/build-release"
    command = ["bash", "-ec", f"{script} --repository https://example.org/ebsif"]
    version = {"VERSION": str(VERSION_FILE.relative_to(CHECKOUT))}
    done = attempt(command, cwd=tmp_path, env={**os.environ, **version})
    assert done.returncode == 1 and said in done.stderr and "not refused" not in done.stderr, done.stderr


def test_the_recipe_for_conda_agrees_with_the_project():
    """Names, version, requirements and the command are those of pyproject.toml."""
    recipe, about = yaml.safe_load((CHECKOUT / "scripts/conda/recipe.yaml").read_text()), project()
    assert recipe["context"]["version"] == VERSION
    assert (recipe["package"]["name"], recipe["about"]["summary"]) == (about["name"], about["description"])
    assert (recipe["about"]["license"], [recipe["about"]["license_file"]]) == (about["license"], about["license-files"])
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(one) for one in about["scripts"].items()]
    needed = [Requirement(text.partition(";")[0]) for text in about["dependencies"]]
    assert [Requirement(text) for text in recipe["requirements"]["run"]] == [
        Requirement(f"python{about['requires-python']}"),
        *needed,
    ]


def test_the_action_checks_a_catalog(tmp_path):
    """The action annotates a mistake in a catalog and fails; with `strict`, warnings count."""
    action = yaml.safe_load((CHECKOUT / "action.yml").read_text())
    setup, install, check = action["runs"]["steps"]
    assert re.fullmatch(r"actions/setup-python@[0-9a-f]{40}", setup["uses"]) and "$GITHUB_ACTION_PATH" in install["run"]
    assert set(check["env"].values()) == {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    profile = tmp_path / "catalog/mine/site.yaml"
    profile.parent.mkdir(parents=True)
    answers = []
    for text, strict in (
        ("gpu: amd", "false"),
        ("gpu: none  # review: which?", "false"),
        ("gpu: none  # review: x", "true"),
    ):
        profile.write_text(f"name: mine\ndescription: a machine\n{text}\n")
        environment = {**os.environ, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}
        environment |= {"CATALOG": "catalog", "STRICT": strict}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", check["run"]]
        done = attempt(command, cwd=tmp_path, env=environment)
        answers.append((done.returncode, re.findall(r"^::\w+ file=[^,]+,line=\d+", done.stdout, re.MULTILINE)))
    assert answers == [
        (1, ["::error file=catalog/mine/site.yaml,line=3"]),
        (0, ["::warning file=catalog/mine/site.yaml,line=3"]),
        (1, ["::warning file=catalog/mine/site.yaml,line=3"]),
    ]
