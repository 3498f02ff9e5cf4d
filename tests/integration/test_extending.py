"""From a requirements.txt to a module: ebsif extend."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ebsif.packages import requirements
from ebsif.packages.wanted import KnownImage
from parts import wheel_settings
from support import attempt, make_native_sdist, make_sdist, make_wheel, record_of

MODULE = "Base/1.0-20250101-mine-20260101"
CATALOG = """\
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
    """A site with a catalog of one container; returns a function that runs ebsif extend there."""
    folder = tmp_path / "sites/local/containers"
    folder.mkdir(parents=True)
    (folder / "Base.yaml").write_text(CATALOG)
    (site.work / "requirements.txt").write_text("greeting\nnumpy  # the image has it\n")

    def extend(*arguments, status=0, packages=wheels):
        name = [] if "--name" in arguments else ["--name", "mine"]
        command = ["ebsif", "extend", "Base/1.0", "--catalog", tmp_path / "sites", *name, "--date", "20260101"]
        result = site.run([*command, *arguments], check=False, **wheel_settings(packages))
        assert result.returncode == status, result.stdout + result.stderr
        return result

    return extend


def test_what_can_not_be_imported(place, site, tmp_path):
    """
    F-10 (user 2): "yes" and "installed" are not said of what can't be imported; the cause and a line that helps are.

    One program for installations and the doctor. EasyBuild's own option goes on.
    """
    make_wheel(tmp_path, "torch", "2.13.0+cpu")
    missing = "raise RuntimeError('operator vision::nms does not exist')\n"
    make_wheel(tmp_path, "torchvision", "0.28", ["torch==2.13.0"], missing, more={"vision_c.so": ""})
    make_wheel(tmp_path, "tower", requires=["torchvision"], module_text="import torchvision\n")
    make_wheel(tmp_path, "fresh", "1.0", module_text="import os; os.nothing\n")
    make_wheel(tmp_path, "fresh", "2.0", ["numpy<1"])
    make_wheel(tmp_path, "alone", module_text="import nothing_like_it\n")
    (site.work / "bad.txt").write_text("torch\ntower\ntorchvision==0.28\nfresh\nalone\n")
    result = place("-r", "bad.txt", "--check", "--", *site.eb_options, status=1, packages=tmp_path)
    vision = re.compile(
        r"`import torchvision` and `import tower` fail \(RuntimeError: operator vision::nms does not exist\): "
        r"torchvision 0\.28 was built for another torch than the one here, 2\.13\.0\+cpu\. Take the build for it:\n"
        r"    (ebsif extend Base/1\.0 .*--name mine .*-r bad\.txt --check --add '--extra-index-url "
        r"https://download\.pytorch\.org/whl/cpu' torchvision==0\.28\+cpu -- .*)\n"
    )
    fresh = (
        "`import fresh` fails (AttributeError: module 'os' has no attribute 'nothing'). Ask for another version "
        "of fresh, or leave it out."
    )
    assert "no: Base/mine can't be installed: Stage 'requirements': " in result.stdout
    (way,) = vision.finditer(result.stdout)
    assert fresh in result.stdout
    assert "alone can only be imported together with nothing_like_it" in result.stderr
    # on purpose
    result = place("-r", "bad.txt", "--", *site.eb_options, "--ignore-test-failure", packages=tmp_path)
    assert "(but see the warning above)" in result.stderr and "torchvision 0.28 was built for" in result.stderr
    # what was typed is no remedy
    assert "nevertheless" not in result.stderr
    said = " ".join(site.run(["ebsif", "doctor", "--installed", site.prefix / "eb"], check=False).stdout.split())
    assert "tower in user software can't be imported (RuntimeError: operator vision::nms does not exist; " in said
    assert "Take the build for it: ebsif extend mine --add '--extra-index-url " in said
    # the command that was printed, with the index of these wheels
    make_wheel(tmp_path, "torchvision", "0.28+cpu", ["torch==2.13.0"], more={"vision_c.so": ""})
    (site.work / "bad.txt").write_text("torch\ntower\ntorchvision==0.28\n")
    result = site.run(shlex.split(way[1]), check=False, **wheel_settings(tmp_path))
    assert "+ torchvision 0.28+cpu" in result.stdout, result.stdout + result.stderr


def test_builds_against_the_image(place, site, wheels, tmp_path):
    """
    V-05: what needs a package of the image to build is built without isolation by itself, and the output says so.

    A missing compiler is named, by --check too. Commands after an installation need no easyconfig: bash runs them as
    they were typed. S000-03. V-06: a program of what was asked for is a command of the module.
    """
    own = tmp_path / "own"
    own.mkdir()
    make_sdist(own, "kernels", needs="numpy")
    make_wheel(own, "board", module_text="def main(): print('in', __file__)\n", scripts={"board": "board:main"})
    make_native_sdist(own, "native", "x86_64-linux-gnu-g++")
    post = 'python -c \'import kernels\' && echo "$VIRTUAL_ENV" >"/user-software/a b"'
    more = ("--", *site.eb_options)
    said = place("--add", "kernels", "native", "--no-build-isolation", "--check", *more, status=1, packages=own).stdout
    assert re.search(
        r"^no: \S+ can't be installed: pip failed in stage 'requirements' \(while processing native\S*\): "
        r"a build needs the compiler x86_64-linux-gnu-g\+\+, which the container doesn't have\. Use a "
        r"wheel of the package, or an image that has the compiler; or, if the image has apt, add it:\n    "
        r"ebsif extend Base/1\.0 .* --check --apt g\+\+ -- ",
        said,
        re.MULTILINE,
    )
    check = "test -s '/user-software/a b'"
    said = place("--add", "kernels", "board", "--post", post, "--verify", check, *more, packages=own).stderr
    assert re.search(r"^  installing packages +\d+ s  kernels\S* built without isolation", said, re.MULTILINE)
    root = site.root(MODULE)
    record = record_of(root)
    expected = [{"name": "requirements", "requirements": "kernels\nboard\n", "post": [post], "verify": [check]}]
    assert record["stages"] == expected
    # V-06
    assert site.bash(f"module load {MODULE}; board").stdout.startswith("in /user-software/venv/base/lib")
    # what a build lacks, and what its message advises
    make_sdist(own, "late", needs="board")
    said = place("--add", "late", "--name", "late", "--check", *more, status=1, packages=own).stdout
    assert "in an extension of its own, and this extension on top. Then it is built without isolation" in said
    command = ["ebsif", "extend", root, "--catalog", tmp_path / "sites", "--name", "top", "--add", "late", *more]
    said = site.run(command, **wheel_settings(own)).stderr
    assert re.search(r"^  installing packages +\d+ s  .*late\S* built without isolation", said, re.MULTILINE)


def test_the_easyconfig_belongs_to_the_user(place, site):
    """S002-53: complete, styled, readable by eb; its own suffix; never overwritten once changed."""
    said = place("-r", "requirements.txt", "-o", ".")
    path = site.work / "Base-1.0-20250101-mine-20260101.eb"
    assert said.stdout == f"{path.name}\n"
    install, then = said.stderr.splitlines()[-2:]
    assert install == f"install it with: eb {path.name}"
    # EasyBuild's default directory, which a new shell doesn't search
    assert re.fullmatch(rf"then: module use \S+/modules/all && module load {re.escape(MODULE)}", then)
    text = path.read_text()
    assert text.startswith("# Written by `ebsif extend`: yours to change.\n")
    assert "requirements = ['greeting', 'numpy']\n" in text
    site.eb(path, "--check-style")
    place("-r", "requirements.txt", "-o", ".")
    path.write_text(text + "# mine\n")
    assert "exists already, with different content" in place("-r", "requirements.txt", "-o", ".", status=3).stderr
    assert path.read_text().endswith("# mine\n")


def test_an_easyconfig_that_eb_is_installing(place, site):
    """An easyconfig in use isn't replaced: eb reads it again at the end, and the module would have other packages."""
    place("-r", "requirements.txt", "-o", ".")
    path = site.work / "Base-1.0-20250101-mine-20260101.eb"
    text = path.read_text()
    # stands for eb
    lock = site.prefix / "eb/software/.locks" / (str(site.root(MODULE)).replace("/", "_") + ".lock")
    lock.mkdir(parents=True)
    for options, said in (((), "exists already, with different content"), (("--rebuild",), "until it is done")):
        result = place("--add", "hello", *options, "-o", ".", "--", *site.eb_options, status=3)
        assert said in result.stderr
        assert path.read_text() == text
    assert f"eb is installing {MODULE}" in result.stderr


def test_checking_before_installing(place, site, wheels, base_image):
    """E-11, C-04: packages to add, and in the image; what to do about conflicts; nothing is left of a check."""
    before = set(site.temporary.iterdir())
    more = ("--", *site.eb_options)
    result = place("-r", "requirements.txt", "--check", "--image", base_image, *more)
    lines = result.stdout.splitlines()
    assert [re.sub(r" {2,}", "|", line) for line in lines[:2]] == ["+ greeting 1.0|asked for", "+ hello 1.0|dependency"]
    assert re.fullmatch(r"= numpy 2\.\S+ +in the image", lines[2])
    assert lines[3].startswith("yes: Base/mine can be installed: 2 packages")
    make_wheel(wheels, "numpy", "1.0")
    try:
        (site.work / "bad.txt").write_text("numpy<2\n")
        # found where EasyBuild finds it
        result = place("-r", "bad.txt", "--check", *more, status=1)
        said = result.stdout
    finally:
        (wheels / "numpy-1.0-py3-none-any.whl").unlink()
    assert re.match(
        r"no: Base/mine can't be installed: pip failed in stage 'requirements'.*: numpy==2\.\S+ of the "
        r"image \(compiled\) can't be replaced, but: you ask for numpy<2\. (?s:.*)'allow_replace': "
        r"\['numpy'\](?s:.*)\n    ebsif extend .* --replace numpy==\S+ --force",
        said,
    )
    assert not list(site.work.glob("*.eb"))
    (site.sources / "example.sif").unlink()
    error = place("-r", "requirements.txt", "--check", *more, status=3).stderr
    assert "\nebsif: the image of Base/1.0-20250101-mine-20260101 is not found (example.sif is neither" in f"\n{error}"
    assert set(site.temporary.iterdir()) == before


def test_a_check_reads_stages_like_an_installation(site, tmp_path):
    """Stages in each form, local wheels and permitted replacements extend the installed image."""
    folder = tmp_path / "sites/local/containers"
    folder.mkdir(parents=True)
    (folder / "Base.yaml").write_text(CATALOG)
    own = tmp_path / "own wheels"
    own.mkdir()
    for name, version in (("first", "1.0"), ("last", "2.0"), ("numpy", "1.0"), ("built", "1.0")):
        make_wheel(own, name, version, requires=["nowhere"])
    stages = [
        {"name": "block", "requirements": "first\n", "no_deps": True, "find_links": [str(own)]},
        {"name": "checks", "verify": [["python", "-c", "import first"]]},
        {
            "name": "last",
            "requirements": f"last @ file://{str(own).replace(' ', '%20')}/last-2.0-py3-none-any.whl\n"
            "numpy==1.0\nbuilt\nscipy-is-none; python_version < '3'\n",
            "options": ["--find-links", str(own)],
            "find_links": [str(own)],
            "env": {"PIP_NO_DEPS": "1"},
            "allow_replace": ["numpy"],
            "post": ["true"],
        },
    ]
    site.easyconfig(f"sources = ['example.sif']\nrequirements = {stages}\n", name="Base", suffix="-mine-20260101")
    # if a module is installed, its image is used
    site.root("Base/1.0").mkdir(parents=True)
    (site.sources / "example.sif").rename(site.root("Base/1.0") / "example.sif")
    command = ["ebsif", "upgrade", site.prefix / "Base-1.0-mine-20260101.eb", "Base/1.0", "--check"]
    words = [*command, "--catalog", tmp_path / "sites", "--", *site.eb_options]
    result = site.run(words, PIP_NO_INDEX="1", check=False)
    assert result.returncode == 0, result.stderr
    *packages, verdict = result.stdout.splitlines()
    expected = ["+ built 1.0", "+ first 1.0", "+ last 2.0", "+ numpy 1.0"]
    assert sorted(line.split("  ")[0] for line in packages) == expected, result.stdout + result.stderr
    assert verdict.startswith("yes: Base/mine can ")


def test_a_lock_of_the_real_uv(tmp_path, monkeypatch):
    """E-12: uv itself writes the lock and reads it, offline: with hashes, without what the image's packages need."""
    monkeypatch.setenv("PATH", str(Path(os.environ["EBSIF_TEST_UV"]).parent), prepend=":")
    for folder in ("wheels", "own", "member"):
        (tmp_path / folder).mkdir()
    make_wheel(tmp_path / "own", "kept")
    (tmp_path / "member/pyproject.toml").write_text('[project]\nname = "member"\nversion = "0"\n')
    for name, needs in (("direct", ["indirect"]), ("indirect", []), ("torch", ["cuda"]), ("cuda", []), ("trainer", [])):
        make_wheel(tmp_path / "wheels", name, requires=needs)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.9"\n'
        'dependencies = ["direct", "torch", "kept", "member"]\n[tool.uv.workspace]\nmembers = ["member"]\n'
        '[tool.uv.sources]\nkept = { path = "own/kept-1.0-py3-none-any.whl" }\nmember = { workspace = true }\n'
        '[project.optional-dependencies]\ntrain = ["trainer"]\n[dependency-groups]\ndev = ["cuda"]\n'
        '[[tool.uv.index]]\nurl = "./wheels"\nformat = "flat"\ndefault = true\n'
    )
    subprocess.run(["uv", "lock", "--offline", "--quiet", "--project", tmp_path], check=True)
    wanted = requirements.read_all([tmp_path / "uv.lock"], KnownImage("3.11", {"torch": "1.0+rocm"}), ["train"])
    assert wanted.lines[0] == f"--find-links {tmp_path}/wheels"
    assert wanted.impossible == [
        f"{tmp_path}/uv.lock: member is not installed: it is the directory member: build a wheel of it",
        f"{tmp_path}/uv.lock: installed only if you add them: --group dev",
    ]
    assert [line.split(" --hash=sha256:")[0] for line in wanted.lines[1:]] == [
        "direct==1.0",
        "indirect==1.0",
        f"kept @ file://{tmp_path}/own/kept-1.0-py3-none-any.whl",
        "torch==1.0",
        "trainer==1.0",
    ]
    (wrong,) = requirements.read_all([tmp_path / "uv.lock"], extras=["nope"]).wrong
    assert re.search("uv.lock: can't be read by uv: .*nope", wrong)


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["-r", "none.txt"], 3, "the file none.txt does not exist"),
        (["-r", "requirements.txt", "--name", "a/b"], 3, "'a/b': use only letters, digits, _ and ."),
        ([], 2, "say what to add: --add PACKAGE, --apt PACKAGE, -r FILE, "),
        (["-r", "requirements.txt", "--force"], 2, "--force is for --replace; to install a module again: --rebuild"),
        (["--wheelhouse", "wheels", "--check"], 2, "--wheelhouse collects the wheels of an easyconfig as it is: "),
        (["-r", "requirements.txt", "--remove", "a"], 2, "--remove can't be combined with -r or --from-venv, which"),
        (["--from-lock", "lock.json", "--add", "a"], 2, "--from-lock repeats an installation exactly: leave out --add"),
    ],
)
def test_errors_name_cause_and_remedy(place, arguments, status, expected):
    """Errors name the problem and the remedy; nothing is written."""
    assert expected in place(*arguments, status=status).stderr


def test_a_container_that_can_not_be_extended(place, site, tmp_path):
    """Images without Python can't have additional packages."""
    command = [Path(sys.prefix) / "bin/ebsif", "extend", "Base/2.0", "--catalog", tmp_path / "sites", "--name", "x"]
    command += ["-r", site.work / "requirements.txt"]
    result = attempt(command, cwd=tmp_path)
    assert result.returncode == 3 and "Base/2.0-none can't be extended: it has no user software" in result.stderr
