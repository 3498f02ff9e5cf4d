"""Names of containers that users type; list, remove and freeze installations. No image is needed."""

import json
import os
from argparse import Namespace

import pytest
from ebsif.cli import main
from ebsif.errors import UsageError
from ebsif.installed import places, removal
from ebsif.installed.names import Names, NamingError, complete

BASE = "PyTorch/2.13.0-cpu-python-3.11-singularity-20261121"
MINE = f"{BASE}-mine-20261121"
LATER = f"{BASE}-mine-20261122"
OTHER = f"{BASE}-other-20261121"
EASYCONFIG = """\
# Written by `ebsif extend`: yours to change.
easyblock = 'ContainerVenv'

name = 'PyTorch'
version = '2.13.0'
versionsuffix = '-cpu-python-3.11-singularity-20261121-mine-20261121'

homepage = 'https://pytorch.org/'
description = 'Mine'
toolchain = SYSTEM

sources = ['a.sif']

requirements = [
    'einops[all]>=0.8; python_version > "3"',
    'gone',
    '# a comment',
]

moduleclass = 'ai'
"""


class Prefix:
    """An EasyBuild prefix whose installations contain only the files that the commands read."""

    def __init__(self, folder):
        self.software, self.modules = folder / "eb/software", folder / "eb/modules/all"
        self.modules.mkdir(parents=True)

    def install(self, module, packages=("einops==0.8.1",), text=EASYCONFIG, lua=True, **record):
        """Install a module; return its directory."""
        root = self.software / module
        name, _, version = module.partition("/")
        (root / "share/ebsif").mkdir(parents=True)
        (root / "easybuild").mkdir()
        (root / "easybuild" / f"{module.replace('/', '-')}.eb").write_text(text)
        (root / "a.sif").write_bytes(bytes(5000))
        for package in packages:
            self.add(root, *package.split("=="))
        (root / "share/ebsif/lock.json").write_text(json.dumps({
            "module": {"name": name, "version": version.split("-")[0], "versionsuffix": version[version.index("-"):]},
            "image": {"file": "a.sif", "sha256": "0" * 64}, "image_packages": ["numpy==2.0"], "artifacts": {},
            "venv_packages": list(packages), "stages": [{"name": "requirements", "requirements": "einops\ngone\n"}],
            **record}))
        self.write_module(module, root, lua)
        return root

    def write_module(self, module, root, lua=True):
        """Write the module file of an installation."""
        file = self.modules / (f"{module}.lua" if lua else module)
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'local root = "{root}"\nput("CONTAINERROOT", root .. "")\n' if lua else
                        f"#%Module\nset root {root}\nsetenv CONTAINERROOT $root\n")

    @staticmethod
    def add(root, name, version):
        """Add a package by hand."""
        folder = root / f"user-software/venv/pytorch/lib/python3.11/site-packages/{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")


@pytest.fixture
def prefix(tmp_path, monkeypatch):
    """A prefix known to EasyBuild and the modules tool, with no module loaded."""
    made = Prefix(tmp_path)
    for name in [name for name in os.environ if name.startswith(("EBSIF_", "EASYBUILD_"))] + ["CONTAINERROOT"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODULEPATH", str(made.modules))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("ebsif.eb.prefix", lambda: (made.software, made.modules))
    monkeypatch.chdir(tmp_path)
    return made


def names():
    """The names in the example catalogue."""
    return Names(Namespace(site=None, catalogue=[]))


def test_every_way_to_name_an_installed_module(prefix, monkeypatch):
    """E-09: name, hidden name, easyconfig, directory, part of a name; the newest date; by default the loaded module."""
    root, hidden = prefix.install(MINE), prefix.install("Tool/.1.0-x", lua=False)
    for text in (MINE, f"{MINE.replace('/', '-')}.eb", str(root), "mine", "torch-2.13", "MINE-20261121"):
        assert names().installation(text).root == root, text
    for text in ("Tool/1.0-x", "Tool/.1.0-x", "tool"):
        assert names().installation(text).root == hidden, text
    later = prefix.install(LATER)
    assert names().installation("mine").root == later
    with pytest.raises(NamingError, match=rf"'mine' is ambiguous; choose one of:\n  {MINE}\n  {LATER}"):
        names().installation("mine", careful=True)
    # no other module than the one that is named in full
    assert names().installation(BASE).root == later
    with pytest.raises(NamingError, match="is installed here"):
        names().installation(BASE, careful=True)
    other = prefix.install(OTHER)
    (prefix.modules / f"{OTHER}.lua").unlink()
    assert names().installation(OTHER, careful=True).root == other
    prefix.write_module(OTHER, other)
    with pytest.raises(NamingError, match="'2.13' is ambiguous"):
        names().installation("2.13")
    with pytest.raises(NamingError, match="minr-20261121' is installed here; did you mean"):
        names().installation(f"{BASE}-minr-20261121")
    with pytest.raises(UsageError, match="no container module is loaded"):
        names().installation(None)
    monkeypatch.setenv("CONTAINERROOT", str(root))
    assert names().installation(None).root == root
    assert names().installation(None).is_loaded


def test_the_catalogue_and_files(prefix, tmp_path):
    """E-09: the same names find containers in the catalogue, easyconfigs and images, also by part."""
    assert names().container("PyTorch/2.13.0").module == BASE
    assert names().container("torch-2.13").name == "PyTorch"
    assert names().container("PyTorch/2.13").module == BASE
    root = prefix.install(MINE)
    assert names().find(MINE).root == root
    assert names().image(MINE) == root / "a.sif"
    assert names().easyconfig("mine").parent == root / "easybuild"
    assert names().easyconfig(BASE) == f"{BASE.replace('/', '-')}.eb"
    (tmp_path / "b.eb").write_text("")
    assert names().easyconfig("b.eb").name == "b.eb"
    for text, expected in (("PyTrch", r"there is no container 'PyTrch' .*; did you mean PyTorch\?"),
                           ("PyTorch/9", "there is no version '9' of PyTorch"),
                           ("./none", "not an installation of a container module"), ("M", "there is no container 'M'")):
        with pytest.raises(Exception, match=expected):
            names().find(text)


def test_tab_completion_of_names(prefix):
    """E-14: installed modules and containers of the catalogue."""
    prefix.install(MINE)
    options = Namespace(site=None, catalogue=[])
    assert {BASE, MINE} <= set(complete("pyt", options))
    assert complete("PyTorch/2.13.0-cpu-python-3.11-singularity-20261121-m", options) == [MINE]


def test_the_modules_of_a_user(prefix, monkeypatch, capsys):
    """E-05: each with base, size, date and state, also one without a module file; not EasyBuild's backups of them."""
    prefix.write_module(f"{MINE}.bak_20261122152728_16249", prefix.install(MINE), lua=False)
    other = prefix.install(OTHER, text=EASYCONFIG.replace("mine", "other"))
    (other / "a.sif").unlink()
    (prefix.modules / f"{OTHER}.lua").unlink()
    monkeypatch.setenv("CONTAINERROOT", str(prefix.software / MINE))
    assert main(["list", "--mine", "--json"]) == 0
    rows = {row["module"]: row for row in json.loads(capsys.readouterr().out)}
    assert {name: (row["base"], row["state"]) for name, row in rows.items()} == {
        MINE: (BASE, ["loaded"]), OTHER: (BASE, ["no module file", "image gone"])}
    assert rows[MINE]["size"] > 5000 > rows[OTHER]["size"] - 8 * 4096
    (other / "share/ebsif/lock.json").write_text("{")
    assert main(["list", "--mine", "other", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == ["no module file", "record damaged"]
    assert main(["list", "--mine", "other"]) == 0
    assert MINE not in capsys.readouterr().out
    assert main(["list", "--mine", "none"]) == 0
    assert capsys.readouterr().out == "you have installed no container module of that name\n"


def test_hard_links_take_no_space(prefix, tmp_path):
    """E-01: files with other names elsewhere are not freed."""
    root = prefix.install(MINE)
    before = places.size_of(root)
    os.link(root / "a.sif", tmp_path / "same.sif")
    assert places.size_of(root) < before - 4000


def test_remove_deletes_the_whole_module_and_nothing_else(prefix, tmp_path, capsys):
    """E-06: module file, links to it, installation, user software set aside, more names, easyconfig, stale locks."""
    easyconfig = tmp_path / "mine.eb"
    easyconfig.write_text(EASYCONFIG)
    root, other = prefix.install(MINE, easyconfig=str(easyconfig)), prefix.install(f"{MINE}2")
    link = prefix.modules.parent / "ai" / f"{MINE}.lua"
    link.parent.mkdir(parents=True)
    link.symlink_to(prefix.modules / f"{MINE}.lua")
    versions = prefix.modules / "PyTorch/.modulerc.lua"
    versions.write_text(f'module_version("{MINE}", "mine")\nmodule_version("{MINE}2", "mine2")\n')
    aside = [root.with_name(f"{root.name}{end}") for end in (
        ".20261121-101112", ".20261121-101112.user-software", ".20261121-101112.scripts.2", ".replaced")]
    kept = [root.with_name(f"{root.name}.20261121"), root.with_name(f"{root.name}.mine")]
    for path in (*aside, *kept):
        path.mkdir()
    (root / "closed/in").mkdir(parents=True)
    (root / "closed").chmod(0o500)
    with pytest.raises(SystemExit, match="2"):
        main(["remove", MINE])
    assert "--yes" in capsys.readouterr().err
    assert main(["remove", MINE, "-n"]) == 0
    shown = capsys.readouterr().out
    assert all(str(path) in shown for path in (root, link, versions, easyconfig, *aside))
    assert root.exists()
    assert main(["remove", MINE, "--yes"]) == 0
    assert not [path for path in (root, easyconfig, prefix.modules / f"{MINE}.lua", link, *aside)
                if os.path.lexists(path)]
    assert other.exists() and all(path.exists() for path in kept)
    assert versions.read_text() == f'module_version("{MINE}2", "mine2")\n'
    assert sorted(path.name for path in root.parent.iterdir()) == sorted([other.name, *(path.name for path in kept)])
    assert main(["remove", f"{MINE}2", "--yes"]) == 0
    assert not (prefix.modules / "PyTorch").exists()


def test_refused_removals(prefix, monkeypatch, tmp_path, capsys):
    """E-06: a loaded module, one being installed; a changed easyconfig is kept; nothing is half removed."""
    easyconfig = tmp_path / "mine.eb"
    easyconfig.write_text(EASYCONFIG.replace("Mine", "changed"))
    root = prefix.install(MINE, easyconfig=str(easyconfig))
    monkeypatch.setenv("CONTAINERROOT", str(root))
    assert main(["remove", MINE, "--yes"]) != 0
    assert f"{MINE} is loaded: unload it first" in capsys.readouterr().err
    monkeypatch.delenv("CONTAINERROOT")
    user = prefix.install(OTHER, image={"file": "b.sif", "sha256": "0", "resolved": str(root / "a.sif")})
    assert main(["remove", MINE, "--yes"]) != 0
    assert f"has the image that these modules use: {OTHER}; remove those first" in capsys.readouterr().err
    (user / "b.sif").touch()
    lock = prefix.software / ".locks" / (str(root).replace("/", "_") + ".lock")
    lock.mkdir(parents=True)
    assert main(["remove", MINE, "--yes"]) != 0
    assert f"remove its lock {lock}" in capsys.readouterr().err
    lock.rmdir()
    planned = removal.plan(places.with_module_file(names().installation(MINE)))
    assert planned.kept == [f"{easyconfig}: changed since the installation"]
    planned.paths.append(tmp_path / "none")
    with pytest.raises(removal.RemovalError, match="none can't be removed: .*; nothing was removed"):
        removal.remove(planned)
    assert root.exists() and (prefix.modules / f"{MINE}.lua").exists() and easyconfig.exists()


def test_files_of_other_accounts_are_not_removed(prefix, monkeypatch):
    """E-06: they are named before anything is changed."""
    root = prefix.install(MINE)
    monkeypatch.setattr(os, "getuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(removal.RemovalError, match="belongs to .*; nothing was removed"):
        removal.plan(places.with_module_file(names().installation(MINE)))
    assert root.exists()


def test_packages_added_by_hand(prefix, capsys, tmp_path):
    """E-08: record, bill of materials and diff include them; without changes the record is the original."""
    root = prefix.install(MINE)
    record = json.loads((root / "share/ebsif/lock.json").read_text())
    assert main(["lock", "mine"]) == 0
    assert json.loads(capsys.readouterr().out) == record
    (tmp_path / "before.json").write_text(json.dumps(record))
    prefix.add(root, "rich", "14.0")
    assert main(["lock", "mine", "-o", "after.json"]) == 0
    after = json.loads((tmp_path / "after.json").read_text())
    assert after["venv_packages"] == ["einops==0.8.1", "rich==14.0"]
    assert after["stages"] == [{"name": "requirements", "requirements": "einops==0.8.1\nrich==14.0\n"}]
    assert main(["lock", "mine", "--sbom"]) == 0
    assert "pkg:pypi/rich@14.0" in capsys.readouterr().out
    (root / "easybuild" / f"{MINE.replace('/', '-')}.eb").unlink()
    assert main(["diff", "./before.json", "mine"]) == 1
    assert capsys.readouterr().out == "+ package rich 14.0\n"


def test_an_easyconfig_of_the_current_state(prefix, capsys, tmp_path):
    """E-08: exact versions; added packages are included, removed ones are not; the rest is unchanged."""
    root = prefix.install(MINE, stages=[{"name": "requirements", "requirements": (
        'einops[all]>=0.8; python_version > "3"\n--pre\ngone\nnumpy<3  # of the image\n')}])
    prefix.add(root, "rich", "14.0")
    assert main(["freeze", "mine", "--date", "20261123"]) == 0
    path = tmp_path / f"{BASE.replace('/', '-')}-mine-20261123.eb"
    assert capsys.readouterr().out.startswith(f"{path.name}\n")
    text = path.read_text()
    values = {"SYSTEM": "SYSTEM"}
    exec(text, values)
    assert values["requirements"].split("\n") == [
        "", 'einops[all]==0.8.1; python_version > "3"', "--pre", "numpy<3", "rich==14.0", ""]
    assert values["versionsuffix"].endswith("-20261121-mine-20261123")
    assert values["checksums"] == ["0" * 64]
    assert text.startswith("# Written by `ebsif freeze`") and "# Written by `ebsif extend`" not in text
    assert main(["freeze", "mine", "--name", "new", "-n"]) == 0
    assert "-20261121-new-" in capsys.readouterr().out
    assert main(["freeze", "mine", "--name", "a b"]) != 0
    assert "'a b' is not valid in a version suffix" in capsys.readouterr().err


def test_hashes_are_kept(prefix, capsys):
    """E-12: by unchanged packages; others are in a stage without hashes, because one call of pip wants them for all."""
    lines = [f"{name}==1.0 --hash=sha256:{name}" for name in ("einops", "rich", "numpy")]
    lines += [f"a @ https://example.org/{name}.whl --hash=sha256:a" for name in ("gone",)]
    prefix.install(MINE, packages=["einops==1.0", "rich==2.0", "hand==3.0"], stages=[
        {"name": "requirements", "requirements": "".join(f"{line}\n" for line in lines)}])
    assert main(["freeze", "mine", "-n"]) == 0
    values = {"SYSTEM": "SYSTEM"}
    exec(capsys.readouterr().out, values)
    assert values["requirements"] == [
        {"name": "pinned", "requirements": ["hand==3.0", "rich==2.0"]},
        {"name": "requirements", "requirements": [lines[0], lines[2]]}]


def test_stages_keep_their_options(prefix, capsys):
    """E-08: packages built against torch come last; packages of several stages stay in them."""
    root = prefix.install(MINE, packages=["einops==0.8.1", "flash_attn==2.8", "ninja==1.13"], stages=[
        {"name": "tools", "requirements": "ninja\n", "env": {"A": "1"}},
        {"name": "torch", "requirements": "flash-attn\n", "no_build_isolation": True}])
    assert main(["freeze", "mine", "-n"]) == 0
    values = {"SYSTEM": "SYSTEM"}
    exec(capsys.readouterr().out, values)
    assert values["requirements"] == [
        {"name": "pinned", "requirements": ["einops==0.8.1"]},
        {"name": "tools", "requirements": ["ninja==1.13"], "env": {"A": "1"}},
        {"name": "torch", "requirements": ["flash-attn==2.8"], "no_build_isolation": True}]
    assert root.exists()
