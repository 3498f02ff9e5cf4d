"""Different ways to install EasyBuild: each finds our easyblocks and easyconfigs."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from parts import TOOLS, Installed
from support import CHECKOUT, CONTAINER_FILES, Site, attempt, blocks, tracked

EXAMPLE = "PyTorch-2.13.0-cpu-python-3.11-singularity-exampleVenv-20261121.eb"
OTHER = "zlib-1.3.eb"
NUMBER = (CONTAINER_FILES / "VERSION").read_text().strip()


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A folder with a release: the source distribution, and the wheel built from it."""
    folder = tmp_path_factory.mktemp("release")
    # the build writes into the source directory
    for path in tracked():
        target = folder / "sources" / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, folder / "sources"]
    subprocess.run(command, check=True, capture_output=True, text=True)
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
    assert {name for name in there - wanted if ".egg-info/" not in name} == {"PKG-INFO", "setup.cfg"}


def pip(command, *arguments, python=sys.executable):
    """Run pip of a Python, without network."""
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, command, "--quiet"]
    subprocess.run(
        [*words, *(["--yes"] if command == "uninstall" else ["--no-index", "--no-deps"]), *arguments],
        check=True,
        capture_output=True,
        text=True,
    )


def everything(folder):
    """Return all paths below a folder; without bytecode of eb's `python -O`, which pip doesn't remove."""
    paths = set(folder.rglob("*"))
    bytecode = {path for path in paths if "__pycache__" in path.parts}
    others = {path for path in paths - bytecode if not path.is_dir()}
    # directories that are left for bytecode only
    above = {parent for path in bytecode for parent in path.parents} - {
        parent for path in others for parent in path.parents
    }
    return paths - bytecode - above


@pytest.mark.nightly
def test_beside_a_full_easybuild(tmp_path, wheel, easybuild_wheels):
    """It works in a venv with easybuild-easyconfigs, whose index hides other files in its directories."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin/python"
    pip("install", "--no-compile", *easybuild_wheels(version("easybuild-framework")), python=python)
    # where easybuild-easyconfigs puts its files; eb writes that package's index
    easyconfigs = venv / "easybuild/easyconfigs"
    (easyconfigs / "z/zlib").mkdir(parents=True)
    (easyconfigs / "z/zlib" / OTHER).write_text(
        "easyblock = 'Tarball'\nname = 'zlib'\nversion = '1.3'\nhomepage = ''\ndescription = ''\ntoolchain = SYSTEM\n"
    )
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), venv)
    site.eb("--create-index", easyconfigs)
    before = everything(venv)
    # ebsif doctor asks the eb on PATH, which is in another directory
    doctor = [Path(sys.prefix) / "bin/ebsif", "doctor"]
    settings = {"EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES": "1"}
    (line,) = lines_about(": easyblocks: ", site.run(doctor, **settings).stdout)
    assert line.startswith("note: ")
    assert "eb finds them with --include-easyblocks=" in line

    pip("install", "--no-compile", wheel, python=python)
    installed = next(venv.glob("lib/*/site-packages/easybuild/easyconfigs"))
    assert names(installed) == names(CHECKOUT / "easyconfigs")
    blocks_line, configs_line = lines_about(" eb finds ", site.run(doctor, **settings).stdout)
    assert re.match("ok: easyblocks: eb finds them$", blocks_line)
    assert re.match(f"ok: easyconfigs: .*{installed}", configs_line)
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


@pytest.mark.nightly
def test_through_pythonpath(tmp_path, wheel, easybuild_wheels):
    """EasyBuild and ebsif work as modules that set PATH and PYTHONPATH, and both with pip --prefix."""
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
        return site.eb(
            EXAMPLE,
            "--dry-run",
            PATH=":".join([*commands, *rest]),
            PYTHONPATH=":".join(folders),
            EB_PYTHON=programs / "python",
        ).stdout

    assert f"/{EXAMPLE} (module: PyTorch/" in found(*modules)
    pip(*install, modules[0], wheel)
    assert f"/{EXAMPLE} (module: PyTorch/" in found(modules[0])


@pytest.mark.nightly
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
    script = """here=scripts; . scripts/lib.sh; touch .venv/dependencies-$(
        { "$(scripts/find-python)" -VV; project_metadata; } | sha256sum | cut -c1-16)"""
    site.run(["bash", "-c", script], cwd=checkout)
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


@pytest.mark.nightly
@pytest.mark.parametrize("option", ["--use-entrypoints", "--disable-use-entrypoints"])
def test_plug_ins_of_easybuild(site, option):
    """A-01: EasyBuild 5.3 and newer finds the easyblocks by entry points if asked to, otherwise by their files."""
    texts = {"ContainerVenv": Installed.TEXT, "ContainerInstall": "sources = ['example.sif']\n"}
    for name, text in texts.items():
        easyconfig = site.easyconfig(f"easyblock = {name!r}\n{text}", suffix=f"-{name}")
        said = site.eb(easyconfig, option, "--debug", "--logtostdout").stdout
        if option == "--use-entrypoints":
            assert f"Obtained easyblock class '{name}' from entrypoint" in said
        else:
            assert f"module path for {name}: easybuild.easyblocks.generic.{name.lower()}\n" in said
        assert (site.modules / f"Example/1.0-{name}.lua").is_file()
    assert "|-- ContainerInstall\n|   |-- ContainerVenv" in site.eb("--list-easyblocks", option).stdout


def own_easyconfig(release, folder):
    """Return the easyconfig of this project from `make release`, for one Python; wheels are downloaded once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ebsif/dependencies"
    cache.mkdir(parents=True, exist_ok=True)
    target = "{}.{}-{}".format(*sys.version_info[:2], os.uname().machine)
    made = attempt(
        [CHECKOUT / "scripts/build-easyconfig", next(release.glob("*.tar.gz")), folder, target, f"--known={cache}"]
    )
    assert made.returncode == 0, made.stdout + made.stderr
    for path in folder.glob("*.whl"):
        shutil.copy(path, cache)
    return Path(made.stdout.strip())


@pytest.fixture
def module_of_ebsif(lumi, release, tmp_path):
    """The module ebsif, installed without network by the site's eb; another Python of its version is first on PATH."""
    easyconfig = own_easyconfig(release, tmp_path / "sources")
    assert "All contribution checks PASSed" in lumi.eb("--check-contrib", easyconfig).stdout
    lines = blocks("docs/lumi/for-lust.md")[-1]
    lines = lines.replace("LUMI partition/container EasyBuild-unlock EasyBuild-production", "EasyBuild-user")
    # in an empty network namespace
    script = shlex.quote(f"{lumi.tool.init}\n{lines}")
    said = lumi.bash(f"unshare --map-current-user --net bash -ec {script}", cwd=easyconfig.parent).stdout
    assert f"ok: easyconfigs: eb finds those in {lumi.easyconfigs}, {lumi.prefix}" in said
    assert "error: " not in said
    return NUMBER


LISTS = "EASYBUILD_ROBOT_PATHS EASYBUILD_INCLUDE_EASYBLOCKS PYTHONPATH"


@pytest.mark.nightly
def test_installed_with_eb(lumi, module_of_ebsif, easybuild_of_site, easybuild_wheels, tmp_path):
    """
    W-07, F-03, F-05: the module works with an eb that overwrites PYTHONPATH, and with others.

    It extends the lists of the site. Removing it leaves nothing.
    """
    site = lumi
    said = site.bash(f"""
        before=$(printenv {LISTS})
        module load ebsif
        ebsif --version
        eb --list-easyblocks
        eb -D {EXAMPLE} hello-1.0.eb
        eb --show-config | grep allow-loaded
        printenv {LISTS}
        ebsif list --mine
        head -n 1 $(command -v ebsif)
        module unload ebsif
        [ "$before" = "$(printenv {LISTS})" ] && echo restored""")
    assert f"ebsif {module_of_ebsif}\n" in said.stdout
    assert "|-- ContainerInstall\n|   |-- ContainerVenv" in said.stdout
    assert f"/{EXAMPLE} (module: PyTorch/" in said.stdout
    assert "(module: hello/1.0)" in said.stdout
    assert "(F) = EasyBuild, site-tools\n" in said.stdout
    root = site.prefix / "eb/SW/ebsif" / module_of_ebsif / "python/easybuild"
    assert f"\n{site.easyconfigs}:{root}/easyconfigs\n" in said.stdout
    assert f"\n{site.easyblocks}/*/*.py,{root}/easyblocks/generic/*.py\n" in said.stdout
    assert "ebsif: you have installed no container module\n" in said.stderr
    assert f"\n#!{sys._base_executable}\n" in said.stdout
    assert said.stdout.endswith("\nrestored\n")
    # EasyBuild has no complaint about the loaded module
    assert "loaded (EasyBuild" not in said.stdout + said.stderr

    # without EasyBuild
    script = "module load ebsif; ebsif list --site lumi pytorch; ebsif list --mine --site lumi"
    said = site.bash(script, check=False, easybuild=None, PATH=without_easybuild(site))
    assert "\nPyTorch/2.7.0-rocm" in said.stdout
    assert said.returncode == 3
    assert said.stderr.endswith(
        f"ebsif: this command needs EasyBuild, which {sys._base_executable} can't import: "
        "run `module load LUMI partition/container EasyBuild-user`\n"
    )

    # an eb that heeds PYTHONPATH, where the site sets no list
    (framework,) = easybuild_of_site["5"].glob("lib/*/site-packages")
    (eb,) = framework.glob("*.data/scripts/eb")
    script = f"module load ebsif; bash {eb} {shlex.join(site.eb_options)} -D {EXAMPLE}; printenv {LISTS}"
    said = site.bash(script, check=False, easybuild=None, PYTHONPATH=framework, EB_PYTHON=sys._base_executable)
    assert f"/{EXAMPLE} (module: PyTorch/" in said.stdout
    assert said.stdout.endswith(f"\n{root.parent}:{framework}\n")
    # other programs, in containers too, don't see what ebsif requires
    assert {path.name for path in root.parent.iterdir()} == {"easybuild"}
    assert [path.name for path in (root.parents[1] / "bin").iterdir()] == ["ebsif"]
    (removal,) = blocks("docs/upgrading.md")
    # this site has other directories than EasyBuild's usual ones
    removal = removal.replace("/software", "/SW").replace("/modules/*", "/modules")
    site.bash("set -e; module load ebsif\n" + removal)
    left = [path for path in everything(site.prefix / "eb") if "ebsif" in path.name]
    assert not left


@pytest.mark.parametrize("tool", TOOLS)
def test_lists_of_the_site_in_one_process(tmp_path, tool):
    """F-03: lists of the site are extended, with its module in the same command too, and are as before afterwards."""
    site = Site(tmp_path / "site", TOOLS[tool](), Path(sys.prefix))
    template = (CHECKOUT / "scripts/ebsif.eb.j2").read_text()
    lists = {"EASYBUILD_ROBOT_PATHS": "/site/ec", "EASYBUILD_INCLUDE_EASYBLOCKS": "/site/*/*.py"}
    if site.tool.syntax == "Lua":
        begin, ending, command = "local root = '/own'\n", ".lua", "setenv('{}', '{}')\n"
    else:
        begin, ending, command = "#%Module\nset root /own\n", "", "setenv {} {}\n"
    footer = re.search(f'mod{site.tool.syntax.lower()}footer = """\n(.*?)"""', template, re.DOTALL).group(1)
    again = "update" if site.tool.name == "Lmod" else "reload"
    site.modules.mkdir(parents=True)
    (site.modules / f"ebsif{ending}").write_text(begin + footer)
    (site.modules / f"site{ending}").write_text(begin + "".join(command.format(*one) for one in lists.items()))
    said = site.bash(f"""
        show() {{ echo "$1 $(printenv {" ".join(lists)} | paste -sd ' ')"; }}
        module use {site.modules}
        module load site ebsif; show one
        module unload ebsif; show without
        module load ebsif; show two
        module {again}; show again
        module unload site ebsif; show none
        module load ebsif; show alone""").stdout
    both = "/site/ec:/own/python/easybuild/easyconfigs /site/*/*.py,/own/python/easybuild/easyblocks/generic/*.py"
    # an empty list gets no empty item, for which eb would search the working directory
    said += site.bash(
        f"module use {site.modules}; export EASYBUILD_INCLUDE_EASYBLOCKS=; module load ebsif\n"
        "echo empty $EASYBUILD_INCLUDE_EASYBLOCKS"
    ).stdout
    (empty,) = lines_about("empty ", said)
    assert empty == "empty /own/python/easybuild/easyblocks/generic/*.py"
    shown = [line for line in said.splitlines() if line.startswith(("one", "without", "two", "again", "none", "alone"))]
    assert shown == [f"one {both}", "without /site/ec /site/*/*.py", f"two {both}", f"again {both}", "none ", "alone "]


def test_doctor_names_the_easyblocks_to_mend(lumi):
    """F-03, F-05: easyblocks of the site that are broken, incomplete or of another version are named, with a remedy."""
    site, shared = lumi, lumi.easyblocks / "generic"

    def said(status=1):
        done = site.bash("ebsif doctor", check=False)
        (line,) = lines_about(": easyblocks: ", done.stdout)
        assert done.returncode == status
        return line

    for path in ("containerinstall.py", "containervenv.py"):
        shutil.copy(CHECKOUT / "easyblocks/generic" / path, shared)
    assert f"there has to be the directory easyblocks/generic/container of ebsif {NUMBER}" in said()
    shutil.copytree(CHECKOUT / "easyblocks/generic/container", shared / "container")
    assert said(status=0) == "ok: easyblocks: eb finds them"
    version = shared / "container/files/VERSION"
    remedy = f"but this is ebsif {NUMBER}: replace container and container*.py there with its"
    version.write_text("0.1.9\n")
    assert f"eb finds easyblocks of ebsif 0.1.9 in {shared}, {remedy}" in said()
    version.unlink()
    assert f"eb finds easyblocks of ebsif 0.1 in {shared}, {remedy}" in said()
    (shared / "sitetarball.py").write_text("import nosuchmodule\n")
    assert "sitetarball" in said() and f". Correct include-easyblocks ({lumi.easyblocks}/*/*.py" in said()


def without_easybuild(site):
    """Return PATH without the venv of the tests, which has an eb of its own."""
    return ":".join(folder for folder in site.environment["PATH"].split(":") if folder != f"{sys.prefix}/bin")
