"""The parts of the easyblocks one by one, with a fake container that runs nothing, and without an easyblock."""

import multiprocessing
import os
import re
import sys
import types
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container.aliases import HIDE, update_modulerc
from easybuild.easyblocks.generic.container.imageprograms import read_program
from easybuild.easyblocks.generic.container.modulefile import help_sections, listed_packages
from easybuild.easyblocks.generic.container.modulerc import aliases_of
from easybuild.easyblocks.generic.container.packages import InstalledPackages, Need
from easybuild.easyblocks.generic.container.pip import Pip
from easybuild.easyblocks.generic.container.probe import CommandResult
from easybuild.easyblocks.generic.container.record.installation import InstallRecord
from easybuild.easyblocks.generic.container.record.lockfile import HostLibrariesRecord, Record
from easybuild.easyblocks.generic.container.runtime import InstallContainer
from easybuild.easyblocks.generic.container.settings import container_lines, image_remedy
from easybuild.easyblocks.generic.container.spec import ContainerSpec, VenvSpec
from easybuild.easyblocks.generic.container.stages import PipStage
from easybuild.easyblocks.generic.container.venv import Venv
from easybuild.easyblocks.generic.containerinstall import ContainerInstall
from easybuild.easyblocks.generic.containervenv import ContainerVenv
from easybuild.framework.easyconfig import MANDATORY
from easybuild.framework.easyconfig.easyconfig import EasyConfig
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.docs import gen_easyblocks_overview_md, gen_easyblocks_overview_rst, get_easyblock_classes
from support import description

pytestmark = pytest.mark.usefixtures("configuration")

PURELIB = "/user-software/venv/x/lib/python3/site-packages"
PIP = ("pip", "26.0", "/opt/lib")


def test_a_build_directory_with_a_colon():
    """The runtime's options can't escape a colon, so the error says which directory to change, and how."""
    with pytest.raises(EasyBuildError, match=r"The build directory /a:b/c contains a colon.* EASYBUILD_BUILDPATH or"):
        InstallContainer(None, "a.sif", "/a:b/c")


class FakeContainer:
    """A container at install time that records commands and answers them from a table."""

    image = "/images/x.sif"
    search_path = ("/opt/conda/bin",)

    def __init__(self, work_dir):
        self.work_dir = str(work_dir)
        self.commands, self.answers, self.seen = [], {}, []

    def run(self, command, binds=(), environment=None, stdin="", **_):
        """Answer; each query for Python's packages takes the next answer, the last one repeatedly."""
        self.commands.append((command, list(binds), environment))
        output = self.answers.get(command[-1], "")
        if read_program("installed-packages.py") in (stdin, *command):
            output = self.next_packages()
        elif "run-logged.sh" in command:
            _, folder, _ = command[command.index("run-logged.sh") + 1 :][:3]
            # not after pip has upgraded itself
            if folder:
                assert Path(folder, "list.py").read_text() == read_program("installed-packages.py")
                Path(folder, "packages.txt").write_text(self.next_packages())
        return types.SimpleNamespace(exit_code=0, output=output, stderr="")

    def next_packages(self):
        """Return what installed-packages.py prints."""
        seen = self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]
        return repr(description(seen, purelib=PURELIB))


@pytest.fixture
def container(tmp_path):
    """A container that runs nothing."""
    return FakeContainer(tmp_path)


@pytest.fixture
def venv(container, tmp_path):
    """A venv in that container."""
    return Venv(container, str(tmp_path / "user-software"), "/user-software/venv/x")


def spec(cls=ContainerSpec, **values):
    """Return the specification for an easyconfig."""
    return cls({"name": "Example", "version": "1.0", "sources": ["example.sif"], **values})


def packages(*seen):
    """Return packages by normalised name."""
    return InstalledPackages((name, (name, version, folder)) for name, version, folder in seen)


def test_a_venv_that_can_not_be_created(venv):
    """E-15: the error has what the image's Python printed, or its exit status if it printed nothing."""
    nothing = "its Python ended with exit status 139, and without a message"
    for errors, said in (("first\nlast\n", "its output ends with\nfirst\nlast"), ("", nothing)):
        with pytest.raises(EasyBuildError, match=re.escape(f"created in the container: {said}") + "\\Z"):
            venv.make(packages(), CommandResult(139, "", errors))


def test_what_to_do_about_a_missing_image():
    """S002-03: who loads a module without a copy of the image is not told of a copy."""
    assert image_remedy("own", None).startswith("If you removed your own copy, ")
    assert image_remedy("central", None).startswith("This module has no copy: put the image back. ")


def test_a_module_from_values():
    """What a module decides from needs the specification and the record, but no installation."""
    packages = {"image_packages": ["numpy==2.0"], "venv_packages": ["hello==1.0"]}
    record = Record(wrappers=["python"], venv_environment={"PYTHONPATH": "/p"}, **packages)
    record.host_libraries = HostLibrariesRecord(binds=["/usr/lib/libx.so:/host-libraries/libx.so:ro"])
    values = {"binds": ["/scratch"], "image_dirs": ["/central"], "masked_paths": ["/usr/lib/a"], "gpu": "rocm"}
    values.update(network_env={"NET": "hsn"}, container_env={"A": "5$"}, one_container="replace")

    def help_of(parameters, module="Example/1.0", cls=ContainerSpec):
        return help_sections(spec(cls, **parameters).parts, record, module)

    def lines_of(cls):
        return [" ".join(line) for line in container_lines(spec(cls, **values).parts, record, "Example/1.0")]

    lines = lines_of(ContainerSpec)
    wanted = {"image ./example.sif", "image /central/example.sif", "suffix EXAMPLE", "one_container replace"}
    wanted |= {"bind /scratch", "bind ?/usr/lib/libx.so:/host-libraries/libx.so:ro"}
    wanted |= {"overlay /share/ebsif/masks.squashfs:ro", "where /dev/kfd *_ROCM 1"}
    wanted |= {"default NET hsn", "default *ENV_A 5\\$"}
    assert wanted <= set(lines)
    assert "user_software" not in "".join(lines)
    # 0b of the field: `module avail` stays a list of modules
    assert listed_packages("user_software", record) == [("hello", "1.0")]
    assert "python" in "".join(help_of(values))
    # N-01: what was added, and the name to type
    record.stages, record.venv_packages = [{"name": "a", "requirements": "hello"}], ["hello==1.0", "more==2", "pip==1"]
    assert "Packages that were added to the image: hello 1.0, and 1 more." in help_of(values)
    whole = "Example/1.0-writable-mine-20261128"
    # the names of an extension without its date will mean later modules
    for aliases, name in ((["1.0-writable-mine", "mine"], whole), (["1.0-demo"], "Example/1.0-demo")):
        named = "\n".join(help_of({"aliases": aliases}, whole, VenvSpec))
        assert f"    ebsif extend {name} --add " in named and named.count("Example/1.0") == 1
    record.stages, record.venv_packages = [], ["hello==1.0"]
    of_venv = {"user_software :ro,image-src=", "where user_software *ENV_PYTHONPATH /p"}
    of_venv.add("where user_software *ENV_VIRTUAL_ENV /user-software/venv/example")
    assert of_venv <= set(lines_of(VenvSpec))
    advice = "To add packages, create your own module on top of this one:\n\n"
    advice += "    ebsif extend Example/1.0 --add PACKAGE --name NAME"
    assert (advice in help_of(values, cls=VenvSpec), advice in help_of(values)) == (True, False)
    assert "Run any of them with --help for details." in help_of(values)[1]
    assert help_of(values)[1].startswith("While it is loaded, `ebsif show` prints what is in the image (`module ")
    # only hidden modules say why they are archived
    for hidden, expected in ((False, ["Warning: old"]), (True, ["Warning: old", "Warning: gone", "Warning: use x"])):
        texts = help_of({"warnings": ["old"], "hidden": hidden, "modloadmsg": "gone\nold\nuse x"})
        assert [text for text in texts if text.startswith("Warning: ")] == expected


def test_a_venv_that_does_not_see_the_image(container, venv):
    """S001-20: then nothing is installed: pip would install packages of the image again."""
    container.seen = [[PIP]]
    created = CommandResult(0, f"program\n{container.next_packages()}", "")
    with pytest.raises(EasyBuildError, match="does not see 1 of the 1 packages of the image"):
        venv.make(packages(("numpy", "2.0", "/opt/lib")), created)


def test_pip_keeps_the_packages_of_the_image(container, venv, tmp_path):
    """S001-19: pip gets constraints; if a package of the image is hidden anyway, the installation stops."""
    numpy, added = ("numpy", "2.0", "/opt/lib"), ("hello", "1.0", PURELIB)
    before = packages(PIP, numpy)
    before.purelib = PURELIB
    fsspec = ("fsspec", "9.0", "/opt/lib")
    image = packages(numpy, fsspec)
    image.compiled = {"numpy"}
    image.needs = [Need("numpy", "fsspec", "<10,>=1", True), Need("fsspec", "numpy", "<3", True)]
    installer = Pip(venv, str(tmp_path), image, {"hello": "1.0"})
    own = {"name": "own", "requirements": "hello", "pre": ["make it"], "env": {"A": "1"}}
    (stage,) = PipStage.from_parameter([own])
    container.seen = [[PIP, numpy, fsspec], [PIP, numpy, fsspec, added]]
    after = installer.install(stage, before, {"FROM_MODULE": "1"}, [])
    assert set(after.added_since(before)) == {"hello"}
    assert (tmp_path / "stages/own/constraints.txt").read_text() == "numpy==2.0\nfsspec<10,>=1\nhello==1.0\n"
    (pre, _, activated), (command, binds, environment) = container.commands[0], container.commands[2]
    assert pre[-1] == "make it"
    assert activated["APPTAINERENV_PREPEND_PATH"] == "/user-software/venv/x/bin:/opt/conda/bin"
    # through sh, which also writes what pip prints to a file
    assert command[command.index(venv.python) :][:4] == [venv.python, "-m", "pip", "install"]
    assert binds == [f"{venv.folder}:/user-software"]
    assert (environment["FROM_MODULE"], environment["SINGULARITYENV_A"]) == ("1", "1")
    container.seen = [[PIP, ("numpy", "2.0", PURELIB), fsspec]]
    with pytest.raises(EasyBuildError, match=r"installed numpy==2.0, which hides the image's \(2.0, compiled\)"):
        installer.install(stage, before)


def test_pip_of_a_repeated_installation(container, venv, tmp_path):
    """`upgrade_pip` installs the recorded pip, also if that was the image's, not the newest one."""
    record = InstallRecord(venv_packages=["hello==1.0"], versions={"pip": "26.0", "ebsif": "1"})
    assert record.replace(venv_packages=["pip==25.1"]).pins == {"pip": "25.1"}
    assert InstallRecord(venv_packages=[]).pins == {}
    installer = Pip(venv, str(tmp_path), packages(), record.pins)
    container.seen = [[PIP]]
    installer.install(*PipStage.from_parameter([{"name": "own", "upgrade_pip": True}]), packages(PIP))
    command, _, _ = container.commands[0]
    constraints = tmp_path / "stages/own/constraints.txt"
    assert command[command.index("install") :] == ["install", "--upgrade", "pip", "-c", str(constraints)]
    assert constraints.read_text() == "hello==1.0\npip==26.0\n"


def test_easybuild_documents_the_two_easyblocks():
    """EasyBuild's documentation generator finds our two easyblocks with their parameters."""
    package = "easybuild.easyblocks.generic"
    ours = [one for one in get_easyblock_classes(package) if one.__module__.startswith(f"{package}.container")]
    assert sorted(one.__name__ for one in ours) == ["ContainerInstall", "ContainerVenv"]
    for generate in (gen_easyblocks_overview_rst, gen_easyblocks_overview_md):
        text = "\n".join(generate(package, "", {}, []))
        assert re.search(r"derives from (:ref:`ContainerInstall`|\[``ContainerInstall``\])", text)
        assert "loading fails if a source doesn't exist" in text
        for parameter in (*ContainerInstall.extra_options(), *ContainerVenv.extra_options()):
            assert f"``{parameter}``" in text


@pytest.mark.parametrize("easyblock", [ContainerInstall, ContainerVenv])
def test_easybuilds_own_tests_for_each_easyblock(easyblock, tmp_path):
    """Each easyblock passes what easybuild-easyblocks tests in each file (`--module-only`: test_lumi)."""
    text = Path(sys.modules[easyblock.__module__].__file__).read_text()
    assert re.search(r"^class (\w+)\(", text, re.MULTILINE)[1] == easyblock.__name__
    assert not re.search(r"log\.(error|exception|raiseException)\(", text)
    for line in re.findall(r".*\bprepare_step\(.*", text):
        assert "*args, **kwargs" in line
    for name, (_, explanation, kind) in easyblock.extra_options().items():
        assert name.isidentifier() and explanation and kind != MANDATORY
    easyconfig = tmp_path / "easyconfig.eb"
    easyconfig.write_text(
        f"easyblock = {easyblock.__name__!r}\nname = {easyblock.__name__!r}\nversion = '1.0'\n"
        "homepage = ''\ndescription = 'A text.'\ntoolchain = SYSTEM\nsources = []\n"
    )
    assert easyblock(EasyConfig(str(easyconfig))).name == easyblock.__name__


LUA, TCL = 'module_version("{modname}", "{sym_version}")', "#%Module\nmodule-version {modname} {sym_version}"


class Generator:
    """What EasyBuild's generators of module files have for versions."""

    def __init__(self, statement, name=".modulerc"):
        self.DOT_MODULERC, self.SYNTAX = name, "Tcl" if statement == TCL else "Lua"
        self.modulerc = statement.format_map

    @staticmethod
    def det_installdir(path):
        """Return the installation of a module: in these tests the text of its file."""
        return Path(path).read_text()


def test_a_module_that_is_hidden_or_shown_again(tmp_path):
    """I-06: the earlier file becomes a hidden link, or goes with all statements; those of others stay."""

    def update(version, *aliases):
        update_modulerc(Generator(TCL), str(tmp_path / version), f"P/{version}", aliases, "/software/P/1.0")
        return [str(path.readlink()) if path.is_symlink() else path.name for path in sorted(tmp_path.iterdir())]

    versions = tmp_path / ".modulerc"
    (tmp_path / "1.0").write_text("/another")
    (tmp_path / ".1.0").write_text("/software/P/1.0")
    assert update(".1.0") == [".1.0", ".modulerc", "1.0"]
    assert versions.read_text() == "#%Module\nmodule-version P/.1.0 1.0\n"
    (tmp_path / "1.0").write_text("/software/P/1.0")
    for _ in range(2):
        assert update(".1.0") == [".1.0", ".modulerc", ".1.0"]
    # as a symbolic version, Lmod would not unload it
    assert versions.read_text() == HIDE["Tcl"] % {"module": "P/1.0"} + "\n"
    update(".1.0", "2")
    hidden = HIDE["Tcl"].splitlines()[1] % {"module": "P/1.0"}
    assert versions.read_text().splitlines()[1:] == [hidden, "module-version P/.1.0 2"]
    versions.write_text(f"{versions.read_text()}other\n")
    (tmp_path / "1.0").unlink()
    assert update("1.0") == [".modulerc"]
    assert versions.read_text() == "#%Module\nother\n"
    # also in another encoding, in the files of both syntaxes
    theirs, other = b"# \xe9\n", tmp_path / ".modulerc.lua"
    versions.write_bytes(b"#%Module\n" + theirs)
    other.write_bytes(theirs.replace(b"#", b"--") + b'module_version("P/1.0", "2")\n')
    update("1.0", "2")
    assert versions.read_bytes() == b"#%Module\n" + theirs + b"module-version P/1.0 2\n"
    assert other.read_bytes() == theirs.replace(b"#", b"--")


@pytest.mark.parametrize("statement", [LUA, TCL])
def test_versions_under_which_a_module_can_be_loaded(statement, tmp_path):
    """L-11: one line for each, once, even if one is a prefix of another; other lines in the file stay."""

    def add(module, *aliases):
        update_modulerc(Generator(statement), str(tmp_path / "module"), module, list(aliases), "/software")
        return (tmp_path / ".modulerc").read_text()

    header, line = statement.rpartition("\n")[0], statement.rpartition("\n")[2]
    expected = [header] * bool(header) + [line.format(modname="P/2.0-x", sym_version=one) for one in ("2.0-y", "2.0")]
    assert add("P/2.0-x", "2.0-y", "2.0").splitlines() == expected
    # a file without a newline at its end, as EasyBuild writes it
    (tmp_path / ".modulerc").write_text("\n".join(expected))
    for _ in range(2):
        text = add("P/.1.0", "2.0-z")
    expected += [line.format(modname="P/.1.0", sym_version=one) for one in ("1.0", "2.0-z")]
    assert text.splitlines() == expected
    # an alias moves to another version, and back
    for module in ("P/3.0", "P/2.0-x"):
        moved = add(module, "2.0").splitlines()
        stays = [one for one in expected if not re.search(r"\b2\.0\b(?!-)", one)]
        assert moved == [*stays, line.format(modname=module, sym_version="2.0")]
    # the modules tool would load the other version in place of the one that is installed, and say nothing
    for module in ("P/2.0-y", "P/.2.0-y"):
        add("P/2.0-x", "2.0-y")
        assert line.format(modname="P/2.0-x", sym_version="2.0-y") not in add(module).splitlines()
        assert line.format(modname="P/2.0-x", sym_version="2.0") in add(module).splitlines()


@pytest.mark.parametrize("statement", [LUA, TCL])
def test_an_alias_that_is_taken_back(statement, tmp_path, capsys):
    """L-11: the alias ends, unless it may be somebody else's: then eb says where it stays, except for a default."""

    def install(*aliases, earlier=()):
        update_modulerc(Generator(statement), str(tmp_path / "1.0"), "P/1.0", list(aliases), "/software", earlier)
        # EasyBuild breaks lines anywhere
        return "".join(capsys.readouterr().err.split())

    assert install("latest", "default", "old") == install("default", "old", "latest") == ""
    warning = "WARNING: P/1.0 can also be loaded as P/old, which the easyconfig doesn't name: to end that, remove its "
    assert install("latest") == f"{warning} line from {tmp_path}/.modulerc".replace(" ", "")
    before = (tmp_path / ".modulerc").read_text()
    assert "old" in before and install("latest", earlier=["latest", "default", "old"]) == ""
    left = [line for line in before.splitlines() if "old" not in line and "default" not in line]
    assert (tmp_path / ".modulerc").read_text().splitlines() == left


@pytest.mark.parametrize(
    ("text", "aliases"),
    [
        ("name = 'P'\naliases = ['1.0', 'latest']\n", ["1.0", "latest"]),
        ("name = 'P'\n", []),
        ("aliases = [", []),
        ("local_one = '1'\naliases = [local_one]\n", []),
        ("aliases = ['earlier']\naliases = ['last']\n", ["last"]),
        ("description = '\\d'\naliases = ['1.0']\n", ["1.0"]),
        ("aliases = '1.0'\n", []),
        ("aliases = ('1.0', '1')\n", ["1.0", "1"]),
        # what breaks the reading of a literal, or isn't text
        ("x = {[]: 1}\naliases = ['1.0', ['2'], 3]\n", ["1.0"]),
        # some Pythons parse these
        pytest.param(f"aliases = {'-' * 10000}1\n", [], id="deep"),
        pytest.param(f"aliases = 1{'+1' * 10000}\n", [], id="long"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_the_aliases_of_an_installation(text, aliases, tmp_path):
    """L-11: they are in EasyBuild's copy of the easyconfig, which may be anybody's; a pipe beside it isn't read."""
    assert aliases_of(str(tmp_path)) == []
    (tmp_path / "easybuild").mkdir()
    (tmp_path / "easybuild/P-1.0.eb").write_text(text)
    os.mkfifo(tmp_path / "easybuild/A-1.0.eb")
    assert aliases_of(str(tmp_path)) == aliases


def test_versions_installed_at_the_same_time(tmp_path):
    """I-01: several installations add to the same .modulerc file, and no statement is lost."""

    def add(version):
        for number in range(30):
            names, path = [f"{version}-{number}"], str(tmp_path / version)
            update_modulerc(Generator(LUA, ".modulerc.lua"), path, f"P/{version}", names, "/software")

    installing = [multiprocessing.get_context("fork").Process(target=add, args=[version]) for version in "abcd"]
    for one in installing:
        one.start()
    for one in installing:
        one.join(60)
    assert [one.exitcode for one in installing] == [0] * 4
    assert len((tmp_path / ".modulerc.lua").read_text().splitlines()) == 120
    assert [path.name for path in tmp_path.iterdir()] == [".modulerc.lua"]
