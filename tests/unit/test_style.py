"""Tools that read the code: style, oldest Python, what the project says of itself."""

import importlib.util
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from easybuild.framework.easyconfig.style import check_easyconfigs_style
from ebsif.cli import COMMANDS
from support import CHECKOUT, tracked

BIN = Path(sys.prefix) / "bin"


def check(*command):
    """Run a tool; what it prints is the message of the failure."""
    result = subprocess.run([str(word) for word in command], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff():
    """Python style."""
    check(BIN / "ruff", "check", ".")


def test_easyblocks_run_on_python_3_6():
    """The easyblocks work with the oldest Python of EasyBuild, and import nothing but EasyBuild and the library."""
    check(BIN / "vermin", "-t=3.6-", "--violations", "--no-tips", "easyblocks")
    imports = set()
    for path in (CHECKOUT / "easyblocks").rglob("*.py"):
        imports |= set(re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE))
    library = Path(sysconfig.get_path("stdlib"))
    for name in imports - set(sys.builtin_module_names) - {"easybuild"}:
        origin = Path(importlib.util.find_spec(name).origin)
        # frozen modules have no path
        assert str(origin) == "frozen" or origin.is_relative_to(library), name
        assert not {"site-packages", "dist-packages"} & set(origin.parts), name


def test_easyconfigs_pass_the_style_check_of_easybuild(capsys):
    """What `eb --check-style` runs, on every easyconfig; eb itself would need a modules tool."""
    assert check_easyconfigs_style([str(path) for path in tracked("*.eb")]) == 0, capsys.readouterr().out


def test_easyblocks_pass_pycodestyle():
    """The style check of EasyBuild for easyblocks is pycodestyle with 120 columns."""
    check(BIN / "pycodestyle", "--max-line-length=120", *tracked("easyblocks/*.py"))


def test_a_fresh_clone_is_complete():
    """S000-17: nothing is hidden: no submodule, and every file the set-up runs is in the project."""
    assert not tracked(".gitmodules")
    for script in re.findall(r"@(scripts/[\w-]+)", (CHECKOUT / "Makefile").read_text()):
        assert CHECKOUT / script in tracked()


def test_the_documentation_names_only_commands_that_exist():
    """S002-72: every command of ebsif, every command and run script of a module that a document names is there."""
    files = CHECKOUT / "easyblocks/generic/container/files"
    scripts = {path.name for folder in ("bin", "runscripts") for path in (files / folder).iterdir()}
    for path in [CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md")]:
        text = path.read_text()
        commands = re.findall(r"(?:`|^|\()ebsif ([a-z]+)", text, re.MULTILINE)
        assert set(commands) <= set(COMMANDS), path
        named = re.findall(r"\b(?:conda-python|start|make|unmake|init-conda|get|container)-(?:\w+)\b", text)
        known = {"make-wheel", "container-environment"}
        assert {name for name in named if name not in known} <= scripts | {"init-conda-venv"}, path
        assert not re.search("conda-python-single|RCONTAINERROOT", text)


def test_readme_names_only_what_exists():
    """S002-72 (in part): every make target, file and easyconfig the README names exists."""
    readme = (CHECKOUT / "README.md").read_text()
    makefile = (CHECKOUT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z-]+)", readme):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(((?!http)[^)#]+)", readme):
        assert (CHECKOUT / link).exists(), link
