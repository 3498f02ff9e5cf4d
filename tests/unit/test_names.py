"""Names of containers and modules that users type, and lists of what is installed. No image is needed."""

import json
import os
import re
import shutil
import sys
from argparse import Namespace

import pytest
from ebsif.cli import main, parser_of
from ebsif.commands.options import complete, complete_asked, complete_packages, complete_sites
from ebsif.errors import UsageError
from ebsif.installed.names import Names, NamingError
from prefixes import BASE, EASYCONFIG, LATER, MINE, OTHER


@pytest.fixture
def prefix(eb_prefix):
    """The prefix of EasyBuild, in place of that of the tests that install."""
    return eb_prefix


def test_packages_that_the_tab_key_completes(prefix, monkeypatch):
    """E-14: extend --add: those of image and extension; --remove: what the extension was made for."""
    root = prefix.install(MINE, packages=["einops==0.8.1", "nested==1"])
    monkeypatch.setenv("CONTAINERROOT", str(root))
    for module in ("mine", MINE, None):
        options = Namespace(module=module)
        assert complete_packages("", options) == ["einops", "nested", "numpy"]
        assert complete_packages("N", options) == ["nested", "numpy"]
        assert complete_asked("", options) == ["einops", "gone"]
    assert complete_asked("", Namespace(module="other")) == []
    completers = {one.dest: one.completer for one in parser_of("extend")._actions if hasattr(one, "completer")}
    assert (completers["add"], completers["remove"]) == (complete_packages, complete_asked)


def names():
    """The names in the example catalogue."""
    return Names(Namespace(site=None, catalogue=[]))


def test_every_way_to_name_an_installed_module(prefix, monkeypatch, capsys):
    """E-09: name, hidden name, easyconfig, directory, part of a name; the newest date; by default the loaded module."""
    root, hidden = prefix.install(MINE), prefix.install("Tool/.1.0-x", lua=False)
    for text in (MINE, f"{MINE.replace('/', '-')}.eb", str(root), "mine", f"{BASE}-mine", "MINE-20261121"):
        assert names().installation(text).root == root, text
    for text in ("Tool/1.0-x", "Tool/.1.0-x", "tool"):
        assert names().installation(text).root == hidden, text
    later = prefix.install(LATER)
    assert names().installation("mine").root == later
    # user trial: the earlier ones are counted, because they may be many
    assert capsys.readouterr().err == f"ebsif: 'mine' is {LATER}, the newest of 2\n"
    # V-07: also with the name of its base
    assert names().installation(f"{BASE}-mine").root == later
    assert capsys.readouterr().err == ""
    # an extension isn't found by the name of its base
    for text in (BASE, "torch-2.13", "PyTorch"):
        with pytest.raises(NamingError, match=f"{BASE} is in the catalogue, but not installed here"):
            names().installation(text)
    # not the extension on top of it
    prefix.install(f"{LATER}-more-20261123")
    for text in ("Mine", f"{LATER.replace('/', '-')}.eb"):
        assert names().installation(text).root == later
    shutil.rmtree(prefix.software / f"{LATER}-more-20261123")
    # a software of that name, spelled like that
    software = prefix.install("Mine/1.0-x")
    assert names().installation("Mine").root == software
    assert names().installation("mine").root == later
    shutil.rmtree(software)
    # a name of one letter, by which nothing else is found
    short = prefix.install(f"{BASE}-v-20261122")
    assert names().installation("v").root == names().installation("V").root == short
    with pytest.raises(NamingError, match="is installed here"):
        names().installation("p")
    shutil.rmtree(short)
    other = prefix.install(OTHER)
    (prefix.modules / f"{OTHER}.lua").unlink()
    assert names().installation(OTHER).root == other
    prefix.write_module(OTHER, other)
    # on two bases, the name stands for two modules
    prefix.install("PyTorch/2.14.0-x-mine-20261120")
    with pytest.raises(NamingError, match=rf"choose one of:\n  PyTorch/2.14.0-x-mine-20261120\n  {LATER}\Z"):
        names().installation("mine")
    with pytest.raises(NamingError, match="minr-20261121' is installed here; did you mean"):
        names().installation(f"{BASE}-minr-20261121")
    with pytest.raises(UsageError, match="no container module is loaded"):
        names().installation(None)
    monkeypatch.setenv("CONTAINERROOT", str(root))
    assert names().installation(None).root == root
    assert names().installation(None).is_loaded


def test_the_newest_installed_version(prefix, monkeypatch, capsys):
    """E-09: a name without a version is the newest that isn't archived, installed ones first; parts can be several."""
    for module in ("PyTorch/2.9.0-x", "PyTorch/2.10.0-x", "PyTorch/.2.11.0-x"):
        prefix.install(module, text="")
    newest = "PyTorch/2.10.0-x"
    for text in ("PyTorch", "pytorch"):
        assert names().find(text).module == names().installation(text).module == names().module(text) == newest
    assert f"'{text}' is PyTorch/2.10.0-x, the newest of 2 that are installed" in capsys.readouterr().err
    with pytest.raises(NamingError, match=r"ambiguous; choose one of:\n  PyTorch/2.10.0-x\n  PyTorch/2.9.0-x\Z"):
        names().find("torch")
    assert names().find("PyTorch/2.11").module == "PyTorch/.2.11.0-x"
    # what isn't installed
    assert names().find("PyTorch/2.13").module == names().container("PyTorch/2.13").module == BASE
    # S004-10
    monkeypatch.setenv("EBSIF_VERSION_PYTORCH", "v2.9.0")
    assert names().find("PyTorch").module == "PyTorch/2.9.0-x"
    monkeypatch.setenv("EBSIF_VERSION_PYTORCH", "2.13.0")
    assert names().find("PyTorch").module == BASE
    root = prefix.install(BASE, text="")
    assert names().find("PyTorch").root == root
    assert names().container("PyTorch").module == BASE


def test_the_module_that_goes_on_meaning_the_newest(prefix):
    """V-07: an extension that can be loaded by its name without date is loaded by that, unless the date is named."""
    prefix.install(MINE)
    assert names().module("mine") == MINE
    for file, line in ((".modulerc.lua", f'module_version("{MINE}", "{BASE.partition("/")[2]}-mine")'),
                       (".modulerc", f"#%Module\nmodule-version {MINE} {BASE.partition('/')[2]}-mine")):
        path = prefix.modules / "PyTorch" / file
        path.write_text(f"{line}\n")
        assert names().module("mine") == names().module(f"{BASE}-mine") == f"{BASE}-mine"
        assert names().module(MINE) == MINE
        path.unlink()


def test_the_catalogue_and_files(prefix, tmp_path):
    """E-09: the same names find containers in the catalogue, easyconfigs and images, also by part."""
    assert names().container("PyTorch/2.13.0").module == BASE
    assert names().container("torch-2.13").name == "PyTorch"
    assert names().container("PyTorch/2.13").module == BASE
    root = prefix.install(MINE)
    assert names().find(MINE).root == root
    assert (names().exact(MINE).root, names().exact(BASE).module, names().exact(None)) == (root, BASE, None)
    assert names().image(MINE) == root / "a.sif"
    assert names().easyconfig("mine").parent == root / "easybuild"
    assert names().easyconfig(BASE) == f"{BASE.replace('/', '-')}.eb"
    (tmp_path / "b.eb").write_text("")
    assert names().easyconfig("b.eb").name == "b.eb"
    for text, expected in (("PyTrch", r"there is no container 'PyTrch' .*; did you mean PyTorch\?"),
                           ("PyTorch/9", "there is no version '9' of PyTorch"),
                           ("mien", r"there is no container 'mien' \(known: PyTorch\); did you mean mine\?"),
                           ("./none", "not an installation of a container module"), ("M", "there is no container 'M'")):
        with pytest.raises(Exception, match=expected):
            names().find(text)
    with pytest.raises(NamingError, match=r"no container module 'mien' is installed here; did you mean mine\?"):
        names().installation("mien")


def test_tab_completion_of_names(prefix):
    """E-14: installed modules, containers of the catalogue, and sites."""
    prefix.install(MINE)
    options = Namespace(site=None, catalogue=[])
    assert {BASE, MINE} <= set(complete("pyt", options))
    assert complete("PyTorch/2.13.0-cpu-python-3.11-singularity-20261121-m", options) == [MINE]
    assert complete_sites("l", options) == ["local", "lumi"]


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
    assert rows[MINE]["size"] > 5000 + rows[OTHER]["size"]
    (other / "share/ebsif/lock.json").write_text("{")
    assert main(["list", "--mine", "other", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == ["no module file", "record damaged"]
    assert main(["list", "--mine", "other"]) == 0
    assert MINE not in capsys.readouterr().out
    assert main(["list", "--mine", "none"]) == 1
    assert capsys.readouterr() == ("", "ebsif: you have installed no container module of that name\n")
    # E-01: an image that several share counts once, for the oldest
    base = prefix.install(BASE, image={"file": "a.sif", "sha256": "0"})
    (base / "a.sif").unlink()
    os.link(prefix.software / MINE / "a.sif", base / "a.sif")
    os.utime(base / "share/ebsif/lock.json", (1, 1))
    assert main(["list", "--mine", "--json"]) == 0
    shared = {row["module"]: row["size"] for row in json.loads(capsys.readouterr().out)}
    assert shared[BASE] > 8000 and shared[MINE] < rows[MINE]["size"] - 4000
    shutil.rmtree(base)
    (prefix.modules / f"{BASE}.lua").unlink()
    # E-10: at a terminal of 80 columns, names aren't broken; in a file, they are complete
    prefix.install(f"{MINE}-more-20261123")
    assert main(["list", "--mine"]) == 0
    assert f"\n{MINE}-more-20261123  {MINE}  " in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "--mine"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [re.split(r"(?<=\S)  +", line.strip())[0] for line in lines[1:]] == [
        BASE, "-other-20261121", "no module file, record damaged", "-mine-20261121", "loaded", "-more-20261123"]
    # nothing of other accounts
    monkeypatch.setattr(os, "getuid", lambda: other.stat().st_uid + 1)
    assert main(["list", "--mine"]) == 0
    assert capsys.readouterr() == ("", "ebsif: you have installed no container module\n")
