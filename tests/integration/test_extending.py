"""From a requirements.txt to a module: ebsif extend."""

import hashlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from parts import wheel_settings
from support import make_wheel

MODULE = "Base/1.0-20250101-mine-20260101"
CATALOGUE = """\
name: Base
families:
  base:
    homepage: https://example.org/
    file: example.sif
    suffix: -{date}
    python: 3.11
    init: conda-injected
    conda_env: pytorch
    venv: true
    wrappers: [python, python3]
  none: {homepage: https://example.org/, file: none.sif, suffix: -none, init: none}
containers:
  - {family: base, version: 1.0, date: 20250101}
  - {family: none, version: 2.0}
"""


@pytest.fixture
def place(site, wheels, tmp_path):
    """A site with a catalogue of one container; returns a function that runs ebsif extend there."""
    folder = tmp_path / "sites/local/containers"
    folder.mkdir(parents=True)
    (folder / "Base.yaml").write_text(CATALOGUE)
    (site.work / "requirements.txt").write_text("greeting\nnumpy  # the image has it\n")

    def extend(*arguments, status=0):
        command = ["ebsif", "extend", "Base/1.0", "--catalogue", tmp_path / "sites", "--name", "mine",
                   "--date", "20260101", *arguments]
        result = site.run(command, check=False, **wheel_settings(wheels))
        assert result.returncode == status, result.stdout + result.stderr
        return result

    return extend


def write_lock(path, wheels):
    """Write a uv.lock of a project that needs greeting; return the hash of its wheel."""
    hashes = {name: hashlib.sha256((wheels / f"{name}-1.0-py3-none-any.whl").read_bytes()).hexdigest()
              for name in ("greeting", "hello")}
    text = ('version = 1\nrequires-python = ">=3.11"\n[[package]]\nname = "mine"\nsource = { virtual = "." }\n'
            'dependencies = [{ name = "greeting", marker = "sys_platform == \'linux\'" }]\n')
    for name, found in hashes.items():
        text += (f'[[package]]\nname = "{name}"\nversion = "1.0"\nsource = {{ registry = "{wheels}" }}\n'
                 f'wheels = [{{ path = "{name}-1.0-py3-none-any.whl", hash = "sha256:{found}" }}]\n'
                 + ('dependencies = [{ name = "hello" }]\n' if name == "greeting" else ""))
    path.write_text(text)
    return hashes["greeting"]


def test_from_requirements_to_a_module_in_two_commands(place, site, wheels):
    """
    S001-05, S002-52, E-10 to E-13, use D5 to D7: extend --install, then the printed line; eb in an empty directory.

    The first requirements are a lock file, whose hashes pip checks in spite of the image's constraints without hashes.
    """
    hooks, seen = site.work / "hooks.py", site.prefix / "seen"
    hooks.write_text(f"import os\ndef start_hook(*_):\n    open({str(seen)!r}, 'w').write(repr(os.listdir('.')))\n")
    digest = write_lock(site.work / "uv.lock", wheels)
    result = place("-r", "uv.lock", "--install", "--", *site.eb_options, f"--hooks={hooks}")
    record = json.loads((site.prefix / "eb/software" / MODULE / "share/ebsif/lock.json").read_text())
    assert f"greeting==1.0 --hash=sha256:{digest}\n" in record["stages"][0]["requirements"]
    assert record["artifacts"]["greeting"] == {"file": "greeting-1.0-py3-none-any.whl", "sha256": digest}
    assert record["versions"]["python"].startswith("3.11.")
    assert seen.read_text() == "[]"
    check_steps(result.stderr)
    line = result.stdout.splitlines()[-1].removeprefix("load it with: ")
    assert line == f"module use {site.modules} && module load {MODULE}"
    code = "import greeting, numpy; print(greeting.__file__, numpy.__file__)"
    script = f"{site.tool.init}\n{line}\nsingularity exec $SIF python -c '{code}'"
    own, image = site.run(["bash", "--noprofile", "--norc", "-c", script]).stdout.split()
    assert own.startswith("/user-software/")
    assert image.startswith("/opt/miniconda3/")
    # use D5, D7: the same name with other requirements, while a loaded module hides the machine's python
    (site.work / "requirements.txt").write_text("hello\n")
    arguments = ("extend", "Base/1.0", "--catalogue", str(site.prefix.parent / "sites"), "--name", "mine", "--date",
                 "20260101", "-r", "requirements.txt", "--install")

    def again(*more, status):
        command = " ".join(map(shlex.quote, ["ebsif", *arguments, *more, "--", *site.eb_options]))
        result = site.bash(f"module load {MODULE}\n{command}", check=False, **wheel_settings(wheels))
        assert result.returncode == status, result.stdout + result.stderr
        return result

    found = site.bash(f"module load {MODULE}\nebsif doctor | grep EasyBuild").stdout
    assert found.startswith("MISSING  EasyBuild ")
    assert f"the commands of {MODULE} hide those of this machine: unload the module" in found
    result = again(status=3)
    path = site.work / f"{MODULE.replace('/', '-')}.eb"
    assert (f"{path.name} exists already, with different content: use --rebuild to replace and install it"
            in result.stderr)
    path.unlink()
    assert (f"{MODULE} is installed already, from a different version of {path.name}: use --rebuild"
            in again(status=3).stderr)
    path.write_text("# mine\n")
    result = again("--rebuild", status=0)
    assert f"the previous easyconfig is now {path.name}.old\n" in result.stdout
    assert path.with_name(f"{path.name}.old").read_text() == "# mine\n"
    # in this shell, MODULEPATH contains the modules
    assert result.stdout.endswith(f"\nload it with: module load {MODULE}\n")
    packages = site.bash(f"module load {MODULE}\nlist-packages").stdout
    assert "hello" in packages
    assert "greeting" not in packages
    # nothing to do is no error
    assert f"{MODULE} is already installed (module found), skipping\n" in again(status=0).stderr
    # --check predicts the installation, also if the name is taken
    arguments = (*arguments[:-1], "--check")
    *packages, verdict, command = again(status=0).stdout.splitlines()
    assert re.fullmatch(rf"yes: {MODULE} can be installed: 1 package, \d+\.\d kB", verdict)
    record = json.loads((site.prefix / "eb/software" / MODULE / "share/ebsif/lock.json").read_text())
    assert {"=".join(line.split()[1:3]) for line in packages} | {"pip"} == {
        line.replace("==", "=") if not line.startswith("pip=") else "pip" for line in record["venv_packages"]}
    assert command == "install it with: " + shlex.join(["ebsif", *arguments[:-1], "--install", "--", *site.eb_options])
    # with the module loaded, eb itself would refuse
    arguments = arguments[:-1]
    assert f"\ninstall it with: module unload {MODULE}; eb {path.name}\n" in again(status=0).stdout
    check_the_rest_of_its_life(site, path, wheels)


def check_steps(said):
    """E-10: in a pipe, each step is a line of text with its time; what takes long has details."""
    lines = [line for line in said.splitlines() if re.match("  [^ ]", line)]
    steps = {line[2:30].rstrip(): line[43:] for line in lines if re.fullmatch(r" +(\d+ min )?\d+ s", line[30:41])}
    assert steps["pip: requirements"] == "2 packages added"
    assert steps["image"].startswith("not copied")
    assert {"virtual environment", "trying the module", "writing the module"} <= set(steps)
    assert re.fullmatch(r"\d+\.\d MB", steps["packing user software"])
    assert max(map(len, lines)) <= 80
    assert all(one.isprintable() or one == "\n" for one in said)
    assert re.search(rf"\nebsif: installed {MODULE} in \d+ s\n$", said)


def check_the_rest_of_its_life(site, path, wheels):
    """E-05, E-06, E-08: packages added by hand are known and frozen; list and remove find all of an extension."""
    def ebsif(arguments, before="", status=0):
        result = site.bash(f"{before}\nebsif {arguments}", check=False, EASYBUILD_PREFIX=site.prefix / "eb",
                           **wheel_settings(wheels))
        assert result.returncode == status, result.stdout + result.stderr
        return result.stdout

    root, load = site.prefix / "eb/software" / MODULE, f"module load {MODULE}\n"
    record = json.loads((root / "share/ebsif/lock.json").read_text())
    assert record.pop("easyconfig") == str(path)
    assert json.loads(ebsif("lock mine -o before.json && cat before.json")) == record
    site.bash(f"set -e\n{load}unmake-squashfs; rm $CONTAINERROOT/user-software.squashfs; module unload Base\n{load}"
              "singularity exec $SIF pip install greeting", **wheel_settings(wheels), APPTAINER_BIND=wheels)
    assert ebsif("diff ./before.json", load, status=1) == "+ package greeting 1.0\n"
    assert "requirements = \"\"\"\nhello==1.0\ngreeting==1.0\n\"\"\"\n" in ebsif("freeze --dry-run", load)
    (row,) = json.loads(ebsif("list --mine --json", load))
    assert (row["module"], row["base"], row["state"]) == (MODULE, "Base/1.0-20250101", ["loaded"])
    check_a_change(site, wheels, ebsif)
    # of a written easyconfig that nobody has changed
    path.write_bytes(next((root / "easybuild").glob("*.eb")).read_bytes())
    assert str(path) in ebsif(f"remove {MODULE} --yes")
    left = [one for one in (site.prefix / "eb").rglob("*") if "Base" in one.name and "ebfiles_repo" not in one.parts]
    assert not left and not path.exists()
    assert ebsif("list --mine") == "you have installed no container module\n"


def check_a_change(site, wheels, ebsif):
    """E-03, E-08: one command; all others keep their versions; the earlier module stays until it is removed."""
    later = make_wheel(wheels, "hello", "2.0")
    try:
        said = ebsif(f"extend mine --add byhand --install -- {shlex.join(site.eb_options)}")
    finally:
        later.unlink()
    module = re.search(r"^load it with: module load (\S+)$", said, re.MULTILINE).group(1)
    assert re.fullmatch(r"Base/1.0-20250101-mine-20\d{6}", module) and module > MODULE
    assert f"the earlier module stays as it is: module load {MODULE} (to remove it: ebsif remove {MODULE})" in said
    before = {"hello==1.0", "greeting==1.0"}
    for name, expected in ((MODULE, before), (module, {*before, "byhand==1.0"})):
        shown = site.bash(f"module load {name}\nlist-packages --format=freeze").stdout.split()
        assert {line for line in shown if line.startswith(("hello", "greeting", "byhand"))} == expected
    assert module in site.bash("module spider byhand 2>&1").stdout
    ebsif(f"remove {module} --yes")


def test_the_easyconfig_belongs_to_the_user(place, site):
    """S002-53: complete, styled, readable by eb; its own suffix; never overwritten once changed."""
    said = place("-r", "requirements.txt").stdout
    path = site.work / "Base-1.0-20250101-mine-20260101.eb"
    assert said.splitlines() == [path.name, f"install it with: eb {path.name}", f"then: module load {MODULE}"]
    text = path.read_text()
    assert text.startswith("# Written by `ebsif extend`: yours to change.\n")
    assert "requirements = ['greeting', 'numpy']\n" in text
    site.eb(path, "--check-style")
    place("-r", "requirements.txt")
    path.write_text(text + "# mine\n")
    assert "exists already, with different content" in place("-r", "requirements.txt", status=3).stderr
    assert path.read_text().endswith("# mine\n")


def test_checking_before_installing(place, site, wheels, base_image):
    """Use D8, E-11: packages to add, and in the image; what to do about conflicts; nothing is installed."""
    more = ("--", *site.eb_options)
    result = place("-r", "requirements.txt", "--check", "--image", base_image, *more)
    lines = result.stdout.splitlines()
    assert [re.sub(r" +\d\.\d kB +| {2,}", "|", line) for line in lines[:2]] == [
        "+ greeting 1.0|asked for", "+ hello 1.0|dependency"]
    assert re.fullmatch(r"= numpy 2\.\S+ +in the image", lines[2])
    assert lines[3].startswith(f"yes: {MODULE} can be installed: 2 packages, ")
    make_wheel(wheels, "numpy", "1.0")
    try:
        (site.work / "bad.txt").write_text("numpy<2\n")
        # use D8: found where EasyBuild finds it
        said = place("-r", "bad.txt", "--check", *more, status=1).stdout
    finally:
        (wheels / "numpy-1.0-py3-none-any.whl").unlink()
    assert re.match(rf"no: {MODULE} can't be installed: pip failed in stage 'requirements'.*: numpy==2\.\S+ of the "
                    r"image can't be replaced, but: The user requested numpy<2\. .*'allow_replace': \['numpy'\]", said)
    line = "requirements = [{'name': 'requirements', 'requirements': ['numpy<2'], 'allow_replace': ['numpy']}]"
    assert f"\n\n{line}\n\nthen install it with: eb {MODULE.replace('/', '-')}.eb\n" in said
    assert not list(site.work.glob("*.eb"))
    (site.sources / "example.sif").unlink()
    error = place("-r", "requirements.txt", "--check", *more, status=3).stderr
    assert "\nebsif: the image of Base/1.0-20250101-mine-20260101 is not found (example.sif is neither" in f"\n{error}"
    assert list(site.temporary.glob("ebsif-*")) == []


def test_a_check_reads_stages_like_an_installation(site, tmp_path):
    """Use D8, defects D1, A3: stages in each form, local wheels, permitted replacements; the installed image."""
    folder = tmp_path / "sites/local/containers"
    folder.mkdir(parents=True)
    (folder / "Base.yaml").write_text(CATALOGUE)
    own = tmp_path / "own wheels"
    own.mkdir()
    for name, version in (("first", "1.0"), ("last", "2.0"), ("numpy", "1.0"), ("built", "1.0")):
        make_wheel(own, name, version, requires=["nowhere"])
    stages = [
        {"name": "block", "requirements": "first\n", "no_deps": True, "find_links": [str(own)]},
        {"name": "checks", "verify": [["python", "-c", "import first"]]},
        {"name": "last", "requirements": f"last @ file://{str(own).replace(' ', '%20')}/last-2.0-py3-none-any.whl\n"
         "numpy==1.0\nbuilt\nscipy-is-none; python_version < '3'\n", "options": ["--find-links", str(own)],
         "find_links": [str(own)], "env": {"PIP_NO_DEPS": "1"}, "allow_replace": ["numpy"], "post": ["exit 1"]}]
    site.easyconfig(f"sources = ['example.sif']\nrequirements = {stages}\n", name="Base", suffix="-mine-20260101")
    # if a module is installed, its image is used
    (site.prefix / "eb/software/Base/1.0").mkdir(parents=True)
    (site.sources / "example.sif").rename(site.prefix / "eb/software/Base/1.0/example.sif")
    result = site.run(["ebsif", "upgrade", site.prefix / "Base-1.0-mine-20260101.eb", "Base/1.0", "--check",
                       "--catalogue", tmp_path / "sites", "--", *site.eb_options], PIP_NO_INDEX="1", check=False)
    *packages, verdict, _ = result.stdout.splitlines()
    assert sorted(line.split("  ")[0] for line in packages) == [
        "+ built 1.0", "+ first 1.0", "+ last 2.0", "+ numpy 1.0"], result.stdout + result.stderr
    assert verdict.startswith("yes: Base/1.0-20250101-mine-")


def test_stages_of_a_users_own(place, site):
    """Stages keep the order of the command line."""
    for name in ("a", "b"):
        (site.work / f"{name}.txt").write_text(f"{name}==1\n")
    place("--stage", "second=b.txt", "--stage", "first=a.txt")
    text = (site.work / "Base-1.0-20250101-mine-20260101.eb").read_text()
    assert "{'name': 'second', 'requirements': ['b==1']}, {'name': 'first', 'requirements': ['a==1']}" in text


@pytest.mark.parametrize(("arguments", "status", "expected"), [
    (["-r", "none.txt"], 3, "the file none.txt does not exist"),
    (["--stage", "a"], 3, "--stage a: should be NAME=FILE"),
    (["-r", "requirements.txt", "--name", "a/b"], 3, "'a/b' is not valid in a version suffix"),
    ([], 2, "one of the arguments -r/--requirements --stage --from-venv --from-lock --add is required"),
    (["-r", "requirements.txt", "--add", "a"], 2, "--add and --remove can't be combined with the other ways"),
])
def test_errors_name_cause_and_remedy(place, arguments, status, expected):
    """Errors name the problem and the remedy; nothing is written."""
    assert expected in place(*arguments, status=status).stderr


def test_a_container_that_can_not_be_extended(place, site, tmp_path):
    """Images without Python can't have additional packages."""
    command = [Path(sys.prefix) / "bin/ebsif", "extend", "Base/2.0", "--catalogue", tmp_path / "sites", "--name", "x",
               "-r", site.work / "requirements.txt"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 3
    assert "Base/2.0-none can't be extended: it has no user software" in result.stderr
