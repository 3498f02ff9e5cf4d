"""The ways in which sites have EasyBuild: in each of them our easyblocks and easyconfigs are found."""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from parts import TOOLS
from support import CHECKOUT, Site, tracked

EXAMPLE = "PyTorch-2.13.0-cpu-python-3.11-singularity-exampleVenv-20261121.eb"
OTHER = "zlib-1.3.eb"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this project, made of the source distribution, as a release is."""
    folder = tmp_path_factory.mktemp("wheel")
    # building writes into the directory of the sources
    for path in tracked():
        target = folder / "sources" / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, folder / "sources"],
                   check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


def test_a_release_is_complete(wheel):
    """Issue of the house, release: every file of the packages is in the wheel, which is made of the sdist."""
    with zipfile.ZipFile(wheel) as files:
        there = set(files.namelist())
    places = {"easyblocks": "easybuild/easyblocks", "easyconfigs": "easybuild/easyconfigs", "generator": ""}
    wanted = set()
    for path in tracked():
        first, *rest = path.relative_to(CHECKOUT).parts
        if first in places:
            wanted.add("/".join(filter(None, (places[first], *rest))))
    assert len(wanted) > 150
    assert wanted <= there, wanted - there
    assert {name for name in there if ".dist-info/" not in name} <= wanted


def pip(command, *arguments, python=sys.executable):
    """Run pip for a Python, without the network."""
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, command, "--quiet",
                    *(["--yes"] if command == "uninstall" else ["--no-index", "--no-deps"]), *arguments],
                   check=True, capture_output=True, text=True)


def everything(folder):
    """Every path below a folder; pip leaves what eb compiles, as it runs Python with -O."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts
            and (not path.is_dir() or [name.name for name in path.iterdir()] != ["__pycache__"])}


def test_beside_a_full_easybuild(tmp_path, wheel, easybuild_wheels):
    """easybuild D2: in a venv beside easybuild-easyconfigs, whose index lists all files there, and no others."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin/python"
    pip("install", "--no-compile", *easybuild_wheels(version("easybuild-framework")), python=python)
    # as easybuild-easyconfigs puts its files there; eb writes the index of that package
    easyconfigs = venv / "easybuild/easyconfigs"
    (easyconfigs / "z/zlib").mkdir(parents=True)
    (easyconfigs / "z/zlib" / OTHER).write_text(
        "easyblock = 'Tarball'\nname = 'zlib'\nversion = '1.3'\nhomepage = ''\ndescription = ''\ntoolchain = SYSTEM\n")
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), venv)
    site.eb("--create-index", easyconfigs)
    before = everything(venv)
    # ebsif doctor asks the eb of PATH, and this one is not beside it
    doctor = [Path(sys.prefix) / "bin/ebsif", "doctor"]
    settings = {"EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES": "1"}
    (line,) = lines_about("easyconfigs", site.run(doctor, check=False, **settings).stdout)
    assert line.startswith("MISSING")
    assert "files not found" in line

    pip("install", "--no-compile", wheel, python=python)
    installed = next(venv.glob("lib/*/site-packages/easybuild/easyconfigs"))
    assert names(installed) == names(CHECKOUT / "easyconfigs")
    (line,) = lines_about("easyconfigs", site.run(doctor, check=False, **settings).stdout)
    assert line.startswith("ok")
    found = site.eb("--search", f"({EXAMPLE}|{OTHER})").stdout
    assert f"found valid index for {easyconfigs}" in found
    assert found.count(f"/{OTHER}") == found.count(f"/{EXAMPLE}") == 1
    pip("uninstall", "ebsif", python=python)
    assert everything(venv) == before


def names(folder):
    """The easyconfigs in a folder."""
    return {path.relative_to(folder) for path in folder.rglob("*.eb")}


def lines_about(word, text):
    """The lines of a text that have a word."""
    return [line for line in text.splitlines() if word in line]


def test_through_pythonpath(tmp_path, wheel, easybuild_wheels):
    """easybuild D2: EasyBuild and ebsif as modules, which set PATH and PYTHONPATH, and both with pip --prefix."""
    programs = tmp_path / "programs"
    programs.mkdir()
    # a Python that knows neither
    (programs / "python").symlink_to(sys._base_executable)
    modules = [tmp_path / "EasyBuild", tmp_path / "ebsif"]
    install = ("install", "--no-compile", "--ignore-installed", "--prefix")
    pip(*install, modules[0], *easybuild_wheels(version("easybuild-framework")))
    pip(*install, modules[1], wheel)
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), tmp_path)
    rest = [folder for folder in site.environment["PATH"].split(":") if folder != f"{sys.prefix}/bin"]

    def found(*prefixes):
        # where they are depends on the distribution of the machine
        folders = [str(path.parent) for prefix in prefixes for path in prefix.rglob("*-packages/easybuild")]
        commands = [str(path) for prefix in prefixes for path in prefix.rglob("bin")]
        return site.eb(EXAMPLE, "--dry-run", PATH=":".join([*commands, *rest]), PYTHONPATH=":".join(folders),
                       EB_PYTHON=programs / "python").stdout

    assert f"/{EXAMPLE} (module: PyTorch/" in found(*modules)
    pip(*install, modules[0], wheel)
    assert f"/{EXAMPLE} (module: PyTorch/" in found(modules[0])


def test_what_is_kept_repeats_an_installation(installed_once, easybuild_wheels, tmp_path):
    """easybuild D6: easybuild/reprod has all that an EasyBuild without ebsif needs for the same installation."""
    reprod = installed_once.root(installed_once.SQUASHED) / "easybuild/reprod"
    for wheel in easybuild_wheels(version("easybuild-framework")):
        with zipfile.ZipFile(wheel) as files:
            files.extractall(tmp_path)
    site = installed_once.site
    (easyconfig,) = reprod.glob("*.eb")
    said = site.run([sys._base_executable, "-m", "easybuild.main", *site.eb_options, easyconfig, "--extended-dry-run",
                     f"--include-easyblocks={reprod}/easyblocks/*.py"], PYTHONPATH=tmp_path).stdout
    assert "Copying the image to" in said
    kept = {path.relative_to(reprod / "easyblocks") for path in (reprod / "easyblocks/container").rglob("*")
            if path.is_file() and path.suffix != ".pyc"}
    source = CHECKOUT / "easyblocks/generic"
    assert kept == {path.relative_to(source) for path in (source / "container").rglob("*")
                    if path.is_file() and path.suffix != ".pyc"}
