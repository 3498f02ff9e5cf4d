"""Style, oldest Python version, and statements in the documentation."""

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from easybuild.framework.easyconfig.style import check_easyconfigs_style
from support import CHECKOUT, attempt, printed, tracked

BIN = Path(sys.prefix) / "bin"


def check(*command):
    """Run a tool; its output is the message if it fails."""
    result = attempt([str(word) for word in command], cwd=CHECKOUT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff():
    """Python style, also of programs without the suffix .py, which pre-commit checks."""
    check(BIN / "ruff", "check", ".")
    check(BIN / "ruff", "format", "--check", ".")
    checked = printed([BIN / "ruff", "check", "--show-files", "."], cwd=CHECKOUT).splitlines()
    programs = {path for path in tracked() if re.match(rb"#!.*python", path.read_bytes())}
    assert programs
    assert programs <= set(map(Path, checked))


def test_mypy():
    """The type hints of the easyblocks fit each other."""
    check(BIN / "mypy", "--no-error-summary", f"--cache-dir={CHECKOUT}/.pytest_cache/mypy")


# what somebody may mistype: the file, what is right, what is wrong
MISSPELLED = [
    ("containerinstall.py", "spec.lustre_striping", "spec.lustre_stripping"),
    ("containerinstall.py", "self.build.probe.wrong_packages(", "self.build.probe.wrong_package("),
    ("containerinstall.py", "self.initial_environ)", "self.initial_environment)"),
    ("containerinstall.py", "self.mod_filepath,", "self.module_filepath,"),
    ("containerinstall.py", "self.cfg.rawtxt", "self.cfg.raw_text"),
    ("containervenv.py", "self.reinstallation.place", "self.reinstallation.palce"),
    ("containervenv.py", "self.build.venv.compile_bytecode(", "self.build.venv.compile_byte("),
    ("containervenv.py", "self.build.pip.user_constraints", "self.build.pip.user_constraint"),
    ("containervenv.py", "self.spec.keep_packages", "self.spec.kept_packages"),
    ("container/reinstallation.py", "self.kept.put_back", "self.kept.put_bak"),
    ("container/settings.py", "parts.one_container", "parts.one_module"),
]
# the same where the generator uses the easyblocks
MISSPELLED = [(f"easyblocks/generic/{file}", right, wrong) for file, right, wrong in MISSPELLED] + [
    ("generator/ebsif/installed/sbom.py", "record.artifacts,", "record.artefacts,")
]


def test_mypy_finds_misspelled_names(tmp_path):
    """C-01: each name that is misspelled in a copy is found, of EasyBuild's classes and of the easyblocks', too."""
    for folder in ("easyblocks/generic", "generator/ebsif"):
        shutil.copytree(CHECKOUT / folder, tmp_path / folder)
    # mypy_path is relative to where it runs
    shutil.copytree(CHECKOUT / "tests/stubs", tmp_path / "tests/stubs", ignore=shutil.ignore_patterns("generic"))
    (tmp_path / "tests/stubs/easybuild/easyblocks/generic").symlink_to(tmp_path / "easyblocks/generic")
    for file, right, wrong in MISSPELLED:
        text = (tmp_path / file).read_text()
        assert right in text, (file, right)
        (tmp_path / file).write_text(text.replace(right, wrong, 1))
    options = [f"--config-file={CHECKOUT}/pyproject.toml", f"--cache-dir={tmp_path}/cache"]
    files = sorted({file for file, _, _ in MISSPELLED if file.startswith("generator/")})
    found = attempt([BIN / "mypy", *options, "easyblocks/generic", *files], cwd=tmp_path).stdout
    errors = re.findall(r'^((?:easyblocks|generator)/.*?):.* has no attribute "(\w+)"', found, re.MULTILINE)
    assert sorted(errors) == sorted((file, re.findall(r"\w+", wrong)[-1]) for file, _, wrong in MISSPELLED), found


def test_the_stubs_say_what_easybuild_has(tmp_path):
    """C-01: what mypy knows of EasyBuild (tests/stubs) is what is installed: names, kinds and arguments of methods."""
    stubs = CHECKOUT / "tests/stubs"
    paths = [path.relative_to(stubs).with_suffix("") for path in stubs.rglob("*.pyi") if path.stem != "__init__"]
    modules = [str(path).replace(os.sep, ".") for path in paths]
    assert modules
    # it keeps a cache where it runs
    environment = ["env", f"--chdir={tmp_path}", f"MYPYPATH={stubs}"]
    check(*environment, BIN / "stubtest", "--ignore-missing-stub", "--concise", *modules)


def test_ends_of_lines_and_files():
    """The rules of .editorconfig, except for what is recorded as it is: no editor changes lines that nobody edits."""
    texts = {path: path.read_bytes() for path in tracked()}
    for path, text in texts.items():
        if b"\0" not in text and path.suffix != ".svg" and path.parent != CHECKOUT / "tests/data":
            assert not re.search(rb"[ \t\r]$", text, re.MULTILINE), path
            assert text[-1:] in (b"", b"\n"), path


def test_easyblocks_run_on_python_3_6():
    """They support EasyBuild's oldest Python, and import only EasyBuild and the standard library."""
    # what runs in images, too
    programs = [f"generator/ebsif/{folder}/programs" for folder in ("installed/health", "publish/reframe/files")]
    check(BIN / "vermin", "-t=3.6-", "--violations", "--no-tips", "easyblocks", *programs)
    imports = set()
    for path in (CHECKOUT / "easyblocks").rglob("*.py"):
        imports |= set(re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE))
    library = Path(sysconfig.get_path("stdlib"))
    # the pip of the image, what is beside it in user software, and what run scripts share
    inside = {"pip", "ebsif_missing", "ebsif_pip_hints", "job_processes"}
    for name in imports - set(sys.builtin_module_names) - {"easybuild"} - inside:
        origin = Path(importlib.util.find_spec(name).origin)
        # frozen modules have no path
        assert str(origin) == "frozen" or origin.is_relative_to(library), name
        assert not {"site-packages", "dist-packages"} & set(origin.parts), name


def test_easyconfigs_pass_the_style_check_of_easybuild(capsys):
    """Like `eb --check-style`, for every easyconfig; eb itself would need a modules tool."""
    assert check_easyconfigs_style([str(path) for path in tracked("*.eb")]) == 0, capsys.readouterr().out


def test_easyblocks_pass_pycodestyle():
    """EasyBuild's style check for easyblocks is pycodestyle with 120 columns."""
    check(BIN / "pycodestyle", "--max-line-length=120", *tracked("easyblocks/*.py"))


def test_a_fresh_clone_is_complete():
    """S000-17: no submodules, and every file that set-up runs is in the project."""
    assert not tracked(".gitmodules")
    for script in re.findall(r"@(scripts/[\w-]+)", (CHECKOUT / "Makefile").read_text()):
        assert CHECKOUT / script in tracked()


def test_the_project_has_no_files_of_experiments():
    """Files that somebody made to try something, committed by accident, would come with every clone."""
    names = printed(["git", "ls-files"], cwd=CHECKOUT)
    there = {name.partition("/")[0] for name in names.splitlines() if not name.startswith(".")}
    assert " ".join(sorted(there)) == (
        "CHANGELOG.md CITATION.cff CODE_OF_CONDUCT.md CONTRIBUTING.md LICENSE MAINTAINERS.md MANIFEST.in Makefile "
        "README.md SECURITY.md action.yml codemeta.json docs easyblocks easyconfigs generator pyproject.toml scripts "
        "setup.py tests tools"
    )


def test_the_readme_names_only_what_exists():
    """S002-72 (in part): every make target, file and easyconfig named in the README exists."""
    readme = (CHECKOUT / "README.md").read_text()
    makefile = (CHECKOUT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z-]+)", readme):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(((?!http)[^)#]+)", readme):
        assert (CHECKOUT / link).exists(), link
