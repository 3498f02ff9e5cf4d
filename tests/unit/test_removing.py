"""`ebsif remove`: what goes with a module, what stays, and what is refused. No image is needed."""

import os
from argparse import Namespace
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container import modulefile
from ebsif.cli import main
from ebsif.installed import places, removal
from ebsif.installed.names import Names
from prefixes import BASE, EASYCONFIG, LATER, MINE, OTHER


@pytest.fixture
def prefix(eb_prefix):
    """The prefix of EasyBuild, in place of that of the tests that install."""
    return eb_prefix


def names():
    """The names in the example catalogue."""
    return Names(Namespace(site=None, catalogue=[]))


def test_removing_a_module_that_environments_may_use(prefix, capsys):
    """User trial, E-06: before anybody confirms, it says what stops working; not of a module without Python."""
    said = "environments of make-venv and files of `ebsif python --write` that were made with it stop working"
    root = prefix.install(MINE)
    assert main(["remove", MINE, "-n"]) == 0
    assert said not in capsys.readouterr().err
    (root / "bin").mkdir()
    (root / "bin/make-venv").touch()
    for option in ("-n", "--yes"):
        assert main(["remove", MINE, option]) == 0
        assert said in capsys.readouterr().err


def test_remove_a_module_that_was_installed_from_its_own_copy(prefix):
    """E-06: as doctor advises (eb --rebuild INSTALLATION/easybuild/...): the copy goes with the installation."""
    root = prefix.software / MINE
    prefix.install(MINE, easyconfig=str(root / "easybuild" / f"{MINE.replace('/', '-')}.eb"))
    assert main(["remove", MINE, "--yes"]) == 0
    assert not root.exists()


def test_removing_while_another_version_is_installed(prefix, monkeypatch):
    """I-01: what an installation adds to .modulerc after the removal was planned stays, also if it is just doing so."""
    prefix.install(MINE)
    path = prefix.modules / "PyTorch/.modulerc.lua"
    path.write_text(f'module_version("{MINE}", "mine")\n')
    plan = removal.plan(places.known(places.directories_of_modules())[0])
    assert plan.lines == [path]
    lock, other = modulefile.modulerc_lock, 'module_version("PyTorch/2", "two")\n'

    def after_another(name):
        path.write_text(path.read_text() + other)
        return lock(name)

    monkeypatch.setattr(modulefile, "modulerc_lock", after_another)
    removal.remove(plan)
    assert path.read_text() == other


def test_remove_deletes_the_whole_module_and_nothing_else(prefix, tmp_path, capsys, monkeypatch):
    """E-06: module file, links to it, installation, user software set aside, more names, easyconfig, stale locks."""
    easyconfig, lock, backup = (tmp_path / f"mine{suffix}" for suffix in (".eb", ".lock.json", ".squashfs"))
    text = EASYCONFIG.split("requirements = ")[0] + "requirements = {'lock': 'mine.lock.json'}\n"
    easyconfig.write_text(text)
    lock.write_text("{}")
    # of the person: the easyconfig doesn't name it
    backup.write_text("")
    # J-02: kernels go with their module
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(prefix.modules.parent / "jupyter"))
    more = {"packages": ["ipykernel==7.0"]}
    root = prefix.install(MINE, text=text, easyconfig=str(easyconfig), **more)
    other = prefix.install(f"{MINE}2", **more)
    for module, folder in ((MINE, root), (f"{MINE}2", other)):
        (folder / "interpreter").mkdir()
        (folder / "interpreter/python").touch()
        assert main(["kernel", "install", module]) == 0
    kernel, other_kernel = sorted((prefix.modules.parent / "jupyter/kernels").iterdir())
    # as EasyBuild archives easyconfigs
    repository = prefix.software.parent / "ebfiles_repo/PyTorch"
    repository.mkdir(parents=True)
    archived, changed = (repository / f"{name.replace('/', '-')}.eb" for name in (MINE, f"{MINE}2"))
    archived.write_text(f"# Built with EasyBuild\n{text}\n# Build statistics\nbuildstats = [{{}}]\n")
    changed.write_text("# of another installation\n")
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
    # no terminal: the message says so, instead of how to use the command
    assert main(["remove", MINE]) == 3
    shown = capsys.readouterr().err
    assert shown.endswith("ebsif: nothing was removed, because there is no terminal to ask on: add --yes to remove all "
                          "this without confirmation\n") and "usage" not in shown
    assert main(["remove", MINE, "-n"]) == 0
    shown, said = capsys.readouterr()
    assert all(f"  {path}" in shown for path in (root, link, versions, easyconfig, lock, kernel, archived, *aside))
    assert f"kept: {backup}: mine.eb doesn't name it" in said
    assert root.exists()
    assert main(["remove", MINE, "--yes"]) == 0
    assert not [path for path in (root, easyconfig, archived, lock, prefix.modules / f"{MINE}.lua", link, kernel,
                                  *aside) if os.path.lexists(path)]
    assert other.exists() and other_kernel.exists() and all(path.exists() for path in (backup, *kept))
    assert versions.read_text() == f'module_version("{MINE}2", "mine2")\n'
    assert sorted(path.name for path in root.parent.iterdir()) == sorted([other.name, *(path.name for path in kept)])
    assert main(["remove", f"{MINE}2", "--yes"]) == 0
    assert changed.exists()
    assert not (prefix.modules / "PyTorch").exists()


def test_removing_earlier_extensions(prefix, capsys):
    """V-07: --older keeps the newest one of a name, and others; it says if there is none."""
    roots = [prefix.install(module) for module in (MINE, LATER, f"{LATER}.2", OTHER)]
    assert main(["remove", "mine", "--older", "--yes"]) == 0
    assert [root.exists() for root in roots] == [False, False, True, True]
    for name, expected in (("mine", 0), (roots[2], 0)):
        assert main(["remove", str(name), "--older", "--yes"]) == expected
        assert "there is no earlier one" in capsys.readouterr().err
    prefix.install("Tool/1.0-x", text="")
    assert main(["remove", "Tool", "--older", "--yes"]) == 3
    assert "Tool/1.0-x is no extension" in capsys.readouterr().err


def test_removing_several_modules(prefix, capsys):
    """E-06, I-09: one of them may need the image of another one; if one is refused, all stay."""
    base = prefix.install("Tool/1.0-x", text="")
    user = prefix.install("Tool/1.0-x-mine-20261121", image={
        "file": "b.sif", "kind": "reference", "sha256": "0", "resolved": str(base / "a.sif")})
    other = prefix.install(OTHER)
    lock = prefix.software / ".locks" / (str(other).replace("/", "_") + ".lock")
    lock.mkdir(parents=True)
    command = ["remove", "Tool/1.0-x", "mine", "--yes"]
    assert main([*command, "other"]) == 3
    assert base.exists() and user.exists() and other.exists()
    assert main(["remove", "Tool/1.0-x", "--yes"]) == 3
    assert "has the image that these modules use: Tool/1.0-x-mine-20261121" in capsys.readouterr().err
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
    # the module file goes first, and comes back if the installation can't be removed
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, new: (tmp_path / "none").stat() if path == root else
                        rename(path, new))
    with pytest.raises(removal.RemovalError, match="none can't be removed: .*; nothing was removed"):
        removal.remove(planned)
    assert root.exists() and (prefix.modules / f"{MINE}.lua").exists() and easyconfig.exists()


def test_files_of_other_accounts_are_not_removed(prefix, monkeypatch):
    """E-06: they are named before anything is changed."""
    root = prefix.install(MINE)
    monkeypatch.setattr(os, "getuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(removal.RemovalError, match="belongs to .*; nothing was removed"):
        removal.plan(places.with_module_file(names().installation(MINE)))
    # nobody is told to remove others first
    prefix.install(OTHER, image={"file": "b.sif", "sha256": "0", "resolved": str(root / "a.sif")})
    with pytest.raises(removal.RemovalError, match="belongs to .*; nothing was removed"):
        removal.plan(places.with_module_file(names().installation(MINE)))
    assert root.exists()


def test_the_newest_that_is_left(prefix):
    """V-07: after the newest extension is removed, the name without date means the one before it."""
    roots = [prefix.install(module) for module in (MINE, LATER)]
    path = prefix.modules / "PyTorch/.modulerc.lua"
    line = f'module_version("{{}}", "{BASE.partition("/")[2]}-mine")\n'
    path.write_text(line.format(LATER))
    assert names().module("mine") == f"{BASE}-mine"
    assert main(["remove", "mine", "--yes"]) == 0
    assert path.read_text() == line.format(MINE)
    assert [root.exists() for root in roots] == [True, False]
    assert names().installation(f"{BASE}-mine").root == roots[0]
    assert main(["remove", "mine", "--yes"]) == 0
    assert not path.exists()
