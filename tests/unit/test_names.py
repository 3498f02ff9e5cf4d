"""Names of containers that users type; list, remove and lock installations. No image is needed."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from easybuild.easyblocks.generic.container import modulerc
from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.record.lockfile import Record
from ebsif.catalog.container import CatalogError
from ebsif.cli import main, parser_of
from ebsif.commands.options import complete, complete_installed, complete_packages, complete_sites
from ebsif.eb.framework import ModulePlace
from ebsif.environments import making, repeating
from ebsif.environments.extension import ExtendingError
from ebsif.environments.request import Request
from ebsif.errors import EbsifError, UsageError
from ebsif.installed import doctor, interpreter, places, removal, report, search
from ebsif.installed.names import Names
from ebsif.render import easyconfig
from ebsif.report import output
from prefixes import BASE, EASYCONFIG, LATER, MINE, OTHER, Prefix, parameters_in
from support import attempt, description, printed, write_program


@pytest.fixture
def prefix(eb_prefix):
    """The prefix of EasyBuild, in place of that of the tests that install."""
    return eb_prefix


def test_packages_that_the_tab_key_completes(prefix, monkeypatch):
    """E-14: extend --add and --remove: those of image and extension."""
    root = prefix.install(MINE, packages=["einops==0.8.1", "nested==1"])
    monkeypatch.setenv("CONTAINERROOT", str(root))
    for module in ("mine", MINE, None):
        options = Namespace(module=module)
        assert complete_packages("", options) == ["einops", "nested", "numpy"]
        assert complete_packages("N", options) == ["nested", "numpy"]
    assert complete_packages("", Namespace(module="other")) == []
    completers = {one.dest: one.completer for one in parser_of("extend")._actions if hasattr(one, "completer")}
    assert (completers["add"], completers["remove"]) == (complete_packages, complete_packages)


def test_names_that_the_tab_key_completes(prefix):
    """E-14: installed modules, also by the short name of an extension, containers of the catalog, and sites."""
    prefix.install(MINE)
    options = Namespace(site=None, catalog=[])
    assert {BASE, MINE} <= set(complete("pyt", options))
    assert (complete(f"{BASE}-m", options), complete_installed("pytorch/2")) == ([MINE], [MINE])
    assert complete_installed("m") == ["mine"]
    assert complete_sites("l", options) == ["local", "lumi"]


def test_the_shortest_name_that_is_right(prefix, monkeypatch, tmp_path, ebsif):
    """N-01, V-07: an alias, unless another directory or an older base makes it wrong; less may be typed."""

    def said(module):
        one = Names().installed_as(module)
        return places.short(one), places.word(one), one.load.rpartition("module load ")[2], Names().module(module)

    def planned(date, start=BASE, use=prefix.modules):
        module, aliases = f"{start}-mine-{date}", [f"{start.partition('/')[2]}-mine", "mine"]
        place = ModulePlace(tmp_path, use, module, use / module, prefix.software / module)
        return places.short_once_installed(place, aliases)

    # of what is going to be installed
    assert planned("20261121") == "PyTorch/mine"
    for module in (MINE, LATER, BASE):
        prefix.install(module)
    assert said(LATER) == (LATER, LATER, LATER, LATER)
    assert Names().module("mine") == LATER
    modulerc = prefix.modules / "PyTorch/.modulerc.lua"
    end = BASE.partition("/")[2]
    aliases = ((LATER, f"{end}-mine"), (LATER, "mine"), (BASE, "2.13.0-demo"))
    modulerc.write_text("".join(f'module_version("{module}", "{alias}")\n' for module, alias in aliases))
    assert said(LATER) == ("PyTorch/mine", "mine", "PyTorch/mine", LATER)
    assert said(MINE) == (MINE, MINE, MINE, MINE)
    assert said(BASE) == (*["PyTorch/2.13.0-demo"] * 3, BASE)
    with monkeypatch.context() as patch:
        # looking for them costs as much as many containers
        patch.setattr(places, "directories_of_modules", lambda: pytest.fail("searched for each container"))
        assert re.search(r"^PyTorch/2\.13\.0-demo +here ", ebsif("list").out, re.MULTILINE)
    with monkeypatch.context() as environment:
        loaded = (Names().installed_as(LATER).root, LATER, f"/x:{prefix.modules}/{LATER}.lua")
        for name, value in zip(("CONTAINERROOT", "EBSIF_LOADED_MODULE", "_LMFILES_"), loaded):
            environment.setenv(name, str(value))
        assert places.loaded().load == "module load PyTorch/mine"
    assert (planned("20261122.2"), planned("20261121")) == ("PyTorch/mine", MINE)
    for text, name in (
        ("mine", "PyTorch/mine"),
        ("PyTorch/mine", "PyTorch/mine"),
        (f"{BASE}-mine", f"{BASE}-mine"),
        ("PyTorch/2.13.0-demo", "PyTorch/2.13.0-demo"),
        (LATER, LATER),
    ):
        assert names().module(text) == name
    with pytest.raises(EbsifError, match=f"ambiguous; choose one of:\n  mine\n  {MINE}\\Z"):
        names().installation(f"{BASE}-m")
    # a newer base has one, too
    newer = "PyTorch/2.14.0-x-mine-20261101"
    prefix.install(newer)
    modulerc.write_text(modulerc.read_text().replace(f'"{LATER}", "mine"', f'"{newer}", "mine"'))
    assert said(LATER)[:3] == (f"{BASE}-mine",) * 3 and said(newer)[:2] == ("PyTorch/mine", "mine")
    assert planned("20270101") == f"{BASE}-mine"
    assert (planned("20261102", "PyTorch/2.14.0-x"), planned("1", "New/1.0")) == ("PyTorch/mine", "New/mine")
    # also where a hierarchical naming scheme puts both
    core = shutil.copytree(prefix.modules, prefix.modules / "Core")
    with monkeypatch.context() as environment:
        environment.setenv("MODULEPATH", str(core))
        assert planned("20270101", use=core) == f"{BASE}-mine"
    shutil.rmtree(core)
    # the same in another software
    prefix.install("Tool/1.0-x-mine-20261130")
    assert said(newer)[:2] == ("PyTorch/mine", "PyTorch/mine")
    # another directory has the name, too
    other = tmp_path / "other/PyTorch"
    other.mkdir(parents=True)
    monkeypatch.setenv("MODULEPATH", f"{other.parent}:{prefix.modules}")
    (other / "mine.lua").touch()
    assert said(newer)[0] == newer
    assert planned("20261102", "PyTorch/2.14.0-x") == "PyTorch/2.14.0-x-mine"


def test_files_that_do_not_exist(prefix, ebsif):
    """The message is the same in all commands, and no site of that name is an error like others."""
    for words, said in (
        (["lock", "no.json"], "the file no.json does not exist, and no module of that name is ins"),
        (["selftest", "no.sif"], "no.sif does not exist\n"),
        (["add", "no.sif"], "no.sif does not exist"),
        (["show", "no.simg"], "no.simg does not exist"),
        (["check", "--site", "nosuch"], "unknown site 'nosuch' (known: "),
    ):
        assert said in ebsif(*words, status=3).err


def at_terminal(monkeypatch, columns):
    """Let commands print to a terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))


def test_show_at_a_terminal(monkeypatch, ebsif):
    """Lists are wrapped below themselves; what is to be copied is one line."""
    at_terminal(monkeypatch, 80)
    lines = ebsif("show", "--site", "lumi", "PyTorch/2.7.1").out.splitlines()
    assert not [line for line in lines if len(line) > 80 and ", " in line]
    assert next(line for line in lines if line.startswith("install  ")).endswith(".eb")
    assert f"{' ' * 16}torchdata 0.10.0, " in "\n".join(lines)


@pytest.mark.parametrize("columns", [80, 120])
def test_names_for_copying(monkeypatch, ebsif, columns):
    """E-10: a terminal never breaks the name of a container: what is in it is beside or below it."""
    at_terminal(monkeypatch, columns)
    lines = ebsif("list", "--site", "lumi").out.splitlines()
    assert max(map(len, lines)) <= columns
    containers = Names("lumi").containers
    assert {one.module for one in containers if not one.archived} <= {line.split()[0] for line in lines if line.strip()}


def names():
    """The names in the example catalog."""
    return Names()


def stage(requirements, name="requirements", **more):
    """Return a stage, as easyconfigs and records have it."""
    return {"name": name, "requirements": requirements, **more}


def lines_of(values):
    """Return the requirements of each stage in an easyconfig."""
    return [one["requirements"] for one in values["requirements"]]


def test_every_way_to_name_an_installed_module(prefix, monkeypatch, capsys):
    """E-09: name, hidden name, easyconfig, directory, part of a name; the newest date; by default the loaded module."""
    root, hidden = prefix.install(MINE), prefix.install("Tool/.1.0-x", lua=False)
    for text in (MINE, f"{MINE.replace('/', '-')}.eb", str(root), "mine", f"{BASE}-mine", "MINE-20261121"):
        assert names().installation(text).root == root, text
    for text in ("Tool/1.0-x", "Tool/.1.0-x", "tool"):
        assert names().installation(text).root == hidden, text
    later = prefix.install(LATER)
    assert names().installation("mine").root == later
    # not with each command
    assert capsys.readouterr().err == "ebsif: 'tool' is Tool/1.0-x, which is installed\n"
    # user trial: the earlier ones are counted, because they may be many
    output.set_level(output.VERBOSE)
    assert names().installation("mine").root == later
    output.set_level(output.NORMAL)
    assert capsys.readouterr().err == f"ebsif: 'mine' is {LATER}, the newest of 2\n"
    # V-07, N-01: also with the name of its base, or of the software
    for text in (f"{BASE}-mine", "PyTorch/mine", "pytorch/mine"):
        assert names().installation(text).root == later
    assert capsys.readouterr().err == ""
    # an extension isn't found by the name of its base
    for text in (BASE, "torch-2.13", "PyTorch"):
        with pytest.raises(EbsifError, match=f"{BASE} is in the catalog, but not installed here"):
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
    with pytest.raises(EbsifError, match="is installed here"):
        names().installation("p")
    shutil.rmtree(short)
    other = prefix.install(OTHER)
    (prefix.modules / f"{OTHER}.lua").unlink()
    assert names().installation(OTHER).root == other
    prefix.write_module(OTHER, other)
    # N-01: on two bases, the newest one, which is said; of two software, none
    newest = prefix.install("PyTorch/2.14.0-x-mine-20261120")
    prefix.install("PyTorch/2.9.0-x-mine-20261125")
    capsys.readouterr()
    for text in ("mine", "PyTorch/mine"):
        assert names().installation(text).root == newest
    said = "PyTorch/2.14.0-x-mine-20261120, on the newest of 3 containers that have one"
    assert capsys.readouterr().err == f"ebsif: 'mine' is {said}\nebsif: 'PyTorch/mine' is {said}\n"
    prefix.install("Tool/1.0-x-mine-20261130")
    with pytest.raises(EbsifError, match="choose one of:\n  PyTorch/2.14.0-x-mine-20261120\n  Tool/1.0-x-mine-2026"):
        names().installation("mine")
    assert names().installation("PyTorch/mine").root == newest
    shutil.rmtree(prefix.software / "Tool/1.0-x-mine-20261130")
    shutil.rmtree(newest)
    with pytest.raises(EbsifError, match="minr-20261121' is installed here; did you mean"):
        names().installation(f"{BASE}-minr-20261121")
    with pytest.raises(UsageError, match="no container given"):
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
    with pytest.raises(EbsifError, match=r"ambiguous; choose one of:\n  PyTorch/2.10.0-x\n  PyTorch/2.9.0-x\Z"):
        names().find("torch")
    # a module in two directories is one name, which means the first, as for the modules tool
    again = shutil.copytree(prefix.modules, prefix.modules.with_name("again"))
    for path in again.rglob("*.lua"):
        shutil.copytree(prefix.software / "PyTorch/2.9.0-x", again / "software" / path.stem)
        path.write_text(path.read_text().replace(f"{prefix.software}/PyTorch", f"{again}/software"))
    with monkeypatch.context() as patch:
        patch.setenv("MODULEPATH", f"{again}:{prefix.modules}")
        assert names().find("PyTorch/2.9").root == again / "software/2.9.0-x"
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


def test_names_that_differ_in_case(prefix, ebsif):
    """The exact name wins; of several others none is chosen, and nothing is removed or changed."""
    roots = {}
    for name, date in (("mine", "20261128"), ("Mine", "20261128"), ("Mine", "20261127"), ("MINE", "20261128.2")):
        roots[f"{name}-{date}"] = prefix.install(f"{BASE}-{name}-{date}")
    for text, expected in (("mine", "mine-20261128"), ("Mine", "Mine-20261128"), ("MINE", "MINE-20261128.2")):
        for start in ("", f"{BASE}-"):
            assert names().installation(f"{start}{text}").root == roots[expected]
        assert names().installation(f"{BASE}-{expected}").root == roots[expected]
    for text in ("mInE", f"{BASE}-mInE"):
        with pytest.raises(EbsifError, match="ambiguous; choose one of:") as error:
            names().installation(text)
        assert [one in str(error.value) for one in roots] == [True, True, False, True]
    for text in (f"{BASE.lower()}-Mine-20261128", f"{BASE}-mInE-20261128"):
        with pytest.raises(EbsifError, match="ambiguous; choose one of:"):
            names().installation(text)
    assert names().installation(f"{BASE.lower()}-Mine-20261127").root == roots["Mine-20261127"]
    assert main(["remove", "Mine", "--older", "--yes"]) == main(["remove", f"{BASE}-Mine", "--yes"]) == 0
    assert [one for one, root in roots.items() if root.exists()] == ["mine-20261128", "MINE-20261128.2"]
    # software
    for module in ("Tool/1.0-x", "tool/1.0-x"):
        prefix.install(module, text="")
    assert names().installation("Tool").module == "Tool/1.0-x"
    with pytest.raises(EbsifError, match="ambiguous"):
        names().installation("TOOL")
    # no new one is made
    assert "ine` exists (PyTorch/" in ebsif("extend", BASE, "--add", "rich", "--name", "minE", "-n", status=3).err


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_name_of_another_module(prefix, tmp_path, monkeypatch, ebsif, is_installed):
    """N-05: the name of an extension without its date is no other module, of the catalog or installed."""
    other = f"{BASE}-cuda"
    if is_installed:
        prefix.install(other, text="")
    else:
        record = Names().container(BASE)
        monkeypatch.setattr(Names, "containers", [record, record.replace(suffix=f"{record.versionsuffix}-cuda")])
    for name, status in (("cuda", 3), ("CUDA", 3), ("cuda2", 0)):
        said = ebsif("extend", BASE, "--add", "rich", "--name", name, "-n", status=status).err
        kind = "installed" if is_installed else "of the catalog"
        expected = f"{BASE}-{name} is another module, {kind}, so it can't be the name of this extension: choose another"
        assert (expected in said) == bool(status)


def test_aliases_as_the_modules_tool_takes_them(prefix):
    """N-05: what .modulerc says comes before the catalog, and before a module of that name."""
    base, mine, later = (prefix.install(module) for module in (BASE, MINE, LATER))
    software, version = BASE.split("/")
    aliases = ((MINE, f"{version}-mine"), (LATER, "demo"), (MINE, version))
    (prefix.modules / software / ".modulerc.lua").write_text(
        "".join(f'module_version("{module}", "{alias}")\n' for module, alias in aliases)
    )
    assert names().installation(f"{BASE}-mine").root == names().installation(BASE).root == mine
    assert names().installation("PyTorch/demo").root == names().installation("pytorch/DEMO").root == later
    assert names().installation("mine").root == later
    with pytest.raises(EbsifError, match=r"'PyTorch/dmo' is installed here; did you mean PyTorch/demo\?"):
        names().installation("PyTorch/dmo")
    (prefix.modules / software / ".modulerc.lua").unlink()
    assert names().installation(f"{BASE}-mine").root == later
    assert names().installation(BASE).root == base
    # of a naming scheme with categories, also without the category
    root = prefix.install("ai/Tool/1.0-x", text="")
    (prefix.modules / "ai/Tool/.modulerc").write_text("#%Module\nmodule-version ai/Tool/1.0-x latest\n")
    for text in ("ai/Tool/latest", "Tool/latest", "tool/Latest"):
        assert names().installation(text).root == root


def test_labeled_modules(prefix):
    """Labeled modules count only if nothing else has that name; a message about several lists them, too."""
    labeled, other = BASE.replace("-2026", "-exampleVenv-2026"), BASE.replace("-2026", "-byhand-2026")
    for module in (labeled, other):
        prefix.install(module, text="")
    assert names().find("PyTorch/2.13.0").module == other
    prefix.install(BASE, text="")
    with pytest.raises(EbsifError, match="ambiguous") as error:
        names().find("PyTorch/2.13.0")
    assert all(f"\n  {one}" in str(error.value) for one in (BASE, labeled, other))
    assert names().find("PyTorch/2.13.0-demo").module == labeled


def test_a_naming_scheme_with_categories(prefix):
    """F-02, E-09: a module is found with its category (ai/PyTorch) and without; removing it leaves nothing of it."""
    for module in ("ai/PyTorch/2.9.0-x", "ai/PyTorch/2.10.0-x", "ai/Tool/1.0-x"):
        prefix.install(module, text="")
    for text in ("PyTorch", "PyTorch/2.10.0-x", "ai/PyTorch/2.10.0-x", "PyTorch/v2.10", "PyTorch-2.10.0-x.eb"):
        assert names().module(text) == "ai/PyTorch/2.10.0-x", text
    prefix.install(f"ai/{MINE}")
    prefix.alias(f"ai/{MINE}", f"{BASE.partition('/')[2]}-mine")
    assert names().module("mine") == names().module(f"{BASE}-mine") == f"ai/{BASE}-mine"
    assert main(["remove", "Tool", "--yes"]) == 0
    assert sorted(path.name for path in (prefix.modules / "ai").iterdir()) == ["PyTorch"]


@pytest.mark.usefixtures("eb_on_path")
def test_the_catalog_and_files(prefix, tmp_path, ebsif):
    """E-09: the same names find containers in the catalog, easyconfigs and images, also by part."""
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
    for text, expected in (
        ("PyTrch", r"there is no container 'PyTrch' .*; did you mean PyTorch\?"),
        ("PyTorch/9", r"there is no version '9' of PyTorch; known versions:(\n  2.13.0-cpu\S+)+\Z"),
        ("mien", r"there is no container 'mien' \(known: PyTorch\); did you mean mine\?"),
        ("./none", "not an installation"),
        ("M", "there is no container 'M' .*; `ebsif list --mine` lists your own modules$"),
    ):
        with pytest.raises(Exception, match=expected):
            names().find(text)
    # the list of the catalog doesn't have them
    (tmp_path / "a").mkdir()
    for name in ("b.txt", "c.sif", "c.simg"):
        (tmp_path / name).touch()
    own = " (known: PyTorch); `ebsif list --mine` lists your own modules\n"
    for command, text, expected in (
        ("show", "a", "the directory a is not an installation, and there is no container 'a'"),
        ("lock", "b.txt", "the file b.txt is not an image, an easyconfig, or a lock, and no container module"),
        ("install", "./a", "the directory ./a is not an installation, and there is no container './a'"),
        ("install", "b.eb", "to install an easyconfig: `eb b.eb`"),
        ("install", "c.sif", "to add an image to your catalog: `ebsif add c.sif`"),
        ("install", "c.simg", "to add an image to your catalog: `ebsif add c.simg`"),
        # what isn't there can't be installed or added
        ("install", "a/b.eb", "the file a/b.eb does not exist, and there is no container 'a'" + own),
        ("install", "d.sif", "the file d.sif does not exist, and there is no container 'd.sif'" + own),
        ("install", "mine", "; mine is an extension, which `ebsif list --mine mine` lists"),
    ):
        assert expected in ebsif(command, text, status=3).err
    for text, expected in (("mine", "; mine is an extension, which `ebsif list --mine mine` lists"), ("mien", "mine?")):
        assert ebsif("list", text, status=3).err.endswith(f"{expected}\n")
    assert "your own" not in ebsif("list").err
    prefix.alias(MINE, "mine")
    for words in ([], ["--json"], ["PyTorch"], ["--quiet"]):
        assert ebsif("list", *words).err == ("" if words else "your own extensions: `ebsif list --mine`\n")
    # not that there is no such software
    prefix.install("Tool/1.0-x", text="")
    prefix.install("Tool/1.1-x", text="")
    with pytest.raises(CatalogError, match=r"no version '9' of tool; installed versions:\n  1.1-x\n  1.0-x$"):
        names().find("tool/v9")
    with pytest.raises(EbsifError, match=r"no container module 'mien' is installed here; did you mean mine\?"):
        names().installation("mien")


def test_the_modules_of_a_user(prefix, monkeypatch, ebsif):
    """
    E-05: each with base, size, date and state, also one without a module file; not EasyBuild's backups of them.

    The one that was installed last is the first, as the help says.
    """
    prefix.write_module(f"{MINE}.bak_20261122152728_16249", prefix.install(MINE), lua=False)
    other = prefix.install(OTHER, text=EASYCONFIG.replace("mine", "other"))
    (other / "a.sif").unlink()
    (prefix.modules / f"{OTHER}.lua").unlink()
    monkeypatch.setenv("CONTAINERROOT", str(prefix.software / MINE))
    rows = {row["module"]: row for row in json.loads(ebsif("list", "--mine", "--json").out)}
    found = {name: (row["base"], row["state"]) for name, row in rows.items()}
    assert found == {MINE: (BASE, ["loaded"]), OTHER: (BASE, ["no module file", "image gone"])}
    assert list(rows) == [OTHER, MINE]
    os.utime(prefix.software / MINE / lockfile.RECORD, (time.time() + 9,) * 2)
    assert json.loads(ebsif("list", "--mine", "--json").out)[0]["module"] == MINE
    assert rows[MINE]["size"] > 5000 + rows[OTHER]["size"]
    (other / "share/ebsif/lock.json").write_text("{")
    said = ebsif("list", "--mine", "other", "--json").out
    assert json.loads(said)[0]["state"] == ["no module file", "record damaged"]
    assert MINE not in ebsif("list", "--mine", "other").out
    shown = ebsif("list", "--mine", "none", status=1)
    assert shown == ("", "ebsif: you have installed no container module of that name\n")
    # an image that another one shares isn't freed with either
    base = prefix.install(BASE, image={"file": "a.sif", "sha256": "0"})
    (base / "a.sif").unlink()
    os.link(prefix.software / MINE / "a.sif", base / "a.sif")
    shared = {row["module"]: row["size"] for row in json.loads(ebsif("list", "--mine", "--json").out)}
    assert shared[BASE] < rows[MINE]["size"] - 4000 > shared[MINE]
    shutil.rmtree(base)
    (prefix.modules / f"{BASE}.lua").unlink()
    # E-10: at a terminal of 80 columns, names aren't broken; in a file, they are complete
    prefix.install(f"{MINE}-more-20261123")
    assert f"\n{MINE}-more-20261123  {MINE}  " in ebsif("list", "--mine").out
    at_terminal(monkeypatch, 80)
    lines = ebsif("list", "--mine").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert {MINE, f"{MINE}-more-20261123"} < set(lines) and f"    extends {MINE}," in lines
    # nothing of other accounts
    monkeypatch.setattr(os, "getuid", lambda: other.stat().st_uid + 1)
    assert ebsif("list", "--mine") == ("", "ebsif: you have installed no container module\n")


def test_removing_a_module_that_environments_may_use(prefix, ebsif):
    """User trial, E-06: before anybody confirms, it says what stops working; not of a module without Python."""
    said = "kernels of `ebsif kernel install --prefix`"
    root = prefix.install(MINE)
    assert said not in ebsif("remove", MINE, "-n").err
    (root / "bin").mkdir()
    (root / "bin/make-venv").touch()
    for option in ("-n", "--yes"):
        assert said in ebsif("remove", MINE, option).err
    # nor where extensions of a base weren't searched
    prefix.install(BASE, text="")
    elsewhere = "as in other people's home directories, will stop working (`--users DIRECTORY` searches there"
    for more, expected in (((), True), (("--users", str(prefix.modules)), False)):
        assert (elsewhere in ebsif("remove", BASE, "-n", *more).err) == expected


def test_remove_a_module_that_was_installed_from_its_own_copy(prefix):
    """E-06: as doctor advises (eb --rebuild INSTALLATION/easybuild/...): the copy goes with the installation."""
    root = prefix.software / MINE
    prefix.install(MINE, easyconfig=str(root / "easybuild" / f"{MINE.replace('/', '-')}.eb"))
    assert main(["remove", MINE, "--yes"]) == 0
    assert not root.exists()


def test_removing_while_another_version_is_installed(prefix, monkeypatch):
    """I-01: what an installation adds to .modulerc after the removal was planned stays, also if it is just doing so."""
    prefix.install(MINE)
    path = prefix.alias(MINE, "mine")
    plan = removal.plan(places.known(places.directories_of_modules())[0])
    assert plan.lines == [path]
    lock, other = modulerc.lock, 'module_version("PyTorch/2", "two")\n'

    def after_another(name):
        path.write_text(path.read_text() + other)
        return lock(name)

    monkeypatch.setattr(modulerc, "lock", after_another)
    removal.remove(plan)
    assert path.read_text() == other


def test_remove_deletes_the_whole_module_and_nothing_else(prefix, tmp_path, ebsif, monkeypatch):
    """E-06: module file, links to it, installation, user software set aside, more names, easyconfig, stale locks."""
    easyconfig, lock, backup = (tmp_path / f"mine{suffix}" for suffix in (".eb", ".lock.json", ".squashfs"))
    text = EASYCONFIG.split("requirements = ")[0] + "requirements = {'lock': 'mine.lock.json'}\n"
    easyconfig.write_text(text)
    lock.write_text("{}")
    # of the person: the easyconfig doesn't name it
    backup.write_text("")
    # J-02: kernels go with their module
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(prefix.modules.parent / "jupyter"))
    more = {"packages": ["ipykernel==7.0"], "files": ["interpreter/python"]}
    root = prefix.install(MINE, text=text, easyconfig=str(easyconfig), **more)
    other = prefix.install(f"{MINE}2", **more)
    for module in (MINE, f"{MINE}2"):
        assert main(["kernel", "install", module]) == 0
    kernel, other_kernel = sorted((prefix.modules.parent / "jupyter/kernels").iterdir())
    link = prefix.modules.parent / "ai" / f"{MINE}.lua"
    link.parent.mkdir(parents=True)
    link.symlink_to(prefix.modules / f"{MINE}.lua")
    versions = prefix.modules / "PyTorch/.modulerc.lua"
    versions.write_text(f'module_version("{MINE}", "mine")\nmodule_version("{MINE}2", "mine2")\n')
    ends = (".20261121-101112", ".20261121-101112.user-software", ".20261121-101112.scripts.2", ".replaced")
    aside = [root.with_name(f"{root.name}{end}") for end in ends]
    kept = [root.with_name(f"{root.name}.20261121"), root.with_name(f"{root.name}.mine")]
    for path in (*aside, *kept):
        path.mkdir()
    (root / "closed/in").mkdir(parents=True)
    (root / "closed").chmod(0o500)
    # no terminal: the message says so, instead of how to use the command
    shown = ebsif("remove", MINE, status=3).err
    assert "usage" not in shown
    assert "ebsif: nothing was removed, because there is no terminal to ask on: add --yes to remove all this" in shown
    shown = ebsif("remove", MINE, "-n").out
    assert all(f"  {path}" in shown for path in (root, link, versions, easyconfig, lock, kernel, *aside))
    assert root.exists()
    assert main(["remove", MINE, "--yes"]) == 0
    gone = (root, easyconfig, lock, prefix.modules / f"{MINE}.lua", link, kernel, *aside)
    assert not [path for path in gone if os.path.lexists(path)]
    assert other.exists() and other_kernel.exists() and all(path.exists() for path in (backup, *kept))
    assert versions.read_text() == f'module_version("{MINE}2", "mine2")\n'
    assert sorted(path.name for path in root.parent.iterdir()) == sorted([other.name, *(path.name for path in kept)])
    assert main(["remove", f"{MINE}2", "--yes"]) == 0
    assert not (prefix.modules / "PyTorch").exists()


def test_removing_earlier_extensions(prefix, ebsif):
    """V-07: --older keeps the newest one of a name, and others; it says if there is none."""
    roots = [prefix.install(module) for module in (MINE, LATER, f"{LATER}.2", OTHER)]
    assert main(["remove", "mine", "--older", "--yes"]) == 0
    assert [root.exists() for root in roots] == [False, False, True, True]
    for name, expected in (("mine", 0), (roots[2], 0)):
        said = ebsif("remove", str(name), "--older", "--yes", status=expected).err
        # there may be some elsewhere
        assert f"there is no earlier one in {roots[2].parent}\n" in said
    prefix.install("Tool/1.0-x", text="")
    assert "Tool/1.0-x is no extension" in ebsif("remove", "Tool", "--older", "--yes", status=3).err


def test_what_only_an_earlier_extension_has(prefix, ebsif, monkeypatch):
    """`--older` names it and asks; with --yes that one stays. What a person has removed since isn't meant."""
    packages, text = ["einops==0.8.1", "rich==14"], EASYCONFIG.replace("'gone',", "'rich',")
    first, second = prefix.install(MINE, packages, text), prefix.install(LATER, packages, text, made_from=MINE)
    third = prefix.install(f"{LATER}.2", made_from=LATER)
    other = prefix.install(f"{BASE}-mine-20261120", ["tabulate==0.9"], EASYCONFIG.replace("'gone'", "'tabulate'"))
    last = prefix.install(f"{LATER}.3", made_from=f"{LATER}.2")
    text = f"ebsif: {BASE}-mine-20261120 has tabulate, which {LATER}.3 doesn't have"
    shown = ebsif("remove", "mine", "--older", "--dry-run")
    assert f"{text}\n" in shown.err and "rich" not in shown.err and str(other) in shown.out
    monkeypatch.setattr("ebsif.commands.remove.confirmed", lambda *_: False)
    assert f"{text}\n" in ebsif("remove", "mine", "--older", status=1).err
    said = ebsif("remove", "mine", "--older", "--yes", status=1).err
    assert f"{text}: it stays (to remove it, too: ebsif remove {BASE}-mine-20261120 --yes)\n" in said
    assert [root.exists() for root in (first, second, third, other, last)] == [False, False, False, True, True]
    # packages added by hand
    prefix.add(prefix.install(f"{LATER}.2"), "hand", "1")
    told = ebsif("remove", "mine", "--older", "--yes", status=1).err
    assert f"{LATER}.2 has hand, which {LATER}.3 doesn't have: it stays" in told
    for module in (f"{LATER}.2", f"{BASE}-mine-20261120"):
        assert main(["remove", module, "--yes"]) == 0
    assert main(["remove", "mine", "--older", "--yes"]) == 0


def test_an_alias_goes_back(prefix):
    """N-05: an alias goes to the newest installed module beside the removed one whose easyconfig has it."""
    text = "name = 'PyTorch'\naliases = ['demo', 'own']\n"
    for module in (f"{BASE}-a", f"{BASE}-b", "Tool/1.0-x"):
        prefix.install(module, text=text)
    prefix.install(f"{BASE}-byhand", text="name = 'PyTorch'\naliases = ['demo', 'else']\n")
    path = prefix.modules / "PyTorch/.modulerc.lua"
    path.write_text("".join(f'module_version("{BASE}-byhand", "{alias}")\n' for alias in ("demo", "else")))
    assert main(["remove", f"{BASE}-byhand", "--yes"]) == 0
    assert path.read_text() == f'module_version("{BASE}-b", "demo")\n'


def test_the_newest_that_is_left(prefix, ebsif):
    """V-07: after the newest extension is removed, the name without date means the one before it."""
    roots = [prefix.install(module) for module in (MINE, LATER)]
    path = prefix.modules / "PyTorch/.modulerc.lua"
    line = f'module_version("{{}}", "{BASE.partition("/")[2]}-mine")\n'
    path.write_text(line.format(LATER))
    assert names().module("mine") == f"{BASE}-mine"
    assert ebsif("remove", "mine", "--yes").err.endswith(f"removed {LATER}\n{BASE}-mine is {MINE} now\n")
    assert path.read_text() == line.format(MINE)
    assert [root.exists() for root in roots] == [True, False]
    assert names().installation(f"{BASE}-mine").root == roots[0]
    assert main(["remove", "mine", "--yes"]) == 0
    assert not path.exists()


def test_an_extension_elsewhere_is_no_earlier_one(prefix, monkeypatch, tmp_path, ebsif):
    """V-07: neither of another directory nor of another account; no name leads to a module that isn't beside it."""
    elsewhere = Prefix(tmp_path / "project")
    elsewhere.install(MINE)
    root = prefix.install(LATER)
    monkeypatch.setenv("MODULEPATH", f"{prefix.modules}:{elsewhere.modules}")
    assert "there is no earlier one" in ebsif("remove", str(root), "--older", "--yes").err
    theirs, stat = prefix.install(MINE), Path.stat
    with monkeypatch.context() as patch:
        other = SimpleNamespace(st_uid=os.getuid() + 1, st_mode=0o40755)
        patch.setattr(Path, "stat", lambda path, **how: other if path == theirs else stat(path, **how))
        assert not names().older(names().installation(str(root)))
    shutil.rmtree(theirs)
    (prefix.modules / f"{MINE}.lua").unlink()
    versions = prefix.alias(LATER, f"{BASE.partition('/')[2]}-mine")
    assert main(["remove", str(root), "--yes"]) == 0
    assert not versions.exists()


def test_names_that_can_t_be_removed(prefix, monkeypatch, ebsif):
    """E-06: lines of other encodings stay; a file of names of somebody else isn't one to remove by hand."""
    versions = prefix.modules / "PyTorch/.modulerc.lua"
    for is_closed in (False, True):
        prefix.install(MINE)
        mine, other = f'module_version("{MINE}", "mine")\n'.encode(), b"-- gr\xfcn\n"
        versions.write_bytes(other + mine)
        if is_closed:
            monkeypatch.setattr("ebsif.files.replace", Mock(side_effect=PermissionError))
        said = ebsif("remove", MINE, "--yes").err
        assert versions.read_bytes() == other + (mine if is_closed else b"")
        assert (f"the lines for {MINE} are left in {versions}, which can't be changed: " in said) == is_closed
        assert "by hand" not in said


def test_what_a_removal_frees(prefix, tmp_path, monkeypatch):
    """E-01, E-06: not files with other names elsewhere; another program may delete a file at the same time."""
    root, lstat = prefix.install(MINE), os.lstat
    before = report.size_of(root)
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", lambda path, **how: lstat("gone" if str(path).endswith(".sif") else path, **how))
        assert 0 < report.size_of(root) < before
    os.link(root / "a.sif", tmp_path / "same.sif")
    assert report.size_of(root) < before - 4000


def test_removing_several_modules(prefix, ebsif):
    """E-06, I-09: one of them may need the image of another one; if one is refused, all stay."""
    base = prefix.install("Tool/1.0-x", text="")
    image = {"file": "b.sif", "kind": "reference", "sha256": "0", "resolved": str(base / "a.sif")}
    user = prefix.install("Tool/1.0-x-mine-20261121", image=image)
    other = prefix.install(OTHER)
    lock = prefix.software / ".locks" / (str(other).replace("/", "_") + ".lock")
    lock.mkdir(parents=True)
    command = ["remove", "Tool/1.0-x", "mine", "--yes"]
    assert main([*command, "other"]) == 3
    assert base.exists() and user.exists() and other.exists()
    said = ebsif("remove", "Tool/1.0-x", "--yes", status=3).err
    assert "has the image that these modules use: Tool/1.0-x-mine-20261121" in said
    assert main(command) == 0
    assert not base.exists() and not user.exists() and other.exists()


@pytest.mark.parametrize("name", ["Tool/1.0-x", "Tool/.1.0-x"])
def test_removing_an_archived_module(prefix, name):
    """I-06: with the hidden link that a module has by its earlier name, and the statements for either."""
    prefix.install("Tool/.1.0-x")
    folder = prefix.modules / "Tool"
    (folder / "1.0-x.lua").symlink_to(".1.0-x.lua")
    (folder / ".modulerc.lua").write_text('hide_version("Tool/1.0-x")\nmodule_version("Tool/.1.0-x", "old")\n')
    of_class = prefix.modules.parent / "ai/Tool"
    of_class.mkdir(parents=True)
    for file in ("1.0-x.lua", ".1.0-x.lua"):
        (of_class / file).symlink_to(folder / file)
    assert main(["remove", name, "--yes"]) == 0
    assert not folder.exists() and not of_class.exists()


@pytest.mark.parametrize(("module", "name"), [(MINE, MINE), (MINE, f"AI/{MINE}"), (f"AI/{MINE}", f"AI/{MINE}")])
def test_classes_in_the_directory_of_modules(prefix, module, name):
    """I-01, I-06: with an empty suffix-modules-path, EasyBuild's links aren't modules, and go with the module."""
    root = prefix.install(MINE)
    file, link = prefix.modules / f"{module}.lua", prefix.modules / f"AI/{module}.lua"
    for path in (file, link):
        path.parent.mkdir(parents=True, exist_ok=True)
    # EasyBuild's CategorizedModuleNamingScheme has classes in the names
    (prefix.modules / f"{MINE}.lua").rename(file)
    link.symlink_to(file)
    assert [one.module for one in search.installations()[0]] == [module]
    assert main(["remove", name, "--yes"]) == 0
    assert not [path for path in (root, file, link) if os.path.lexists(path)]


def test_refused_removals(prefix, monkeypatch, tmp_path, ebsif):
    """E-06: a loaded module, one being installed; a changed easyconfig is kept; nothing is half removed."""
    easyconfig = tmp_path / "mine.eb"
    easyconfig.write_text(EASYCONFIG.replace("Mine", "changed"))
    root = prefix.install(MINE, easyconfig=str(easyconfig))
    monkeypatch.setenv("CONTAINERROOT", str(root))
    assert f"{MINE} is loaded: unload it first" in ebsif("remove", MINE, "--yes", status=3).err
    monkeypatch.delenv("CONTAINERROOT")
    user = prefix.install(OTHER, image={"file": "b.sif", "sha256": "0", "resolved": str(root / "a.sif")})
    said = ebsif("remove", MINE, "--yes", status=3).err
    assert f"has the image that these modules use: {OTHER}; remove those first" in said
    (user / "b.sif").touch()
    lock = prefix.software / ".locks" / (str(root).replace("/", "_") + ".lock")
    lock.mkdir(parents=True)
    assert f"remove its lock {lock}" in ebsif("remove", MINE, "--yes", status=3).err
    lock.rmdir()
    planned = removal.plan(places.with_module_file(names().installation(MINE)))
    assert planned.kept == [f"{easyconfig}: changed since the installation"]
    # the module file goes first, and comes back if the installation can't be removed
    rename = Path.rename
    none = tmp_path / "none"
    monkeypatch.setattr(Path, "rename", lambda path, new: none.stat() if path == root else rename(path, new))
    with pytest.raises(EbsifError, match="none can't be removed: .*; nothing was removed"):
        removal.remove(planned)
    assert root.exists() and (prefix.modules / f"{MINE}.lua").exists() and easyconfig.exists()


def test_files_of_other_accounts_are_not_removed(prefix, monkeypatch):
    """E-06: they are named before anything is changed."""
    root = prefix.install(MINE)
    # which doesn't mean that others have to be removed first
    prefix.install(OTHER, image={"file": "b.sif", "sha256": "0", "resolved": str(root / "a.sif")})
    monkeypatch.setattr(os, "getuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(EbsifError, match="belongs to .*; nothing was removed"):
        removal.plan(places.with_module_file(names().installation(MINE)))
    assert root.exists()


def test_packages_added_by_hand(prefix, ebsif, tmp_path):
    """E-08: record, bill of materials and diff include them; without changes the record is the original."""
    root = prefix.install(MINE)
    record = json.loads((root / "share/ebsif/lock.json").read_text())
    assert json.loads(ebsif("lock", "mine").out) == record
    (tmp_path / "before.json").write_text(json.dumps(record))
    prefix.add(root, "rich", "14.0")
    assert main(["lock", "mine", "-o", "after.json"]) == 0
    after = json.loads((tmp_path / "after.json").read_text())
    assert after["venv_packages"] == ["einops==0.8.1", "rich==14.0"]
    assert after["stages"] == [stage('einops[all]==0.8.1; python_version > "3"\nrich==14.0\n')]
    assert "pkg:pypi/rich@14.0" in ebsif("lock", "mine", "--format", "sbom").out
    (root / "easybuild" / f"{MINE.replace('/', '-')}.eb").unlink()
    assert ebsif("diff", "./before.json", "mine", status=1).out == "+ package rich 14.0\n"


def test_an_installed_module_is_compared_rather_than_its_record(prefix, ebsif):
    """With an installation, more is known about an installed module than about its record in the catalog."""
    prefix.install(BASE, packages=[], image={"file": "b.sif", "sha256": "1" * 64})
    prefix.install(MINE)
    assert f"~ image sha256 {'1' * 64} -> {'0' * 64}\n" in ebsif("diff", BASE, "mine", status=1).out


@pytest.mark.usefixtures("eb_on_path")
def test_installing_while_the_module_is_loaded(prefix, ebsif, monkeypatch):
    """E-08: the printed command works where the module that was frozen is loaded, with which eb refuses to run."""
    prefix.install(MINE, text=EASYCONFIG)
    monkeypatch.setenv("EBSIF_LOADED_MODULE", MINE)
    said = ebsif("lock", "mine", "--format", "eb", "--date", "20261123", "-o", ".")
    assert said.err == f"install it with: module unload {MINE}; eb {said.out}"


def test_an_easyconfig_of_the_current_state(prefix, ebsif, tmp_path):
    """E-08: exact versions; added packages are included, removed ones are not; the rest is unchanged."""
    text = EASYCONFIG.replace("moduleclass", "constraints = ['einops==0.7']\nmoduleclass")
    asked = 'einops[all]>=0.8; python_version > "3"\n--pre\ngone\nnumpy<3  # of the image\n'
    root = prefix.install(MINE, text=text, stages=[stage(asked)])
    prefix.add(root, "rich", "14.0")
    path = tmp_path / f"{BASE.replace('/', '-')}-mine-20261123.eb"
    said = ebsif("lock", "mine", "--format", "eb", "--date", "20261123", "-o", ".").out
    assert said.startswith(f"{path.name}\n")
    text = path.read_text()
    values = parameters_in(text)
    expected = ["", 'einops[all]==0.8.1; python_version > "3"', "--pre", "numpy<3", "rich==14.0", ""]
    assert values["requirements"].split("\n") == expected
    assert values["versionsuffix"].endswith("-20261121-mine-20261123")
    assert values["checksums"] == ["0" * 64]
    # of an extension that was changed
    assert "constraints" not in values
    assert text.startswith("# Written by `ebsif lock`") and "# Written by `ebsif extend`" not in text
    assert "-20261121-new-" in ebsif("lock", "mine", "--format", "eb", "--name", "new").out
    today = time.strftime("%Y%m%d")
    prefix.install(f"{BASE}-mine-{today}", text=text)
    prefix.modules.joinpath(f"{BASE}-mine-{today}.lua").unlink()
    assert f"-mine-{today}.2'" in ebsif("lock", MINE, "--format", "eb").out
    said = ebsif("lock", "mine", "--format", "eb", "--name", "a b", status=3).err
    assert "'a b': use only letters, digits, _ and ." in said


def test_what_an_installation_says_about_its_image(prefix, tmp_path, ebsif):
    """E-12: all packages of the image and the exact Python, beyond what the catalog knows."""
    path = tmp_path / "environment.yml"
    path.write_text("dependencies: [python=3.11, numpy=1.26, einops]\n")
    command = ["extend", BASE, "-r", "environment.yml", "--name", "x", "-n"]
    said = ebsif(*command)
    assert "requirements = ['numpy==1.26.*', 'einops']\n" in said.out
    assert said.err == ""
    prefix.install(BASE, versions={"python": "3.11.4"})
    said = ebsif(*command)
    assert "requirements = ['einops']\n" in said.out
    assert said.err == "ebsif: environment.yml: the versions in the image are used: numpy 2.0 (not numpy=1.26)\n"
    path.write_text("dependencies: [python=3.12, einops]\n")
    assert "asks for python=3.12, but the image has Python 3.11.4: choose a container" in ebsif(*command, status=3).err


def test_hashes_are_kept(prefix, ebsif):
    """E-12: by unchanged packages; others are in a stage without hashes, because one call of pip wants them for all."""
    lines = [f"{name}==1.0 --hash=sha256:{name}" for name in ("einops", "rich", "numpy")]
    lines += [f"a @ https://example.org/{name}.whl --hash=sha256:a" for name in ("gone",)]
    asked = stage("".join(f"{line}\n" for line in lines))
    prefix.install(MINE, packages=["einops==1.0", "rich==2.0", "hand==3.0"], stages=[asked])
    values = parameters_in(ebsif("lock", "mine", "--format", "eb").out)
    assert values["requirements"] == [stage(["hand==3.0", "rich==2.0"], "pinned"), stage([lines[0], lines[2]])]


def test_stages_keep_their_options(prefix, ebsif):
    """E-08: packages built against torch come last; packages of several stages stay in them."""
    stages = [stage("ninja\n", "tools", env={"A": "1"}), stage("flash-attn\n", "torch", no_build_isolation=True)]
    root = prefix.install(MINE, packages=["einops==0.8.1", "flash_attn==2.8", "ninja==1.13"], stages=stages)
    values = parameters_in(ebsif("lock", "mine", "--format", "eb").out)
    assert values["requirements"] == [
        stage(["einops==0.8.1"], "pinned"),
        stage(["ninja==1.13"], "tools", env={"A": "1"}),
        stage(["flash-attn==2.8"], "torch", no_build_isolation=True),
    ]
    assert root.exists()


class Extension:
    """An installed extension of packages that need each other, and what `ebsif extend` makes of it."""

    def __init__(self, prefix, ebsif, monkeypatch):
        monkeypatch.setattr("time.strftime", lambda *_: "20261122")
        self.prefix, self.ebsif, self.monkeypatch = prefix, ebsif, monkeypatch
        # nothing in user software needs http: a package of the image does, with an extra
        self.root = self.install(
            "requirements = ['greeting>=1', 'numpy', 'rich']\n", ["greeting", "hello", "rich", "http"]
        )
        self.needs("greeting", "hello>=1", "extra; extra == 'more'")
        self.needs("rich", "hello")

    def install(self, requirements, names, module=MINE, **record):
        """Install a module with packages of version 1.0; return its directory."""
        text = EASYCONFIG.split("requirements = ")[0] + requirements + "moduleclass = 'ai'\n"
        suffix = module.partition("-")[2]
        text = text.replace("cpu-python-3.11-singularity-20261121-mine-20261121", suffix)
        return self.prefix.install(module, [f"{name}==1.0" for name in names], text, **record)

    def needs(self, name, *requirements):
        """Write what an installed package needs into its metadata."""
        (path,) = self.root.glob(f"user-software/**/{name}-*.dist-info/METADATA")
        path.write_text(path.read_text() + "".join(f"Requires-Dist: {one}\n" for one in requirements))

    def requirements(self, *arguments):
        """Return the stages or lines in the easyconfig that is shown."""
        return self.extend(*arguments)[0]["requirements"]

    def refusal(self, *arguments, status=3):
        """Return what is said of arguments that are refused."""
        return self.extend(*arguments, status=status)[1]

    def extend(self, *arguments, status=0):
        """Return the parameters of the easyconfig that is shown, and what is said besides."""
        shown = self.ebsif("extend", *arguments, "-n", status=status)
        return parameters_in(shown.out), shown.err


@pytest.fixture
def extension(prefix, ebsif, monkeypatch):
    """An extension of the example in a prefix."""
    return Extension(prefix, ebsif, monkeypatch)


def test_what_an_extension_says_of_itself(extension):
    """N-01: what was added, on which base; once, also if it is changed; the name without base is an alias."""

    def said(*words):
        values = extension.extend(*words)[0]
        assert values["aliases"][1:] == [words[-1] if words[-2] == "--name" else "mine"]
        return " ".join(values["description"].split()).split(". ")

    first, *_ = said(BASE, "--add", "rich", "einops", "--name", "new")
    assert first == f"PyTorch 2.13.0 with einops and rich, on top of {BASE}"
    again, *_ = said("mine", "--add", "lightly")
    assert again == f"PyTorch 2.13.0 with greeting, lightly, numpy and rich, on top of {BASE}"
    # as it was called before
    earlier = "PyTorch 2.13.0 with einops, on top of PyTorch/2.13.0-demo. Mine"
    extension.prefix.install(LATER, text=EASYCONFIG.replace("Mine", earlier))
    assert said("mine", "--add", "lightly")[0].endswith(", on top of PyTorch/2.13.0-demo")
    assert said("mine", "--add", "lightly", "--name", "new")[0].endswith(f", on top of {MINE}")
    many, *_ = said(BASE, "--add", *"abcdefg", "--name", "new")
    assert many.startswith("PyTorch 2.13.0 with a, b, c, d and 3 more packages, on top")


def test_a_command_that_was_faster(extension, tmp_path, monkeypatch, ebsif):
    """C-04, V-07: what another command has written since the date was chosen stays, and this one is to start again."""
    render = easyconfig.render

    def render_as_another_command_writes(container, *rest):
        (tmp_path / container.easyconfig_name).write_text("theirs\n")
        return render(container, *rest)

    monkeypatch.setattr(easyconfig, "render", render_as_another_command_writes)
    said = ebsif("extend", "mine", "--add", "lightly", "-o", ".", status=3).err
    assert "with different content: another command is installing it" in said
    assert {path.read_text() for path in tmp_path.glob("*.eb")} == {"theirs\n"}


def test_what_the_base_says_of_itself(extension, tmp_path):
    """The description of the base stays, whatever is on top of what in it."""
    folder = tmp_path / "sites/local/containers"
    folder.mkdir(parents=True)
    (folder / "Own.yaml").write_text(
        "name: Own\nfamilies:\n  own: {homepage: https://example.org/, file: own.sif, suffix: -base, venv: true,\n"
        "        description: 'JAX for everybody. It has Flax, on top of ROCm. Use it with care.'}\n"
        "containers:\n  - {family: own, version: 1.0}\n"
    )
    values, _ = extension.extend("Own/1.0", "--catalog", str(tmp_path / "sites"), "--add", "einops", "--name", "new")
    text = "with einops, on top of Own/1.0-base. JAX for everybody. It has Flax, on top of ROCm. Use it with care."
    assert " ".join(values["description"].split()).endswith(text)


def test_packages_are_added_and_all_others_keep_their_versions(extension, ebsif):
    """E-03: one command without a file; a new module; other versions only of what is named and what that needs."""
    values, _ = extension.extend("mine", "--add", "lightly", "greeting")
    assert values["requirements"] == ["greeting>=1", "numpy", "rich", "lightly"]
    assert values["constraints"] == ["greeting==1.0", "hello==1.0", "http==1.0", "rich==1.0"]
    assert values["versionsuffix"].endswith("-20261121-mine-20261122")
    values, _ = extension.extend("mine", "--add", "rich>=2", "flash-attn")
    assert values["constraints"] == ["greeting==1.0", "http==1.0"]
    built = [["ninja", "packaging", "setuptools", "wheel"], ["flash-attn"]]
    assert lines_of(values) == [["greeting>=1", "numpy", "rich>=2"], *built]
    extension.prefix.install(LATER)
    values, _ = extension.extend(MINE, "--add", "lightly")
    assert values["versionsuffix"].endswith("-mine-20261122.2")
    assert extension.extend(MINE, "--add", "x", "--rebuild")[0]["versionsuffix"].endswith("-mine-20261121")
    said = ebsif("extend", MINE, "--add", "numpy", "-n").err
    assert "numpy 2.0 is in the image already\n" in said and "nothing to do" in said
    Path("r.txt").write_text("rich\n")
    for wrong, expected in (
        ("a b", "--add: 'a b' is not a requirement"),
        ("./a.whl", "it does not exist"),
        ("..", "--add '..' is a directory, and no Python project"),
        ("r.txt", "--add 'r.txt' is a file: to add the packages that are in it, use -r r.txt"),
    ):
        assert expected in extension.refusal(MINE, "--add", wrong)


@pytest.mark.parametrize(
    ("date", "expected"),
    [("20261123", "20261123.2"), ("20261123.9", "20261123.10"), ("final", "final.2"), ("20261121.3", "20261122")],
)
def test_an_extension_is_never_older_than_what_it_is_made_from(extension, date, expected):
    """With an earlier clock, or in another time zone, `mine` would otherwise still mean the earlier one."""
    extension.install("requirements = ['rich']\n", ["rich"], f"{BASE}-mine-{date}")
    values, _ = extension.extend("mine", "--add", "lightly")
    assert values["versionsuffix"].endswith(f"-mine-{expected}")


def test_commands_after_an_installation(extension, ebsif):
    """V-05: for bash, as they were typed, after the last stage; a later change keeps them. A name has a default."""
    commands = ["--post", "echo $HOME >'a b'", "--verify", "true", "--verify", "x", "--no-build-isolation"]
    own = {"no_build_isolation": True, "post": ["echo $HOME >'a b'"], "verify": ["true", "x"]}
    values, _ = extension.extend("mine", "--add", "lightly", *commands)
    assert values["requirements"] == [stage(["greeting>=1", "numpy", "rich", "lightly"], **own)]
    # also without packages, and not twice
    values, _ = extension.extend("mine", *commands)
    extension.install(f"requirements = {values['requirements']!r}\n", ["greeting", "hello", "rich", "http"], LATER)
    assert "nothing to do" in ebsif("extend", "mine", *commands, "-n").err
    values, _ = extension.extend("mine", "--add", "lightly", "--verify", "y")
    added = stage(["lightly"], "requirements (mine)", verify=["y"])
    assert values["requirements"] == [stage(["greeting>=1", "numpy", "rich"], **own), added]
    extension.prefix.install(BASE)
    wanted = ["einops", "greeting", "numpy", "rich", "flash-attn"]
    values, _ = extension.extend(BASE, "--add", *wanted, *commands[:-1], "--post", "x")
    assert [stage.get("post") for stage in values["requirements"]] == [None, None, [*own["post"], "x"]]
    assert values["versionsuffix"].endswith("-mine-20261122.2")
    # a file has all packages, but no commands
    Path("r.txt").write_text("greeting>=1\nnumpy\nrich\n")
    Path("r2.txt").write_text("numpy\n")
    lost = "made without the command 'echo $HOME >'a b'', the command 'true', the command 'x', which "
    assert lost in extension.extend("mine", "-r", "r.txt")[1]
    # a record of somebody else, in which something else is in the place of commands
    extension.install("", [], f"{BASE}-odd-20261121", stages=[{"name": "a", "requirements": "rich", "post": [None]}])
    assert "is made without rich, which" in extension.extend(BASE, "--name", "odd", "-r", "r2.txt")[1]
    assert "leave out --post, --verify" in extension.refusal("--from-lock", "l.json", "--post", "x", status=2)


def test_packages_of_several_options(extension):
    """H-03: whatever is asked for counts, in one option or in several; one package has one line."""
    for name, text in (("a.txt", "lightly\nshared\n"), ("b.txt", "shared\nmore\n"), ("uv.lock", "version = 1\n")):
        Path(name).write_text(text)
    extension.prefix.install(BASE)
    for words, wanted in (
        (["--add", "lightly", "--add", "more", "most"], ["lightly", "more", "most"]),
        (["-r", "a.txt", "-r", "b.txt"], ["lightly", "shared", "more"]),
        (["--add", "lightly", "lightly"], ["lightly"]),
    ):
        assert extension.requirements(BASE, *words, "--name", "new") == wanted
    values, _ = extension.extend(BASE, "--apt", "aa", "--apt", "bb", "cc", "--name", "new")
    assert values["system_packages"] == ["aa", "bb", "cc"]
    assert extension.requirements("mine", "--remove", "greeting", "--remove", "numpy") == ["rich"]
    for words, problem in (
        (["--add", "rich", "Rich>=2"], "--add has rich twice ('rich' and 'Rich>=2')"),
        (["--replace", "rich==1", "rich==2"], "--replace has rich twice"),
        (["--apt", "aa=1", "--apt", "aa=2"], "--apt has aa twice (aa=1 and aa=2)"),
        (["-r", "a.txt", "-r", "uv.lock"], "uv.lock locks everything that is installed"),
    ):
        assert problem in extension.refusal(BASE, *words, "--name", "new")
    twice = "requirements = ['rich; python_version < \"3\"', 'rich', 'hello']\n"
    extension.install(twice, ["rich", "hello"], OTHER)
    assert "(it was made with: rich, hello)" in extension.refusal("other", "--remove", "x")


def test_a_container_after_packages(extension):
    """`--add X CONTAINER` takes the container for a package, and says so."""
    for words in (["--add", "lightly", "mine"], ["--add", "lightly", "--apt", "a", BASE]):
        said = extension.refusal(*words, "--name", "new", status=2)
        commands = (f"ebsif extend {words[-1]} {words[-3]} ...", f"ebsif extend {words[-1]} --apt ...")
        assert "is a package. Put the container first: " in said and any(command in said for command in commands)
    extension.monkeypatch.setenv("CONTAINERROOT", str(extension.root))
    # the loaded module
    assert extension.requirements("--add", "lightly", "other")[-2:] == ["lightly", "other"]
    assert "Put the container first" in extension.refusal("--add", "lightly", MINE, status=2)


def test_commands_without_python_packages(extension):
    """`--post` and `--verify` of an extension with --apt alone run, too; they stay if packages go."""
    extension.prefix.install(BASE)
    commands = ["--post", "echo hi", "--verify", "hello"]
    values, _ = extension.extend(BASE, "--apt", "hello", *commands, "--name", "ap")
    own = {"name": "commands", "post": ["echo hi"], "verify": ["hello"]}
    assert (values["system_packages"], values["requirements"]) == (["hello"], [own])
    parameters = f"system_packages = ['hello']\nrequirements = {[own]}\n"
    extension.install(parameters, [], f"{BASE}-ap-20261121", system_layer={"requested": ["hello"]})
    values, _ = extension.extend("ap", "--add", "lightly", "--verify", "more")
    assert values["requirements"] == [own, stage(["lightly"], verify=["more"])]
    values, _ = extension.extend("ap", "--verify", "more")
    assert values["requirements"] == [{**own, "verify": ["hello", "more"]}]
    both = parameters.replace("}]", "}, {'name': 'two', 'requirements': ['rich']}]")
    extension.install(both, ["rich"], f"{BASE}-both-20261121")
    assert extension.requirements("both", "--remove", "rich") == [own]
    # nor does a file of packages replace them
    Path("new.txt").write_text("einops\n")
    assert extension.requirements("both", "-r", "new.txt") == [own, stage(["einops"])]
    said = extension.refusal(BASE, "--apt", "hello", "--no-build-isolation", "--name", "ap2", status=2)
    assert "--no-build-isolation is for Python packages" in said


def test_another_version_of_a_package_with_extras(extension):
    """E-03: it keeps its extras, unless others are asked for, and so what they need, in the image's Python."""
    names = ["greeting", "hello", "rich", "http"]
    python = {"python": "3.30.1"}
    extension.root = extension.install("requirements = ['greeting[more]>=1']\n", names, OTHER, versions=python)
    needed = "rich; extra == 'more' and python_version >= '3.30'", "http; extra == 'more' and python_version < '3.30'"
    extension.needs("greeting", *needed)
    values, _ = extension.extend("other", "--add", "greeting==2.0")
    assert values["requirements"] == ["greeting[more]==2.0"]
    assert values["constraints"] == ["hello==1.0", "http==1.0"]
    assert extension.requirements("other", "--add", "greeting[less]==2.0") == ["greeting[less]==2.0"]


def test_a_locked_package_gets_another_version(extension):
    """E-03, E-12: without a hash in a stage of its own, before those with hashes, as pip demands; else in its place."""
    line, other = (f"{name}==1.0 --hash=sha256:{'a' * 64}" for name in ("greeting", "hello"))
    extension.install(f"requirements = {[line, other]}\n", ["greeting", "hello"], OTHER)
    said = extension.refusal("other", "--add", "greeting>=2")
    assert "with a hash: give the new one, too (--add 'greeting==VERSION --hash=sha256:...')" in said
    newer = line.replace("==1.0", "==2.0")
    values, _ = extension.extend("other", "--add", newer, "rich")
    assert lines_of(values) == [[newer, other], ["rich"]]
    assert "greeting==1.0" not in values["constraints"]


def test_packages_are_removed_with_what_only_they_need(extension):
    """E-03: what others need stays, and what is added; what can't be removed is named, as it is there."""
    values, said = extension.extend("mine", "--remove", "Greeting")
    assert values["requirements"] == ["numpy", "rich"]
    assert values["constraints"] == ["hello==1.0", "http==1.0", "rich==1.0"]
    assert "also removed" not in said
    extension.needs("greeting", "byhand")
    extension.prefix.add(extension.root, "byhand", "1.0")
    record = json.loads((extension.root / "share/ebsif/lock.json").read_text())
    record["venv_packages"].append("byhand==1.0")
    (extension.root / "share/ebsif/lock.json").write_text(json.dumps(record))
    said = extension.extend("mine", "--remove", "greeting", "numpy")[1]
    assert "also removed, because nothing else needs them: byhand 1.0" in said
    assert "numpy stays, because it is in the image" in said
    for name, expected in (
        ("hello", "hello can't be removed alone: greeting and rich need it"),
        ("ritch", "has no package ritch; did you mean rich?"),
        ("setuptools", "has no package setuptools"),
    ):
        assert expected in extension.refusal("mine", "--remove", name), name
    everything = ("--remove", "greeting", "numpy", "rich")
    assert "nothing would be left of" in extension.refusal("mine", *everything)
    # others in their place, of which one was only needed by them
    assert extension.requirements("mine", *everything, "--add", "lightly") == ["lightly"]
    values, said = extension.extend("mine", *everything, "--add", "hello")
    assert values["requirements"] == ["hello"] and "hello 1.0" not in said
    extension.install("requirements = ['old; python_version < \"3\"', 'rich']\n", ["rich"], f"{BASE}-marker-20261121")
    values, said = extension.extend("marker", "--remove", "old")
    assert values["requirements"] == ["rich"]
    assert "stays" not in said
    assert "--remove changes an extension" in extension.refusal("PyTorch/2.13.0", "--remove", "x")
    built = stage("flash-attn", "b", no_build_isolation=True)
    parameter = f"requirements = {[stage('ninja', 'build tools'), built, stage('rich', 'c')]}\n"
    extension.install(parameter, ["ninja", "flash-attn", "rich"], OTHER)
    assert extension.requirements("other", "--remove", "flash-attn") == [stage(["rich"], "c")]


def test_a_package_from_elsewhere(extension, tmp_path):
    """E-03: a URL, a repository or a wheel instead of a version: in its place, and not held at the earlier version."""
    (tmp_path / "rich-2.0-py3-none-any.whl").touch()
    wheel = f"{tmp_path}/rich-2.0-py3-none-any.whl"
    for added, line in (
        ("rich @ https://example.org/rich-2.0.zip",) * 2,
        ("git+https://example.org/rich.git",) * 2,
        ("./rich-2.0-py3-none-any.whl", wheel),
        (f"file://{wheel}",) * 2,
    ):
        values, _ = extension.extend("mine", "--add", added)
        assert values["requirements"] == ["greeting>=1", "numpy", line]
        assert values["constraints"] == ["greeting==1.0", "http==1.0"]
    # as long as it stays there, nothing else changes
    extension.install(f"requirements = ['greeting', '{wheel}']\n", ["greeting", "hello", "rich"], OTHER)
    values, _ = extension.extend("other", "--add", "lightly")
    assert values["constraints"] == ["greeting==1.0", "hello==1.0", "rich==1.0"]
    assert extension.requirements("other", "--remove", "rich") == ["greeting"]
    extension.install("requirements = ['rich[more]']\n", ["rich"], f"{BASE}-third-20261121")
    assert extension.requirements("third", "--add", wheel) == [f"{wheel}[more]"]
    assert extension.requirements("third", "--add", f"{wheel}[less]") == [f"{wheel}[less]"]


def test_requirements_are_replaced(extension, tmp_path):
    """E-03: from a changed file; the same file changes nothing."""
    (tmp_path / "r.txt").write_text("greeting>=1\nnumpy\nrich  # mine\n")
    assert "nothing to do" in extension.ebsif("extend", "mine", "-r", "r.txt").err
    (tmp_path / "r.txt").write_text("rich\nlightly\n")
    values, _ = extension.extend("mine", "-r", "r.txt", "--rebuild")
    assert values["requirements"] == ["rich", "lightly"]
    assert values["constraints"] == ["hello==1.0", "http==1.0", "rich==1.0"]
    # with the same packages, too
    assert extension.requirements("mine", "--rebuild") == ["greeting>=1", "numpy", "rich"]


def test_what_a_replaced_package_breaks_in_the_base(extension):
    """V-01: the user software of the module that is extended counts as well."""
    listing = description([["numpy", "2.0", ""]], compiled=["numpy"])
    extension.monkeypatch.setattr("ebsif.environments.bases.image_of", lambda one, _: str(one))
    extension.monkeypatch.setattr("ebsif.images.inspection.python_of", lambda _: SimpleNamespace(listing=listing))
    extension.root = extension.install("requirements = ['torchmetrics']\n", ["torchmetrics"], BASE)
    command = ["extend", BASE, "--replace", "numpy==1.19.0", "--force", "--name", "rp", "--date", "20261122"]
    printed = extension.ebsif(*command, "-o", ".")
    assert "\nno package in image and extension requires replaced packages\n" in "\n" + printed.out
    written = json.loads(extension.ebsif(*command, "-o", ".", "--json").out)
    assert written["files"] == [f"{BASE.replace('/', '-')}-rp-20261122.eb"]
    # nor does it silently take the place of others
    said = extension.refusal(*command[1:-4], "--name", "mine")
    assert "; to add to it: ebsif extend mine --replace numpy==1.19.0 --force -n; otherwise" in said
    # what is built with it shows in no requirement
    assert "which is compiled: what was built with it may fail or compute wrong results" in printed.err
    extension.needs("torchmetrics", "numpy>1.20.0")
    said = " ".join(extension.ebsif(*command, "-n").err.split())
    assert "torchmetrics 1.0 extension numpy>1.20.0 breaks 1 package in image and extension requires replaced" in said
    # nobody is asked, and no image is started, for what is wrong anyway
    extension.monkeypatch.setattr("ebsif.environments.replacing.confirmed", lambda *_: pytest.fail("asked"))
    Path("r.txt").write_text("a b\n")
    for module, wrong in ((BASE, ["-r", "r.txt"]), (BASE, ["--apt", "a b"]), ("mine", ["--remove", "nosuch"])):
        name = ["--name", "rp"] if module == BASE else []
        said = extension.ebsif("extend", module, "--replace", "numpy==1.19.0", *wrong, *name, status=3)
        assert (said.out, "numpy" in said.err.partition("made with")[0]) == ("", False)


def test_other_requirements_on_the_same_day(extension, tmp_path):
    """E-03, E-08: a new module with a number, unless they are the same; what was added by hand is named."""

    def extend(lines, *more):
        (tmp_path / "r.txt").write_text(lines)
        return extension.ebsif("extend", BASE, "-r", "r.txt", "--name", "new", *(more or ("-o", ".")))

    def install(date):
        path = tmp_path / f"{BASE.replace('/', '-')}-new-{date}.eb"
        extension.prefix.install(f"{BASE}-new-{date}", text=path.read_text())
        path.unlink()

    name = f"{BASE.replace('/', '-')}-new-20261122"
    extension.prefix.add(extension.prefix.install(BASE), "hand", "1.0")
    # easyconfigs that are not installed; --rebuild replaces one
    assert extend("lightly\n").out.startswith(f"{name}.eb\n")
    installed = []
    with extension.monkeypatch.context() as patch:
        patch.setattr(
            "ebsif.environments.installing.install", lambda place, *_: installed.append(place.easyconfig.name)
        )
        extend("rich\n", "--rebuild")
    assert installed == [f"{name}.eb"]
    extend("rich\n", "--rebuild", "-o", ".")
    first = extend("rich\n")
    left = f"ebsif: {BASE} has packages that were added by hand, which are not taken along: hand==1.0 ("
    assert first.err.startswith(f"{left}to add them once it is installed: ebsif extend new --add hand==1.0)\n")
    assert "by hand" not in extend("rich\nhand\n", "-n").err
    assert first.out == extend("rich\n").out
    assert extend("lightly\n").out.startswith(f"{name}.2.eb\n")
    install("20261122")
    install("20261122.2")
    # of installations, the newest is compared; its easyconfig may be wanted elsewhere
    assert extend("lightly\n").out == f"{name}.2.eb\n"
    assert "new-20261122.2'" in extend("lightly\n", "-n").out
    (tmp_path / f"{name}.2.eb").unlink()
    same = extend("lightly\n", "--check")
    assert f"{BASE}-new-20261122.2 has these packages already" in same.err
    # N-01: MODULEPATH has the directory
    assert same.err.endswith(f"load it with: module load {BASE}-new-20261122.2\n")
    assert extend("rich\n").out.startswith(f"{name}.3.eb\n")
    assert extend("rich\n", "--rebuild", "-n").out.count("new-20261122.2'") == 1
    assert extend("rich\n", "--date", "20261122", "-n").out.count("new-20261122'") == 1
    extension.prefix.add(extension.root, "hand", "1.0")
    said = extension.ebsif("upgrade", MINE, BASE, "-n").err
    assert f"to add them once it is installed: ebsif extend {BASE}-mine --add hand==1.0" in said


def test_a_name_that_is_taken(extension, tmp_path):
    """User trial, E-03: nothing that is added silently takes the place of packages and commands; a file does."""
    extension.install("requirements = ['greeting>=1', 'numpy']\n", ["greeting"], LATER)
    post = "--post 'echo '\"'\"'a b'\"'\"''"
    for typed in (
        "--add rich 'numpy>=2'",
        "--add rich --rebuild",
        f"--add rich {post}",
        "--apt tmux",
    ):
        for words in (["--name", "mine"], ["--name=mine", "--date", "20261130"]):
            said = extension.refusal(*words, BASE, *shlex.split(typed))
            assert said == (
                f"ebsif: `mine` exists ({LATER}); to add to it: ebsif extend mine {typed} -n; "
                "otherwise choose another --name\n"
            )
    assert main(["extend", BASE, "--add", "rich", "--name", "mine", "--check"]) == 3
    assert main(["extend", BASE, "--add", "rich", "--name", "mine"]) == 3
    assert not list(tmp_path.glob("*.eb"))
    # nothing is lost, or it is the name of another extension
    for packages, name in ((["Greeting", "numpy", "rich"], "mine"), (["rich"], "more"), (["rich"], "min")):
        values, said = extension.extend(BASE, "--add", *packages, "--name", name)
        assert (values["requirements"], said) == (packages, "")
    # hyphens are taken
    values, said = extension.extend(BASE, "--add", "rich", "--name", "my-own-env")
    assert values["versionsuffix"].endswith("-my_own_env-20261122")
    assert said.startswith("ebsif: the extension is called my_own_env, because")
    (tmp_path / "r.txt").write_text("numpy\nrich\n")
    values, said = extension.extend(BASE, "-r", "r.txt", "--name", "mine")
    assert values["requirements"] == ["numpy", "rich"]
    assert said == f"ebsif: the new `mine` is made without greeting, which {LATER} was made with\n"
    # on top of another extension
    more = f"{MINE}-more-20261121"
    stages = [stage("greeting>=1\nnumpy\nrich"), stage("byhand", "requirements (more)")]
    extension.install(f"requirements = {stages}\n", ["byhand"], more)
    assert f"`more` exists ({more}); " in extension.refusal(MINE, "--add", "x", "--name", "more")


def test_an_earlier_extension_is_changed(extension, monkeypatch):
    """A newer one loses nothing because a shell has the earlier one loaded, unless that is named."""
    extension.install("requirements = ['greeting>=1', 'numpy', 'rich', 'byhand']\n", ["greeting", "byhand"], LATER)
    loaded = {"EBSIF_LOADED_MODULE": MINE, "LOADEDMODULES": MINE, "CONTAINERROOT": str(extension.root)}
    for name, value in loaded.items():
        monkeypatch.setenv(name, value)
    said = extension.refusal("--add", "lightly")
    assert said == (
        f"ebsif: {MINE} is loaded, but `mine` means {LATER} now, without whose changes the new one would be made. To "
        f"change the newest: ebsif extend {BASE}-mine --add lightly -n (or, to go on from the loaded one: ebsif extend "
        f"{MINE} --add lightly -n)\n"
    )
    values, said = extension.extend(f"{BASE}-mine", "--add", "lightly")
    assert (values["requirements"], said) == (["greeting>=1", "numpy", "rich", "byhand", "lightly"], "")
    values, said = extension.extend(MINE, "--add", "lightly")
    assert values["requirements"] == ["greeting>=1", "numpy", "rich", "lightly"]
    assert said == f"ebsif: the new `mine` is made without byhand, which {LATER} was made with\n"
    # another name takes nothing away
    assert extension.extend("--add", "lightly", "--name", "other")[1] == ""
    # a file says all
    Path("r.txt").write_text("numpy\nrich\n")
    said = extension.extend("mine", "-r", "r.txt")[1]
    assert f"the new `mine` is made without byhand, greeting, which {LATER} was made with\n" in said


def test_a_project_in_a_directory(extension, tmp_path):
    """The project is the extension's, whatever its directory is called; a message says that it is built again."""
    project = tmp_path / "folder"
    project.mkdir()
    root = extension.install(f"requirements = ['greeting', '{project}']\n", ["greeting", "myproject"], LATER)
    (info,) = root.glob("user-software/**/myproject-*.dist-info")
    (info / "direct_url.json").write_text(json.dumps({"url": project.as_uri(), "dir_info": {}}))
    for name in ("myproject", "folder"):
        values, said = extension.extend("mine", "--remove", name)
        assert (values["requirements"], values["constraints"]) == (["greeting"], ["greeting==1.0"])
        assert "stays" not in said and "built again" not in said
    said = extension.extend("mine", "--add", "rich")[1]
    assert f"myproject 1.0 is built again from {project}, as that is now" in said


def test_files_that_are_gone(extension, tmp_path):
    """E-03: an extension whose files are gone can be changed; files that were never here may be in the image."""
    wheel, constraints = tmp_path / "lightly-1.0-py3-none-any.whl", tmp_path / "c.txt"
    lines = [f"-c {constraints}", "-c /image/c.txt", "greeting", str(wheel)]
    files = dict.fromkeys(map(str, (wheel, constraints)), "0" * 64)
    root = extension.install(f"requirements = {lines}\n", ["greeting", "lightly"], LATER, local_files=files)
    (info,) = root.glob("user-software/**/lightly-*.dist-info")
    (info / "direct_url.json").write_text(json.dumps({"url": wheel.as_uri(), "archive_info": {}}))
    values, said = extension.extend("mine", "--add", "rich")
    assert values["requirements"] == ["-c /image/c.txt", "greeting", "lightly==1.0", "rich"]
    assert f"{constraints} no longer exists, so its constraints are left out: what is installed stays\n" in said
    assert f"lightly 1.0: {wheel}, which it was installed from, no longer exists: this version comes from " in said
    for path in (wheel, constraints):
        path.touch()
    assert extension.requirements("mine", "--add", "rich") == [*lines, "rich"]


def test_where_the_easyconfigs_of_installed_extensions_are(extension, tmp_path):
    """C-04 (user trial): in a directory of the account, or as -o says; none after a failure; earlier files stay."""
    own = tmp_path / ".local/share/ebsif/easyconfigs"

    def files(folder=tmp_path):
        return sorted(path.name for path in folder.iterdir() if path.suffix in (".eb", ".json"))

    def fail(place, *_):
        assert place.easyconfig.exists()
        raise ExtendingError("no space left\nThe log is /tmp/eb-1/easybuild.log")

    assert main(["lock", "mine", "-o", "lock.json"]) == 0
    commands = ["extend", "mine", "--add", "x"], ["extend", "--from-lock", "lock.json", "--name", "theirs"]
    with extension.monkeypatch.context() as patch:
        patch.setattr("ebsif.environments.installing.install", fail)
        for words in commands:
            assert extension.ebsif(*words, status=3).err.endswith("no space left\nThe log is /tmp/eb-1/easybuild.log\n")
            assert (files(), files(own)) == (["lock.json"], [])
        # a new shell doesn't search EasyBuild's default directory
        then = extension.ebsif(*commands[0], "-o", ".").err.splitlines()[-1]
        assert re.fullmatch(rf"then: module use \S+/modules/all && module load {re.escape(LATER)}", then)
        before = files()
        assert len(before) == 2
    extension.monkeypatch.setattr("ebsif.environments.installing.install", lambda *_: 0)
    for words in commands:
        assert main([*words]) == 0
    assert files() == before
    # the lock is in the installation
    names = [name.removeprefix(BASE.replace("/", "-")) for name in files(own)]
    assert names == ["-mine-20261122.eb", "-theirs-20261122.eb"]
    extension.monkeypatch.setattr("ebsif.environments.installing.install", fail)
    for words in commands:
        # what was there stays
        assert main([*words]) == 3
    assert [len(files()), len(files(own))] == [2, 2]
    extension.monkeypatch.setattr("ebsif.environments.installing.install", lambda *_: 0)
    extension.monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert main([*commands[0]]) == 0
    assert len(files(tmp_path / "data/ebsif/easyconfigs")) == 1


def test_an_extension_of_an_extension_is_pinned(extension, tmp_path):
    """E-04: to what its base has; its own packages can be removed, those of the base can't."""
    (tmp_path / "more.txt").write_text("byhand\n")
    values, _ = extension.extend("mine", "-r", "more.txt", "--name", "more")
    added = stage(["byhand"], "requirements (more)")
    assert values["requirements"] == [stage(["greeting>=1", "numpy", "rich"]), added]
    assert values["constraints"] == ["greeting==1.0", "hello==1.0", "http==1.0", "rich==1.0"]
    assert "leave out --name more" in extension.refusal("mine", "--remove", "rich", "--name", "more")
    module = f"{MINE}-more-20261121"
    extension.install(f"requirements = {values['requirements']}\n", ["greeting", "hello", "rich", "byhand"], module)
    assert "rich belongs to the module that" in extension.refusal(module, "--remove", "rich")
    (tmp_path / "more.txt").write_text("lightly\n")
    values, _ = extension.extend(module, "-r", "more.txt")
    assert lines_of(values) == [["greeting>=1", "numpy", "rich"], ["lightly"]]
    assert values["versionsuffix"].endswith("-mine-20261121-more-20261122")
    # without its base, all of the packages are its own
    (extension.prefix.modules / f"{MINE}.lua").unlink()
    shutil.rmtree(extension.root)
    values, _ = extension.extend(module, "--remove", "rich")
    assert lines_of(values) == [["greeting>=1", "numpy"], ["byhand"]]


def test_changes_by_hand_are_taken_along(extension):
    """E-08: packages that were added, changed or removed with pip, and what was said about those that can't be."""
    extension.prefix.add(extension.root, "byhand", "3.0")
    (path,) = extension.root.glob("user-software/**/greeting-*.dist-info")
    path.rename(path.with_name("gone"))
    extension.prefix.add(extension.root, "greeting", "0.9")
    (path,) = extension.root.glob("user-software/**/rich-*.dist-info")
    path.rename(path.with_name("gone-too"))
    values, said = extension.extend("mine", "--rebuild")
    assert values["requirements"] == ["greeting==0.9", "numpy", "byhand==3.0"]
    assert values["constraints"] == ["byhand==3.0", "greeting==0.9", "hello==1.0", "http==1.0"]
    assert "rich was removed by hand, so it is left out" in said
    assert "added by hand, which are taken along: byhand==3.0" in said


def test_an_environment_for_another_image(extension, tmp_path):
    """R-06: on a container with another image, what was asked for is installed, in the versions of the lock."""
    assert main(["lock", "mine", "-o", "lock.json"]) == 0
    record = json.loads((tmp_path / "lock.json").read_text())
    record["image"] = {"file": "b.sif", "sha256": "1" * 64}
    record["venv_packages"].append("numpy==1.0")
    (tmp_path / "b.json").write_text(json.dumps(record))
    kept = "another image than b.json: the packages in b.json are installed in the same versions, except those that the"
    # the easyconfig of an installation that MODULEPATH lacks means the installation
    for module, searched in ((MINE, extension.prefix.modules), (next(extension.root.glob("easybuild/*.eb")), "")):
        extension.monkeypatch.setenv("MODULEPATH", str(searched))
        values, said = extension.extend(module, "--from-lock", "b.json", "--name", "theirs")
        assert values["requirements"].split() == ["greeting>=1", "numpy", "rich"]
        # not the version of a package that this image has
        assert values["constraints"] == ["greeting==1.0", "hello==1.0", "rich==1.0", "http==1.0"]
        assert values["versionsuffix"].endswith("-20261121-theirs-20261122")
        assert f"{BASE} has {kept} image already has" in said


def test_other_requirements_leave_what_was_added_by_hand(extension, tmp_path):
    """E-08: packages added with pip stay when a file replaces the requirements, unless it names them itself."""
    extension.prefix.add(extension.root, "byhand", "3.0")
    (tmp_path / "r.txt").write_text("numpy\n")
    values, said = extension.extend("mine", "-r", "r.txt")
    assert values["requirements"] == ["numpy", "byhand==3.0"]
    assert "byhand==3.0" in values["constraints"] and "taken along: byhand==3.0" in said
    (tmp_path / "locked.txt").write_text(f"numpy==2.0 --hash=sha256:{'0' * 64}\n")
    values, _ = extension.extend("mine", "-r", "locked.txt")
    assert lines_of(values) == [[f"numpy==2.0 --hash=sha256:{'0' * 64}"], ["byhand==3.0"]]
    (tmp_path / "r.txt").write_text("Byhand>=2\n")
    assert extension.requirements("mine", "-r", "r.txt") == ["Byhand>=2"]


def test_what_only_the_catalog_knows_of_an_image(extension):
    """E-12: its Python, for example, if the record of an installed container doesn't say it."""
    extension.install("", [], BASE)
    Path("e.yml").write_text("dependencies: [python=3.12, rich]\n")
    assert "asks for python=3.12, but the image has Python 3.11" in extension.refusal(
        BASE, "-r", "e.yml", "--name", "new"
    )


def test_an_extension_with_an_earlier_date(extension):
    """E-03: its name means the one with the latest date, which is not the new one."""
    meaning = f"`mine` goes on to mean {MINE}, because that has a later date"
    assert meaning in extension.extend("mine", "--add", "lightly", "--date", "20260101")[1]
    assert meaning not in extension.extend("mine", "--add", "lightly", "--date", "20261121.2")[1]


def test_an_extension_that_repeats_a_lock(extension):
    """An extension from a lock can't be upgraded by its requirements; the command that does the same is named."""
    text = EASYCONFIG.split("requirements = ")[0] + "requirements = {'lock': 'x.lock.json'}\n"
    root = extension.prefix.install(f"{BASE}-repeated-20261121", text=text, stages=[{"name": "a", "requirements": "b"}])
    command = f"ebsif extend {BASE} --from-lock {root}/share/ebsif/lock.json --name mine"
    said = extension.ebsif("upgrade", "repeated", BASE, "-n", status=3).err
    assert f"To repeat that on {BASE}:\n    {command}\n" in said
    assert main([*command.split()[1:], "-n"]) == 0


def test_an_extension_on_two_bases(extension, monkeypatch, capsys, tmp_path):
    """N-01: after an upgrade, its name means the one on the newest container, which is said."""
    newer = BASE.replace("singularity-", "singularity-exampleVenv-")
    monkeypatch.setattr("ebsif.environments.making.make", lambda *_: 0)
    expected = (
        f"`mine` means the one on the newest container; the earlier module stays: module load {MINE} (to remove it: "
    )
    for words, is_said in (([], True), (["--check"], False)):
        assert (expected in extension.ebsif("upgrade", "mine", newer, *words).err) == is_said
    # the command that removes earlier ones means those on the same container
    newest = f"{newer}-mine-20261122"
    before, later, _ = (places.of_directory(extension.install("", [], one)) for one in (f"{MINE}.2", LATER, newest))
    file = extension.prefix.alias(newest, "mine")
    file.write_text(f'{file.read_text()}module_version("{LATER}", "{BASE.partition("/")[2]}-mine")\n')
    later, before = map(places.with_module_file, (later, before))
    # in another prefix, as that of somebody else
    elsewhere = dataclasses.replace(before, root=shutil.copytree(before.root, tmp_path / "other" / before.root.name))
    for changed, made, remedy in (
        (before, later, f" (to keep only the newest: ebsif remove {BASE}-mine --older)"),
        (later, before, ""),
        (elsewhere, later, ""),
    ):
        making.report_earlier(Request("extend"), Mock(is_change=True, before=changed), made)
        assert capsys.readouterr().err.endswith(f"stays as it is: {changed.load}{remedy}\n")


def test_a_repeated_environment_keeps_its_name(extension, tmp_path):
    """E-07: the name is that in the lock, so that `mine` doesn't become the environment of another name."""
    assert main(["lock", "mine", "-o", "lock.json"]) == 0
    # the installation has its lock
    for place in ("lock.json", str(names().installation("mine").root)):
        assert extension.extend("--from-lock", place)[0]["versionsuffix"].endswith("-20261121-mine-20261122")
    record = json.loads((tmp_path / "lock.json").read_text())
    suffix = record["module"]["versionsuffix"]
    for other, status in ((suffix.replace("-mine-", "-week-"), 0), ("-cpu", 2)):
        record["module"]["versionsuffix"] = other
        (tmp_path / "b.json").write_text(json.dumps(record))
        values, said = extension.extend("--from-lock", "b.json", status=status)
        assert status or values["versionsuffix"].endswith("-20261121-week-20261122")
    assert "has no name of an extension: choose one with --name" in said


def test_an_environment_of_somebody_else(extension, tmp_path):
    """E-07: the container follows from the image, of a module or the catalog; else the image is named."""
    assert main(["lock", "mine", "-o", "lock.json"]) == 0
    values, _ = extension.extend("--from-lock", "lock.json", "--name", "theirs")
    name = f"{BASE.replace('/', '-')}-theirs-20261122"
    assert values["requirements"] == {"lock": f"{name}.lock.json"}
    assert values["checksums"] == ["0" * 64]
    for _ in range(2):
        assert f"{name}.eb" in extension.ebsif("extend", "--from-lock", "lock.json", "--name", "theirs", "-o", ".").out
    assert json.loads((tmp_path / f"{name}.lock.json").read_text()) == json.loads((tmp_path / "lock.json").read_text())
    # on the same day, another lock is another module
    record = json.loads((tmp_path / "lock.json").read_text())
    changed = {**record, "artifacts": {"rich": {"file": "x.whl", "sha256": "0" * 64}}}
    (tmp_path / "b.json").write_text(json.dumps(changed))
    # nothing is written, least of all elsewhere
    before = sorted(tmp_path.parent.rglob("*.lock.json*"))
    shown = extension.ebsif("extend", "--from-lock", "lock.json", "--name", "x/../../y", status=3).err
    assert "use only letters, digits, _ and ." in shown
    assert sorted(tmp_path.parent.rglob("*.lock.json*")) == before
    told = extension.ebsif("extend", "--from-lock", "b.json", "--name", "theirs", "-o", ".").out
    assert told.endswith(f"{name}.2.eb\n")
    text = (tmp_path / f"{name}.eb").read_text()
    record = {key: value for key, value in record.items() if key != "module"}
    extension.prefix.install(name.replace("-", "/", 1), text=text, **record)
    assert "nothing to do" in extension.ebsif("extend", "--from-lock", "lock.json", "--name", "theirs").err
    record = json.loads((tmp_path / "lock.json").read_text())
    record["image"], record["module"]["name"] = {"file": "b.sif", "sha256": "1" * 64}, "Other"
    (tmp_path / "b.json").write_text(json.dumps(record))
    assert f"the image b.sif of Other/{MINE.partition('/')[2]} is " in extension.refusal("--from-lock", "b.json")
    example = names().container("PyTorch/2.13.0")
    same = example.replace(sha256="1" * 64)
    record = Record.from_content(record)
    known = SimpleNamespace(everything=[], containers=[example, same], site=example.site)
    assert repeating.base_of(record, known) is same
    # not one with another image
    known.containers = [example.replace(sha256="2" * 64)]
    with pytest.raises(repeating.MissingImageError):
        repeating.base_of(record, known)
    assert "venv_name" not in values
    record = json.loads((tmp_path / "lock.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps({**record, "venv_name": "torch"}))
    assert extension.extend("--from-lock", "b.json", "--name", "x")[0]["venv_name"] == "torch"


def test_the_interpreter_of_the_newest_extension(prefix, tmp_path):
    """V-07: of the extension with a name; not one that is being installed, one of another name, or one on top of it."""
    roots, name = {}, MINE[:-9]
    others = [f"{name}-too-20261130", f"{name}-20270101", f"{LATER}.10-more-20270102"]
    for module in (MINE, LATER, f"{LATER}.2", f"{LATER}.10", *others):
        roots[module] = root = prefix.install(module)
        write_program(root / "interpreter/python", '#!/bin/sh\necho "$0" "$@"\n')
    shutil.copytree(roots[LATER], f"{roots[LATER]}.replaced")
    (roots.pop(f"{name}-20270101") / "share/ebsif/lock.json").unlink()
    prefix.alias(f"{LATER}.10", name.partition("/")[2])
    path = tmp_path / "a b"
    for text, newest in (("mine", f"{LATER}.10"), (name, f"{LATER}.10"), (LATER, LATER)):
        assert main(["interpreter", text, "--write", str(path), "--overwrite"]) == 0
        assert printed([path, "-c", "1 2"]) == f"{roots[newest]}/interpreter/python -c 1 2\n"
    assert main(["interpreter", "mine", "--write", str(path), "--overwrite"]) == 0
    # kernels and `ebsif remove` have the same order
    expected = [roots[module] for module in (MINE, LATER, f"{LATER}.2", f"{LATER}.10")]
    assert interpreter.extensions(interpreter.without_date(roots[MINE])) == expected
    for module in (f"{LATER}.10", f"{LATER}.2", LATER, MINE):
        (roots[module] / "share/ebsif/lock.json").unlink()
    done = attempt([path])
    assert done.returncode and done.stderr.endswith("the module was removed\n")


def test_an_interpreter_that_a_person_has_edited(prefix, tmp_path, ebsif):
    """C-04 (user trial): `ebsif interpreter --write` replaces a file with other content only with --overwrite."""
    root = prefix.install(MINE, files=["interpreter/python"])
    path, command = tmp_path / "bin/python", ["interpreter", MINE, "--write", "bin/python"]
    assert main(command) == main(command) == 0
    assert path.stat().st_mode & 0o111
    written = path.read_text()
    assert written.startswith("#!/bin/bash -p\n# Python of ") and f'\nexec {root}/interpreter/python "$@"\n' in written
    for text in (written + "# mine\n", "mine\n"):
        path.write_text(text)
        assert "ebsif: bin/python exists already, with different content: " in ebsif(*command, status=3).err
        assert path.read_text() == text
    assert main([*command, "--overwrite"]) == 0
    assert path.read_text() == written
    # what a link leads to, as into an installation, isn't meant
    path.unlink()
    path.symlink_to(root / "interpreter/python")
    assert main([*command, "--overwrite"]) == 0
    assert (path.read_text(), (root / "interpreter/python").read_text()) == (written, "")


def test_an_alias_of_the_catalog(prefix, monkeypatch, ebsif):
    """The alias of a record names its installed module, as `module load` knows it, too."""
    root = prefix.install("PyTorch/2.13.0-cpu", text="", versionsuffix="-cpu")
    name = "PyTorch/2.13.0-cpu"
    record = Mock(module=name, module_or_version=name, aliases=["2.13.0-demo"], archived=False, label=None, date=None)
    record.version = "2.13.0"
    record.name = "PyTorch"
    monkeypatch.setattr(Names, "containers", [record])
    for text in ("PyTorch/2.13.0-demo", "pytorch/2.13.0-DEMO"):
        assert Names().installation(text).root == root
    assert f"  {root}\n" in ebsif("remove", "PyTorch/2.13.0-demo", "--dry-run").out
    record.module = record.module_or_version = "PyTorch/2.14.0-cpu"
    with pytest.raises(EbsifError, match=r"PyTorch/2.14.0-cpu is in the catalog, but not installed here"):
        Names().installation("PyTorch/2.13.0-demo")


def test_a_module_that_was_removed_while_it_was_loaded(prefix, monkeypatch, tmp_path, ebsif):
    """E-06: modules tools can't unload it, so it counts as not loaded, and doctor says what helps."""
    root = prefix.install(MINE)
    monkeypatch.setenv("CONTAINERROOT", str(root))
    monkeypatch.setenv("EBSIF_LOADED_MODULE", MINE)
    assert places.loaded().module == MINE
    assert doctor.find_removed_module() == []
    # the runtime refuses to bind what isn't there
    software = root / "user-software.squashfs"
    monkeypatch.setenv("EBSIF_MOUNTED_USER_SOFTWARE", str(software))
    software.unlink(missing_ok=True)
    (finding,) = doctor.find_removed_module()
    assert finding.text.startswith(f"{software} was removed after {MINE} was loaded, so no container starts: put it ")
    software.touch()
    assert doctor.find_removed_module() == []
    shutil.rmtree(root)
    assert places.loaded() is None
    assert "no container given: load a container module first" in ebsif("show", status=2).err
    (finding,) = doctor.find_removed_module()
    assert finding.text == f"{MINE} was removed while it was loaded: open a new shell"
    site_packages = tmp_path / ".local/lib/python3.11/site-packages/mine-1.0.dist-info"
    site_packages.mkdir(parents=True)
    (site_packages / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    assert "mine 1.0" in doctor.find_user_packages()[0].text


def test_installing_without_eb_on_the_path(prefix, ebsif, monkeypatch):
    """E-08: the printed command works without the site's EasyBuild module, with the eb that ebsif itself runs."""
    prefix.install(MINE, text=EASYCONFIG)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    said = ebsif("lock", "mine", "--format", "eb", "--date", "20261123", "-o", ".")
    *words, path = shlex.split(said.err.removeprefix("install it with: "))
    assert path == said.out.strip()
    assert "This is EasyBuild" in subprocess.check_output([*words, "--version"], text=True)
