"""Colors at a terminal, which files and pipes don't get."""

import os
import sys
from pathlib import Path

import pytest
from support import with_terminal

EBSIF = str(Path(sys.executable).with_name("ebsif"))
RED, YELLOW, GREEN, BOLD, CYAN, END = (f"\x1b[{number}m" for number in ("1;31", "1;33", "1;32", "1", "36", "0"))


@pytest.fixture
def shown(tmp_path):
    """A function that runs ebsif at a terminal, and returns what is shown."""

    def run(*words, **variables):
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        environment |= {"HOME": str(tmp_path), "TERM": "xterm", "EBSIF_SITE": "local", **variables}
        return with_terminal([EBSIF, *words], environment, tmp_path)[1].replace("\r\n", "\n")

    return run


def test_errors_names_and_commands_have_colors(shown):
    """N-04: an error, the names in a table and a command to type; NO_COLOR and a dumb terminal get plain text."""
    assert f"{RED}ebsif:{END} there is no command 'exted'" in shown("exted")
    assert f"(see {CYAN}`ebsif --help`{END})" in shown("exted")
    named = shown("list", "--site", "lumi", "AlphaFold", "--archived")
    assert f"{BOLD}AlphaFold/69afc4d-rocm-5.5.1-python-3.9-singularity-20240207" in named
    # what is done, and what may go wrong
    said = shown("job", "Tool/1.0", "-o", "job.sh", "--", "train.py")
    assert f"{GREEN}ebsif:{END} wrote job.sh" in said and f"{YELLOW}ebsif:{END} train.py does not exist" in said
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in shown("exted", **variables) + shown("list", "--site", "lumi", "AlphaFold", **variables)
    # https://no-color.org: an empty value counts as none
    assert RED in shown("exted", NO_COLOR="")


def test_levels_of_findings_have_colors(shown, tmp_path):
    """N-04: errors and warnings of a check are red and yellow; what comes from a catalog adds no sequences."""
    folder = tmp_path / "sites/mine/containers"
    folder.mkdir(parents=True)
    (folder.parent / "site.yaml").write_text("name: mine\ndescription: x\n")
    (folder / "Tool.yaml").write_text(
        "name: Tool\nfamilies:\n  tool: {homepage: https://example.org/, file: 'tool-{version}.sif', init: none}\n"
        'containers:\n  - {family: tool, version: 1.0}\n  - {family: nothing, version: "a\\e[31mb"}\n'
    )
    said = shown("check", "--quick", "--catalog", "sites", "--site", "mine")
    assert f"{RED}error{END}: " in said
    assert "\x1b[31m" not in said
