"""Different ways to install EasyBuild: each finds our easyblocks and easyconfigs."""

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from parts import TOOLS
from support import CHECKOUT, CONTAINER_FILES, Site, blocks, tracked

EXAMPLE = "PyTorch-2.13.0-cpu-python-3.11-singularity-exampleVenv-20261121.eb"
OTHER = "zlib-1.3.eb"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A folder with a release: the source distribution, and the wheel built from it."""
    folder = tmp_path_factory.mktemp("release")
    # the build writes into the source directory
    for path in tracked():
        target = folder / "sources" / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, folder / "sources"],
                   check=True, capture_output=True, text=True)
    return folder


@pytest.fixture(scope="module")
def wheel(release):
    """The project's wheel."""
    return next(release.glob("*.whl"))


def test_a_release_is_complete(wheel):
    """Issue of the house, release: the wheel, built from the sdist, contains every file of the packages."""
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


def test_the_source_distribution_is_complete(release):
    """W-10: it has every file of the project but the settings of tools (.*), and nothing else."""
    with tarfile.open(next(release.glob("*.tar.gz"))) as files:
        there = {one.name.partition("/")[2] for one in files if one.isfile()}
    wanted = {str(path.relative_to(CHECKOUT)) for path in tracked()}
    assert not {name for name in wanted - there if not name.startswith(".")}
    assert {name for name in there - wanted if ".egg-info/" not in name} == {"PKG-INFO"}


def pip(command, *arguments, python=sys.executable):
    """Run pip of a Python, without network."""
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, command, "--quiet",
                    *(["--yes"] if command == "uninstall" else ["--no-index", "--no-deps"]), *arguments],
                   check=True, capture_output=True, text=True)


def everything(folder):
    """Return all paths below a folder; without bytecode of eb's `python -O`, which pip doesn't remove."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts
            and (not path.is_dir() or [name.name for name in path.iterdir()] != ["__pycache__"])}


def test_beside_a_full_easybuild(tmp_path, wheel, easybuild_wheels):
    """easybuild D2: in a venv with easybuild-easyconfigs, whose index hides other files in its directories."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin/python"
    pip("install", "--no-compile", *easybuild_wheels(version("easybuild-framework")), python=python)
    # where easybuild-easyconfigs puts its files; eb writes that package's index
    easyconfigs = venv / "easybuild/easyconfigs"
    (easyconfigs / "z/zlib").mkdir(parents=True)
    (easyconfigs / "z/zlib" / OTHER).write_text(
        "easyblock = 'Tarball'\nname = 'zlib'\nversion = '1.3'\nhomepage = ''\ndescription = ''\ntoolchain = SYSTEM\n")
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), venv)
    site.eb("--create-index", easyconfigs)
    before = everything(venv)
    # ebsif doctor asks the eb on PATH, which is in another directory
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
    """Return the names of the easyconfigs in a folder."""
    return {path.relative_to(folder) for path in folder.rglob("*.eb")}


def lines_about(word, text):
    """Return a text's lines that contain a word."""
    return [line for line in text.splitlines() if word in line]


def test_through_pythonpath(tmp_path, wheel, easybuild_wheels):
    """easybuild D2: EasyBuild and ebsif as modules that set PATH and PYTHONPATH, and both with pip --prefix."""
    programs = tmp_path / "programs"
    programs.mkdir()
    # a Python that has neither installed
    (programs / "python").symlink_to(sys._base_executable)
    modules = [tmp_path / "EasyBuild", tmp_path / "ebsif"]
    install = ("install", "--no-compile", "--ignore-installed", "--prefix")
    pip(*install, modules[0], *easybuild_wheels(version("easybuild-framework")))
    pip(*install, modules[1], wheel)
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), tmp_path)
    rest = [folder for folder in site.environment["PATH"].split(":") if folder != f"{sys.prefix}/bin"]

    def found(*prefixes):
        # the paths depend on the machine's distribution
        folders = [str(path.parent) for prefix in prefixes for path in prefix.rglob("*-packages/easybuild")]
        commands = [str(path) for prefix in prefixes for path in prefix.rglob("bin")]
        return site.eb(EXAMPLE, "--dry-run", PATH=":".join([*commands, *rest]), PYTHONPATH=":".join(folders),
                       EB_PYTHON=programs / "python").stdout

    assert f"/{EXAMPLE} (module: PyTorch/" in found(*modules)
    pip(*install, modules[0], wheel)
    assert f"/{EXAMPLE} (module: PyTorch/" in found(modules[0])


def test_the_working_copy_runs_after_make_check(tmp_path, release, easybuild_wheels):
    """Issue of the house: after `make check` eb uses the sources themselves, after `make test` the installed files."""
    checkout, tools = tmp_path / "checkout", tmp_path / "tools"
    shutil.copytree(release / "sources", checkout)
    venv = checkout / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip("install", "--no-compile", *easybuild_wheels(version("easybuild-framework")), python=venv / "bin/python")
    packages, own = (next(Path(place).glob("lib/python3*/site-packages")) for place in (sys.prefix, venv))
    tools.mkdir()
    for name in ("pip", "setuptools", "setuptools-*", "_distutils_hack", "pkg_resources", "wheel", "wheel-*"):
        for path in packages.glob(name):
            (tools / path.name).symlink_to(path)
    (own / "tools.pth").write_text(f"{tools}\n")
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), venv)
    # everything but the project itself is installed
    site.run(["bash", "-c", """touch .venv/dependencies-$(
        { "$(scripts/find-python)" -VV; cat setup.cfg; } | sha256sum | cut -c1-16)"""], cwd=checkout)
    source = checkout / "easyblocks/generic/containerinstall.py"

    def set_up(*options):
        site.run(["scripts/setup-venv", *options], cwd=checkout, PIP_NO_BUILD_ISOLATION=0, PIP_NO_INDEX=1)

    def edited(word):
        with source.open("a") as file:
            file.write(f"\nprint('{word} in the editor')\n")
        return site.eb(EXAMPLE, "--dry-run").stdout

    set_up("--editable")
    said = edited("first")
    assert "first in the editor" in said
    assert f"/{EXAMPLE} (module: PyTorch/" in said
    set_up()
    said = edited("second")
    assert "first in the editor" in said
    assert "second in the editor" not in said
    assert f"/{EXAMPLE} (module: PyTorch/" in said
    # none of the links remain
    assert not (checkout / "build").exists()
    assert not list(own.glob("__editable__*"))


def own_easyconfig(release, folder):
    """Return the easyconfig of this project from `make release`, for one Python; wheels are downloaded once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ebsif/dependencies"
    cache.mkdir(parents=True, exist_ok=True)
    target = "{}.{}-{}".format(*sys.version_info[:2], os.uname().machine)
    made = subprocess.run([CHECKOUT / "scripts/build-easyconfig", next(release.glob("*.tar.gz")), folder, target,
                           f"--known={cache}"], text=True, capture_output=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    for path in folder.glob("*.whl"):
        shutil.copy(path, cache)
    return Path(made.stdout.strip())


def test_installed_with_eb(tmp_path, release, easybuild_wheels):
    """W-07: eb installs ebsif without network; the module works with any EasyBuild; removing it leaves nothing."""
    easyconfig = own_easyconfig(release, tmp_path / "sources")
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    assert "All contribution checks PASSed" in site.eb("--check-contrib", easyconfig).stdout
    before = everything(site.prefix)
    # in an empty network namespace
    site.run(["unshare", "--map-root-user", "--net", "eb", *site.eb_options, easyconfig])
    number = (CONTAINER_FILES / "VERSION").read_text().strip()
    assert (site.modules / f"ebsif/{number}.lua").is_file()

    pip("install", "--no-compile", "--ignore-installed", "--prefix", tmp_path / "EasyBuild",
        *easybuild_wheels(version("easybuild-framework")))
    (framework,) = {path.parent for path in (tmp_path / "EasyBuild").rglob("*-packages/easybuild")}
    (eb,) = (tmp_path / "EasyBuild").rglob("bin/eb")
    # a Python that has neither installed
    python = sys._base_executable
    said = site.bash(
        f"set -e; module load ebsif; ebsif --version; {python} $(command -v ebsif) list --site lumi pytorch\n"
        f"{eb} {shlex.join(site.eb_options)} --list-easyblocks; {eb} {shlex.join(site.eb_options)} -D {EXAMPLE}",
        PYTHONPATH=framework, EB_PYTHON=python)
    assert said.stdout.startswith(f"ebsif {number}\n")
    assert "\nPyTorch/2.7.0-rocm" in said.stdout
    assert "|-- ContainerInstall\n|   |-- ContainerVenv" in said.stdout
    assert f"/{EXAMPLE} (module: PyTorch/" in said.stdout
    # other programs, in containers too, don't see what ebsif requires
    (folder,) = site.bash("module load ebsif; echo $PYTHONPATH").stdout.strip().split(":")
    assert {path.name for path in Path(folder).iterdir()} == {"easybuild"}
    assert site.bash('module load ebsif; ls "$EBROOTEBSIF/bin"').stdout == "ebsif\n"
    # EasyBuild has no complaint about the loaded module
    assert "loaded" not in said.stdout + said.stderr
    (removal,) = blocks("docs/upgrading.md")
    site.bash(f"set -e; module load ebsif\n{removal}", EASYBUILD_PREFIX=site.prefix / "eb")
    # temporary files are EasyBuild's
    left = {path for path in everything(site.prefix) if site.temporary not in path.parents and not path.is_dir()}
    assert not {path for path in left - before if (site.prefix / "eb") in path.parents or "ebsif" in str(path.name)}


def test_saved_files_repeat_an_installation(installed_once, easybuild_wheels, tmp_path):
    """easybuild D6: easybuild/reprod has all files with which an EasyBuild without ebsif repeats the installation."""
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
