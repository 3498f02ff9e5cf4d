"""What is installed: found below prefixes and module directories, with the state of each part. No image is needed."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ebsif.files
import pytest
from easybuild.easyblocks.generic.container import usersoftware
from easybuild.easyblocks.generic.container.usersoftware import UserSoftware
from easybuild.framework.easyconfig.easyconfig import EasyConfig
from ebsif.catalog.records import Archive
from ebsif.catalog.settings import read_settings
from ebsif.cli import main
from ebsif.errors import EbsifError, UsageError
from ebsif.files import owner
from ebsif.installed import imagestate, places, removal, report, search, softwarestate
from ebsif.installed.health import files
from ebsif.installed.health.machine import Machine
from ebsif.installed.health.subject import Subject
from ebsif.installed.places import Installation
from ebsif.installed.softwarestate import SoftwareState
from ebsif.render import easyconfig
from prefixes import BASE, EASYCONFIG, LATER, MINE, OTHER


def found(*named):
    """The modules in directories, and the texts of the problems."""
    installations, problems = search.installations([str(one) for one in named])
    return [one.module for one in installations], [f"{one.subject}|{one.path}|{one.text}" for one in problems]


def unreadable(path):
    """The problem of a place that others don't let us read, as `found` returns it."""
    return f"|{path}|can't be read, so what is installed there is unknown: Permission denied"


def test_every_kind_of_directory(eb_prefix):
    """I-01: by default EasyBuild's prefix; a prefix, its software or modules, one software or installation."""
    root = eb_prefix.install(MINE)
    eb_prefix.install("Tool/.1.0-x", lua=False)
    (eb_prefix.modules / f"{MINE}.lua").unlink()
    # what reinstallations leave is none
    shutil.copytree(root, root.with_name(f"{root.name}.replaced"))
    both = [MINE, "Tool/.1.0-x"], []
    assert found() == found(eb_prefix.software.parent) == found(f"{eb_prefix.software}:{eb_prefix.modules}") == both
    assert found(eb_prefix.modules) == (["Tool/.1.0-x"], [])
    assert found(root) == found(root.parent) == found(root.parent, root) == ([MINE], [])
    (eb_prefix.modules / "large").write_bytes(bytes(5_000_000))
    os.mkfifo(eb_prefix.modules / "pipe")
    assert found(eb_prefix.modules) == (["Tool/.1.0-x"], [])
    for text, named in (("nowhere", "nowhere"), ("", "''"), (":", ":")):
        with pytest.raises(UsageError, match=f"^{named} is not a directory: give a prefix"):
            found(text)
    # modules tools skip such entries of MODULEPATH
    skipped = [f"|{path}|skipped: there is no such directory" for path in ("/nowhere", "/none")]
    assert found(f"/nowhere::{root}:/none") == ([MINE], skipped)


def test_what_can_not_be_examined(eb_prefix, monkeypatch):
    """I-01: damaged records, modules without an installation or of another origin, unreadable directories are named."""
    broken, bare, gone, foreign = (eb_prefix.install(one) for one in (MINE, LATER, OTHER, BASE))
    lock = broken / "share/ebsif/lock.json"
    (bare / "share/ebsif/lock.json").unlink()
    shutil.rmtree(gone)
    shutil.rmtree(foreign / "share/ebsif")
    for text in (
        *("{", "[]", "{}", '{"image": {"file": 1}}'),
        '{"image": {"file": "a"}, "venv_packages": ["a"]}',
        '{"image": {"file": "a", "size": "x"}}',
        '{"image": {"file": "a"}, "system_packages": {"deb": [1]}}',
        '{"image": {"file": "a"}, "module": []}',
    ):
        lock.write_text(text)
        (one,), problems = search.installations()
        assert (one.module, str(lock) in one.damage) == (MINE, True), text
    texts = {one.subject: f"{one.level}: {one.text}" for one in problems}
    assert f"error: its installation has no {bare}/share/ebsif/lock.json: install it again" in texts[LATER]
    assert f"error: its installation {gone} is gone: remove the module file, or install it again" in texts[OTHER]
    assert texts[BASE].startswith("note: not installed with ebsif")
    with closed(eb_prefix.software / "PyTorch"):
        (one,) = search.installations([str(eb_prefix.software)])[1]
        assert (one.level, f"|{one.path}|{one.text}") == ("warning", unreadable(eb_prefix.software / "PyTorch"))
        # other accounts may close theirs
        monkeypatch.setattr(search.os, "getuid", lambda: os.geteuid() + 1)
        assert {one.level for one in search.installations([str(eb_prefix.software)])[1]} == {"note"}


@contextlib.contextmanager
def closed(path):
    """Let nobody read a file or directory for a while."""
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        yield
    finally:
        path.chmod(mode)


@pytest.mark.parametrize(
    ("part", "named", "is_found"),
    [
        # found by its module or its directory; nobody is told to remove its module
        (f"software/{MINE}", f"software/{MINE}", False),
        ("software/PyTorch", f"software/{MINE}", False),
        (f"software/{MINE}/share", f"software/{MINE}/share", False),
        # a module that only its owner may load
        (f"modules/all/{MINE}.lua", f"modules/all/{MINE}.lua", False),
        # there may be more modules, also in a new prefix (umask 027) on MODULEPATH
        ("modules/all/Closed", "modules/all/Closed", True),
        ("other", "other/modules", True),
    ],
)
def test_what_others_do_not_let_us_read(eb_prefix, monkeypatch, ebsif, part, named, is_found):
    """I-01: it is named once, by whatever way it is found, and what is elsewhere is found."""
    root = eb_prefix.install(MINE)
    top, modules = eb_prefix.software.parent, [MINE] if is_found else []
    for folder in (eb_prefix.modules / "Closed", top / "other/modules"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("MODULEPATH", f"{top}/other/modules:{top}/gone")
    with closed(top / part):
        # elsewhere, the installation is found, or its directory named
        ways = [(eb_prefix.modules,)] if part.endswith(("/PyTorch", ".lua")) else [()]
        if part == f"software/{MINE}":
            ways += [(eb_prefix.modules,), (eb_prefix.software,), (eb_prefix.modules, eb_prefix.software, root.parent)]
        for way in ways:
            assert found(*way) == (modules, [unreadable(top / named)])
        if is_found:
            assert [one.module for one in places.known([top / named, eb_prefix.modules], MINE)] == modules
            said = " ".join(ebsif("remove", MINE, "--dry-run").err.split())
            assert f"{top / named} can't be read: if a module there uses the image" in said


def test_a_record_that_may_not_be_read(eb_prefix, monkeypatch):
    """I-01: the message names its path once."""
    root = eb_prefix.install(MINE)
    lock = root / "share/ebsif/lock.json"
    lock.chmod(0)
    one = search.installations([str(root)])[0][0]
    assert one.damage == f"{lock}: can't be read: Permission denied"
    # nobody is told to install anything again
    (finding,) = files.state(Subject(one, Machine()))
    assert finding.text == f"{one.damage}: run `chmod u+rX {lock}`"
    monkeypatch.setattr(search.os, "getuid", lambda: os.geteuid() + 1)
    ask = f"ask {owner(os.geteuid())}, who owns {lock}, for permission"
    assert report.examine(one, False).findings[0].text == f"{one.damage}: {ask}"
    with pytest.raises(EbsifError, match=f"can't be found: {ask}, and then remove it"):
        removal.plan(one)


@pytest.mark.parametrize("name", [MINE, "Core/PyTorch/x-1"])
def test_module_files_of_named_installations(eb_prefix, monkeypatch, name):
    """I-01: found in the prefix of the installation, also if a naming scheme names them otherwise; read once."""
    roots = [eb_prefix.install(one) for one in (MINE, OTHER)]
    (eb_prefix.modules / f"{MINE}.lua").unlink()
    eb_prefix.modules.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
    eb_prefix.write_module(name, roots[0])
    (eb_prefix.modules / f"{OTHER}.lua").rename(eb_prefix.modules / "other.lua")
    monkeypatch.setenv("MODULEPATH", "")
    monkeypatch.setattr("ebsif.eb.framework.prefix", lambda: (eb_prefix.software, eb_prefix.modules.parent / "none"))
    walked, below = [], places.paths_below
    monkeypatch.setattr(places, "paths_below", lambda path, closed: walked.append(path) or below(path, closed))
    found = places.with_module_files([places.of_directory(root) for root in roots])
    assert [one.module for one in found] == [name, "other"]
    assert walked == [eb_prefix.modules]
    # not deep enough for a prefix
    shallow = Installation(Path("/x"), "x/1")
    assert places.with_module_files([shallow]) == [shallow]


def record(root, **changes):
    """Change the record of an installation; None removes a key."""
    path = root / "share/ebsif/lock.json"
    changed = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in changed.items() if value is not None}))


def image(root, **changes):
    """The record of the image as it is, like a new installation."""
    status = (root / "a.sif").stat()
    digest = hashlib.sha256((root / "a.sif").read_bytes()).hexdigest()
    as_it_is = {"file": "a.sif", "sha256": digest, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    return {**as_it_is, "kind": "own", **changes}


def copy_of(root, module):
    """The copy of the easyconfig in an installation."""
    return root / f"easybuild/{module.replace('/', '-')}.eb"


def state(root, **changes):
    """The state of the image of an installation whose record is changed, without and with reading it."""
    before = json.loads((root / "share/ebsif/lock.json").read_text())["image"]
    record(root, image={key: value for key, value in {**before, **changes}.items() if value is not None})
    one = search.installations([str(root)])[0][0]
    return tuple(imagestate.examine(one, verify) for verify in (False, True))


def test_altered_images(eb_prefix):
    """I-03: truncated, replaced, written to, gone: by size and time; with --verify also where these are the same."""
    root = eb_prefix.install(MINE)
    path = root / "a.sif"
    # of an earlier version of ebsif
    assert [one.state for one in state(root, sha256=None)] == ["size not recorded"] * 2
    recorded = image(root)
    quick, verified = state(root, **recorded)
    assert (quick.kind, quick.path, quick.problem) == ("own", path, None)
    assert (quick.state, verified.state) == ("as recorded", "verified")
    path.write_bytes(bytes(5000))
    quick, verified = state(root)
    assert (quick.state, verified.state, quick.is_bad) == ("time changed", "verified", False)
    assert "`ebsif installed --verify` compares its content" in quick.problem
    path.write_bytes(b"x" + bytes(4999))
    os.utime(path, ns=(recorded["mtime_ns"], recorded["mtime_ns"]))
    quick, verified = state(root)
    assert (quick.state, verified.state) == ("as recorded", "changed")
    remedy = f"install the module again with `eb --rebuild {copy_of(root, MINE)}`"
    assert f"was altered after the installation: its SHA256 is {image(root)['sha256']}" in verified.problem
    assert verified.problem.endswith(f": {remedy}")
    for size, word in ((400, "truncated"), (6000, "replaced")):
        path.write_bytes(bytes(size))
        for one in state(root):
            assert (one.state, one.is_bad, one.size) == ("changed", True, size)
            assert f"was {word} after the installation" in one.problem
    path.unlink()
    gone = ("gone", None, f"the image {path} is gone: {remedy}")
    assert [(one.state, one.path, one.problem) for one in state(root)] == [gone] * 2


def test_images_of_others(eb_prefix, tmp_path):
    """I-03: a reference names whose image is gone or changed, a central image where it should be."""
    root = eb_prefix.install(MINE)
    (root / "a.sif").rename(tmp_path / "a.sif")
    shared = {"kind": "reference", "origin": BASE, "resolved": str(tmp_path / "a.sif"), "size": 5000}
    assert state(root, **shared)[0].state == "as recorded"
    copy = copy_of(root, MINE)
    remedy = f": install {BASE} again, which owns the image, and then this module with `eb --rebuild {copy}`"
    assert state(root, size=6000)[0].problem.endswith(remedy)
    (tmp_path / "a.sif").unlink()
    assert state(root)[0].problem.endswith(f" is gone{remedy}")
    assert report.state_of(search.installations()[0][0], {}) == ["image gone"]
    # where that module is still installed, one command does both, or only the others have to be
    base = eb_prefix.install(BASE)
    (base / "a.sif").unlink()
    both = f"and this module again with `eb --rebuild {copy_of(base, BASE)} {copy}`"
    assert both in state(root, resolved=str(base / "a.sif"))[0].problem
    (base / "a.sif").write_bytes(bytes(400))
    state(base, size=400, sha256="1" * 64, mtime_ns=(base / "a.sif").stat().st_mtime_ns)
    for one in state(root, sha256="0" * 64):
        assert one.state == "changed" and f"{base}/a.sif is another one since {BASE} was installed again" in one.problem
        assert one.problem.endswith(f"install this module again, too, with `eb --rebuild {copy}`")
    central = state(root, kind="central", origin=None)[0].problem
    assert "is the file system mounted? If the image was removed, put it back. If it was moved, correct " in central


def test_where_the_module_looks(eb_prefix, tmp_path, monkeypatch):
    """I-03: the image of a module without a copy is that of the first of the site's directories, as for the module."""
    central = "image = 'central'\nimage_root = '${ROOT:-/none}'\nimage_dirs = ['new', 'old']\n"
    root = eb_prefix.install(MINE, text=EASYCONFIG.replace("requirements", f"{central}requirements"))
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        shutil.copy(root / "a.sif", tmp_path / name / "a.sif")
    monkeypatch.setenv("ROOT", str(tmp_path))
    # found in the second one when it was installed; a copy beside it is none that the module uses
    state(root, kind="central", size=5000, source=str(tmp_path / "old/a.sif"), resolved=str(tmp_path / "old/a.sif"))
    one = search.installations([str(root)])[0][0]
    assert imagestate.path_of(one) == tmp_path / "new/a.sif"
    (tmp_path / "new/a.sif").unlink()
    assert imagestate.path_of(one) == tmp_path / "old/a.sif"
    (tmp_path / "old/a.sif").unlink()
    assert imagestate.path_of(one) is None
    # by several threads at once, as doctor does, although EasyBuild isn't made for that
    parse, together = EasyConfig.parse, []

    def parse_alone(easyconfig):
        assert not together
        together.append(easyconfig)
        time.sleep(0.05)
        together.clear()
        return parse(easyconfig)

    monkeypatch.setattr(EasyConfig, "parse", parse_alone)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(imagestate.path_of, [one] * 4)) == [None] * 4
    # an own copy may be replaced by the site's
    shutil.move(root / "a.sif", tmp_path / "new/a.sif")
    state(root, kind="own")
    assert imagestate.path_of(search.installations([str(root)])[0][0]) == tmp_path / "new/a.sif"


def test_an_image_that_may_not_be_read(eb_prefix, monkeypatch):
    """I-03: whoever can give permission is named; nobody is told to install anything again."""
    root = eb_prefix.install(MINE)
    path = root / "a.sif"
    state(root, kind="own")
    monkeypatch.setattr(imagestate.os, "access", lambda one, mode: one != path)
    one, _ = state(root)
    assert (one.state, one.problem) == ("unreadable", f"you can't read the image {path}: run `chmod u+rX {path}`")
    monkeypatch.setattr(imagestate.os, "getuid", lambda: os.geteuid() + 1)
    ask = f"ask {owner(os.geteuid())}, who owns "
    assert state(root)[0].problem == f"you can't read the image {path}: {ask}{path}, for permission"
    # in a directory that can't be searched nothing seems to exist
    for one in (imagestate, ebsif.files):
        monkeypatch.setattr(one, "is_there", lambda one: one != path and one.exists())
    monkeypatch.setattr(imagestate, "is_closed", lambda one: one == path)
    assert state(root)[0].problem.endswith(f"{ask}{root}, for permission")


def test_an_image_is_read_once(tmp_path, monkeypatch):
    """I-03: however many modules have it, by whatever path, and however many of them are examined together."""
    image = tmp_path / "a.sif"
    image.write_bytes(b"image")
    os.link(image, tmp_path / "b.sif")
    read, together = [], threading.Barrier(2)
    monkeypatch.setattr(imagestate, "sha256", lambda path: read.append(path) or time.sleep(0.1) or "digest")

    def digest(path):
        together.wait(10)
        return imagestate.digest(path)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(digest, [image, tmp_path / "b.sif"])) == ["digest"] * 2
    assert len(read) == 1


@pytest.fixture
def family(eb_prefix):
    """A base, and two extensions that refer to its image; all as they were installed."""
    roots = {name: eb_prefix.install(name, text="" if name == BASE else EASYCONFIG) for name in (BASE, MINE, OTHER)}
    base = roots[BASE]
    record(base, image=image(base))
    for root in (roots[MINE], roots[OTHER]):
        (root / "a.sif").unlink()
        record(root, image=image(base, kind="reference", origin=BASE, resolved=str(base / "a.sif")))
    for root in roots.values():
        record(root, user_software=UserSoftware(str(root)).fingerprints({}))
    return roots


def test_a_base_that_was_installed_again_with_its_image(family):
    """I-03: its extensions have the image that they know, although the copy is newer; another image is reported."""
    base, extension = family[BASE], family[MINE]
    os.utime(base / "a.sif", (1, 1))
    assert state(extension)[0].state == "time changed"
    record(base, image=image(base))
    assert state(extension)[0].state == "as recorded"
    (base / "a.sif").write_bytes(b"x" + bytes(4999))
    record(base, image=image(base))
    assert [one.state for one in state(extension)] == ["changed"] * 2


def installed(capsys, *arguments):
    """The exit status of `ebsif installed`, and what it prints; the summary comes last."""
    status = main(["installed", *arguments])
    said = capsys.readouterr()
    return status, said.out if "--json" in arguments else said.out + said.err


def test_installations_by_name(eb_prefix, monkeypatch, capsys, ebsif):
    """E-09, I-01: modules by their names, which say nothing of what else the catalog has; wrong names are errors."""
    monkeypatch.setenv("MODULEPATH", str(eb_prefix.modules))
    roots = [eb_prefix.install(module) for module in (MINE, "Tool/1.0-x")]
    for name in (MINE, "Tool", roots[0]):
        status, text = installed(capsys, "--site", "local", str(name))
        assert (status, text.splitlines()[0]) == (0, "Tool/1.0-x" if name == "Tool" else MINE)
        assert text.splitlines()[-1].startswith("1 installation, ")
        assert "installed:" not in text
    assert installed(capsys, MINE, str(roots[1]))[1].splitlines()[-1].startswith("2 installations, ")
    for command in (["installed"], ["installed", "--audit"], ["doctor", "--installed"]):
        assert "no container module 'Toool' is installed here" in ebsif(*command, "Toool", status=3).err
        assert "./Tool is not a directory: give a prefix of EasyBuild" in ebsif(*command, "./Tool", status=2).err


def test_the_list_of_installations(eb_prefix, family, capsys):
    """I-01: modules with size, image, user software and users of the image; a shared image counts once; 80 columns."""
    status, text = installed(capsys)
    assert status == 0
    assert [line for line in text.splitlines() if line.startswith("PyTorch/")] == [OTHER, MINE, BASE]
    assert "own image (as recorded, 5.0 kB); user software not packed\n" in text
    assert f"its image is used by {MINE}, {OTHER}" in " ".join(text.split())
    assert f"image of {BASE} (as recorded, 5.0 kB);" in " ".join(text.split())
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.splitlines()[-1].startswith("3 installations, ")
    everything = json.loads(installed(capsys, "--json", "--verify", str(eb_prefix.software))[1])
    referring, linked, first = everything["installations"]
    assert first["image"]["used_by"] == [MINE, OTHER]
    assert [one["image"]["state"] for one in everything["installations"]] == ["verified"] * 3
    assert (linked["base"], linked["user_software"]) == (BASE, {"state": "not packed", "changed": False})
    assert everything["size"] == sum(one["size"] for one in (first, linked, referring))
    assert everything["findings"] == []


def test_no_installations(eb_prefix, monkeypatch, ebsif):
    """I-01: where nothing is installed, nothing is said to be right."""
    monkeypatch.setattr("ebsif.installed.health.machine.examine", lambda *_: ())
    assert ebsif("installed").err.endswith("\n0 installations, 0.0 kB in all\n")
    assert ebsif("doctor", "--installed").err.endswith("no modules found\n")


def test_what_is_wrong_with_installations(eb_prefix, family, capsys):
    """I-01, I-03: each problem is a finding of its module and makes the exit status 1; changed packages are none."""
    eb_prefix.add(family[MINE], "pillow", "10.2.0")
    status, text = installed(capsys)
    assert status == 0 and "user software not packed, changed" in text and ": nothing is wrong" in text
    added = "note: its user software was changed after the installation: pillow 10.2.0 added"
    assert added in " ".join(text.split())
    (family[BASE] / "a.sif").write_bytes(bytes(400))
    shutil.rmtree(family[MINE] / "user-software")
    (family[OTHER] / "share/ebsif/lock.json").write_text("{")
    status, text = installed(capsys)
    assert status == 1
    text = " ".join(text.split())
    for expected in (
        *("user software gone", "error: its user software is gone", "was truncated after the installation"),
        *(f"error: {family[OTHER]}/share/ebsif/lock.json:", ": 4 errors"),
        f": install the module again with `eb --rebuild {family[OTHER]}/easybuild/",
    ):
        assert expected in text
    assert main(["installed", "--has", "a b"]) == 3
    assert main(["installed", "--has", "a", "--verify"]) == 2
    assert main(["installed", "./nowhere"]) == 2


def test_who_has_a_package(eb_prefix, family, capsys):
    """I-02: exactly the modules that have it in image or user software, as they are now; unknown ones are named."""
    for root in family.values():
        record(root, system_packages={})
    other = {"conda_packages": {"/opt/c": ["zlib==1.2.13"]}, "system_packages": {"deb": ["zlib==1:1.2.11-0.2+deb12u1"]}}
    record(family[BASE], image_packages=["Pillow==10.2.0", "numpy==2.0"], **other)
    eb_prefix.add(family[MINE], "pillow", "10.1.0")
    eb_prefix.add(family[OTHER], "pillow", "10.3.0")
    everything = "1 module with pillow>=10.3\n"
    assert installed(capsys, "--has", "pillow>=10.3") == (0, f"{OTHER}\n  pillow 10.3.0 (user software)\n{everything}")
    status, text = installed(capsys, "--has", "pillow<10.3", "--has", "numpy", "--json")
    assert status == 0
    assert {one["module"]: one["has"][0] for one in json.loads(text)["installations"]} == {
        BASE: {"package": "Pillow", "place": "image", "version": "10.2.0"},
        MINE: {"package": "pillow", "place": "user software", "version": "10.1.0"},
    }
    shutil.rmtree(family[MINE] / "user-software/venv/pytorch/lib/python3.11/site-packages/pillow-10.1.0.dist-info")
    said = f"{BASE}\n  zlib 1.2.11 (image, deb), zlib 1.2.13 (image, /opt/c)\n1 module with zlib<1.3\n"
    assert installed(capsys, "--has", "zlib<1.3") == (0, said)
    assert "zlib 1.2.13 (image, /opt/c)\n" in installed(capsys, "--has", "zlib>1.2.11")[1]
    record(family[OTHER], system_packages=None)
    status, text = installed(capsys, "--has", "pillow<10.3", "--strict")
    assert status == 1
    assert text.startswith(f"{BASE}\n  Pillow 10.2.0 (image)\nwarning: {OTHER}:")
    assert text.endswith("1 module with pillow<10.3: 1 warning\n")


def test_whose_image_it_is(eb_prefix, family, capsys):
    """I-01: a reference uses the image of one module; where that was removed, the image is gone."""
    # hidden after its installation, or named otherwise by the naming scheme
    (eb_prefix.modules / f"{BASE}.lua").rename(eb_prefix.modules / "base.lua")

    def used():
        everything = json.loads(installed(capsys, "--json")[1])["installations"]
        images = {one["module"]: one["image"] for one in everything}
        return {module: (one["origin"], one["state"], one["used_by"]) for module, one in images.items()}

    theirs = (BASE, "as recorded", [])
    assert used() == {"base": (None, "as recorded", [MINE, OTHER]), MINE: theirs, OTHER: theirs}
    shutil.rmtree(family[BASE])
    (eb_prefix.modules / "base.lua").unlink()
    assert used() == {MINE: (BASE, "gone", []), OTHER: (BASE, "gone", [])}


def test_unpacking_and_reading(eb_prefix, family, monkeypatch):
    """I-01: a SquashFS file with the recorded size and time isn't read, unless --verify is given."""
    root = family[MINE]
    again = softwarestate.change(search.installations([str(root)])[0][0], SoftwareState("not packed", True))
    assert again.text == "its user software was changed after the installation, but has the same packages"
    shutil.rmtree(root / "user-software")
    packed = UserSoftware(str(root))
    (root / "user-software.squashfs").write_bytes(b"packed")
    record(root, user_software=packed.fingerprints({}), user_software_file=packed.file_status())
    one = search.installations([str(root)])[0][0]
    with monkeypatch.context() as unread:
        unread.setattr(usersoftware, "compute_checksum", None)
        assert softwarestate.examine(one) == SoftwareState("packed", False)
        assert softwarestate.packages(one, softwarestate.examine(one)) == {"einops": "0.8.1"}
        with pytest.raises(TypeError):
            softwarestate.examine(one, verify=True)
    # I-03: nobody has packed another one
    status = (root / "user-software.squashfs").stat()
    (root / "user-software.squashfs").write_bytes(b"PACKED")
    os.utime(root / "user-software.squashfs", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert softwarestate.change(one, softwarestate.examine(one)) is None
    damaged = softwarestate.change(one, softwarestate.examine(one, verify=True))
    assert damaged.level == "error" and "user-software.squashfs is damaged" in damaged.text
    subject = Subject(one, Machine(), verify=True)
    assert [(found.level, found.text) for found in files.state(subject)] == [("error", damaged.text)]
    (root / "user-software.squashfs").write_bytes(b"changed")
    assert softwarestate.examine(one) == SoftwareState("packed", True)
    unreadable = softwarestate.change(one, softwarestate.examine(one))
    assert unreadable.level == "error" and "its user software can't be read" in unreadable.text
    # another one, which can be read; these tests need no mksquashfs
    eb_prefix.add(root, "einops", "0.8.2")
    content, read = root.with_name("content"), softwarestate.venv.packages
    (root / "user-software").rename(content)
    here = {root / "user-software.squashfs": content}
    monkeypatch.setattr(softwarestate.venv, "packages", lambda path: read(here.get(path, path)))
    for verify in (False, True):
        repacked = softwarestate.change(one, softwarestate.examine(one, verify))
        assert repacked.level == "note" and repacked.text.endswith("installation: einops 0.8.2 instead of 0.8.1")
    (root / "user-software").mkdir()
    assert softwarestate.examine(one).state == "packed and not packed"
    record(root, user_software=None)
    assert softwarestate.examine(one).is_changed is None


def test_installations_and_catalog(eb_prefix, capsys):
    """I-01: stale easyconfigs, records that are gone, archived and unknown bases, and what was never installed."""
    settings = read_settings("local")
    first, second, *_ = settings.containers(settings.site())
    text = easyconfig.render(first)
    root = eb_prefix.install(first.module, text=text)
    eb_prefix.install(f"{second.module}-mine-20261121")
    eb_prefix.install(f"{second.module}-mine-20261121-more-20261122")
    eb_prefix.install("Tool/1.0-x", text=text)
    eb_prefix.install("Tool/2.0-x", text="name = 'Tool'")
    arguments = ["--site", "local", str(eb_prefix.software)]
    status, said = installed(capsys, *arguments, "--strict")
    words = " ".join(said.split())
    assert (status, installed(capsys, *arguments)[0]) == (1, 0)
    # a mistake in the file hides its records: removing the module comes last
    assert "warning: the catalog of local has no valid record of it anymore: put the record back or" in words
    assert "note: it is not in the catalog of local" in words
    assert f"not installed there: {second.module}" in words
    assert ": 1 warning\n" in said
    assert f"never installed: {second.module}" in " ".join(installed(capsys, "--site", "local")[1].split())
    # a naming scheme may call the modules otherwise
    hierarchy = eb_prefix.modules / "Core"
    hierarchy.mkdir()
    (eb_prefix.modules / first.name).rename(hierarchy / first.name.lower())
    again = " ".join(installed(capsys, *arguments, str(eb_prefix.modules))[1].split())
    assert f"Core/{first.name.lower()}/" in again
    assert "base" not in again and f"not installed there: {second.module}" in again and again.endswith(": 1 warning")
    copy_of(root, first.module).write_text(
        # an easyconfig is a program
        re.sub("^moduleclass = .*", "moduleclass = 'x' + name", text.replace("'init'", "'x'"), flags=re.MULTILINE)
        + "for local_name in ('a', 'b'):\n    pass\n"
    )
    words = " ".join(installed(capsys, *arguments)[1].split())
    assert "warning: its easyconfig is out of date: it differs from the catalog in moduleclass; run `ebsif" in words
    assert "`, then `eb --module-only --force " in words
    catalog = report.Catalog("local", [second.replace(archived=True)], eb_prefix.modules)
    assert catalog.never_installed([]) == []
    archived = second.replace(archived=Archive(since="2026", reason="it is old", replacement=first.module))
    extensions = [one for one in search.installations()[0] if one.recorded_name.startswith(f"{second.module}-mine")]
    # the second is on top of the first
    assert len(extensions) == 2
    for one in extensions:
        (said,) = catalog.compare(one)
        assert said.text == f"its base {second.module} is archived: {second.module} was archived."
        assert report.state_of(one, {second.module: archived}) == [f"base archived (use {first.module})"]


def test_lists_are_newest_first(eb_prefix, ebsif):
    """H-01: containers, one's own modules and installations; what is installed here is marked."""

    def age(module):
        version = module.partition("/")[2].partition("-")[0]
        # a commit or the date of a build has no order
        parts = [int(part) for part in version.split(".")] if re.fullmatch(r"\d{1,3}(\.\d+)+", version) else []
        return parts, dates[module] or ""

    containers = read_settings("lumi")
    containers = containers.containers(containers.site())
    for site in (["--site", "lumi"], ["--site", "lumi", "--archived"]):
        listed = [one["module"] for one in json.loads(ebsif("list", *site, "--json").out)]
        dates = {one.module: one.date for one in containers}
        names = [module.partition("/")[0] for module in listed]
        assert names == sorted(names, key=names.index), site
        for one in set(names):
            ages = [age(module) for module in listed if module.startswith(f"{one}/")]
            assert ages == sorted(ages, reverse=True), (site, one)
        assert dates[listed[0]] == max(date or "" for module, date in dates.items() if module in listed)
    installed_one = listed[0]
    eb_prefix.install(installed_one, text="")
    roots = [eb_prefix.install(module) for module in (MINE, LATER)]
    os.utime(roots[1] / "share/ebsif/lock.json", (1, 1))
    said = ebsif("list", "--site", "lumi", "--json")
    assert [one["module"] for one in json.loads(said.out) if one["installed"]] == [installed_one]
    assert [one["module"] for one in json.loads(ebsif("list", "--mine", "--json").out)] == [MINE, installed_one, LATER]
    assert [one.module for one in search.everything() if one.module.startswith("PyTorch")][:2] == [LATER, MINE]


def test_showing_what_is_installed(eb_prefix, ebsif):
    """What is installed comes first, marked as such, with programs as they are typed; --json has the same."""
    root = eb_prefix.install(BASE, text="")
    (root / "bin").mkdir()
    for name in ("torchrun", "python", "start-shell"):
        (root / "bin" / name).touch()
    said = ebsif("show", "PyTorch")
    assert said.err == f"ebsif: 'PyTorch' is {BASE}, which is installed\n"
    lines = said.out.splitlines()
    assert lines[0] == BASE
    installed_here = f"installed       {places.of_directory(root).date} in {root}"
    assert {installed_here, "run             python, torchrun", "added packages  einops 0.8.1"} <= set(lines)
    assert json.loads(ebsif("show", "PyTorch", "--json").out)["installed"] == str(root)
    lock = root / "share/ebsif/lock.json"
    lock.write_text("{")
    said = ebsif("show", BASE).out
    assert f"\ninstalled       in {root}, but {lock}: " in said and "\n  what to do    install the module again" in said


def test_what_an_installed_module_is(eb_prefix, ebsif):
    """I-01: `ebsif show` of a module that no catalog has: what the image has, what was added, how to use it."""
    root = eb_prefix.install("Tool/1.0-x", image_packages=["Torch==2.7.1", "numpy==2.0"])
    lines = {line[:16].strip(): line[16:] for line in ebsif("show", str(root)).out.splitlines()}
    assert lines["in the image"] == "torch 2.7.1, 2 Python packages"
    assert lines["added packages"] == "einops 0.8.1"
    assert lines["load"].endswith("Tool/1.0-x")
    assert lines["run"] == "singularity exec $SIF COMMAND"
    assert "extends" not in lines
