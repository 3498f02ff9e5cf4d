"""One image for many installations: references, what records say of them, and who uses what."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic import containerinstall
from easybuild.easyblocks.generic.container.image import identity as image_module
from easybuild.easyblocks.generic.container.image.identity import Image, OpenImage, Wanted
from easybuild.easyblocks.generic.container.image.installed import InstalledImage, InstalledImages, recorded
from easybuild.easyblocks.generic.container.image.source import ImageSource
from easybuild.easyblocks.generic.container.spec import ContainerSpec
from easybuild.framework.easyblock import EasyBlock
from easybuild.tools.build_log import EasyBuildError
from ebsif import files
from ebsif.catalog import stages
from ebsif.eb import framework
from ebsif.environments import bases
from ebsif.errors import EbsifError
from ebsif.installed import places, removal, search
from ebsif.installed.places import Installation

CONTENT = b"an image"

# digests of sources
ONE, OTHER = "sha256:" + 64 * "1", "sha256:" + 64 * "2"


def install(root, kind="own", source=None):
    """Make an installation of a kind, with an image of its own or that of another one; return its image."""
    (root / "share/ebsif").mkdir(parents=True)
    own = root / "a.sif"
    if kind == "own":
        own.write_bytes(CONTENT)
    used = own if own.exists() else source
    image = {"file": "a.sif", "kind": kind, "resolved": str(source or "/sources/a.sif"), "size": len(CONTENT)}
    image |= {"mtime_ns": used.stat().st_mtime_ns, "sha256": hashlib.sha256(CONTENT).hexdigest()}
    if source:
        image["origin"] = "Example/1.0"
    version, sign, suffix = root.name.partition("-")
    module = {"name": root.parent.name, "version": version, "versionsuffix": sign + suffix}
    (root / "share/ebsif/lock.json").write_text(json.dumps({"image": image, "module": module}))
    return used


@pytest.fixture
def family(tmp_path, monkeypatch):
    """A module, an extension that uses its image, and modules that do not, where EasyBuild installs software."""
    software = tmp_path / "software"
    image = install(software / "Example/1.0")
    install(software / "Example/1.0-refer-1", "reference", image)
    install(software / "Example/2.0")
    install(software / "Other/1.0-refer", "reference", software / "Example/2.0/a.sif")
    monkeypatch.setattr(framework, "prefix", lambda: (software, tmp_path / "modules"))
    for module in (places, search):
        monkeypatch.setattr(module, "directories_of_modules", lambda: [tmp_path / "elsewhere/modules"])
    monkeypatch.delenv("CONTAINERROOT", raising=False)
    return software / "Example"


def test_which_image_an_installation_uses(family):
    """E-01: its own, or that of another one; size and time tell whether its record still holds."""
    for name in ("1.0", "1.0-refer-1"):
        installed = InstalledImage(str(family / name))
        assert installed.uses(family / "1.0/a.sif")
        assert not installed.uses(family / "2.0/a.sif")
        assert installed.is_unchanged()
        assert installed.origin == "Example/1.0"
    assert InstalledImage(str(family / "1.0-refer-1")).path() == str(family / "1.0/a.sif")
    os.utime(family / "1.0/a.sif", (1, 1))
    assert installed.has_size()
    assert not installed.is_unchanged()
    (family / "1.0/a.sif").write_bytes(b"cut")
    assert not installed.has_size()
    (family / "1.0/a.sif").unlink()
    assert installed.path() is None
    assert not installed.has_size()
    assert not InstalledImage(str(family)).record


def test_who_uses_an_image(family):
    """I-09, E-02: by the directory of the module that has it."""

    def users_of(name):
        return removal.users_of(family / name, search.everything())

    referring = ["Example/1.0-refer-1"]
    assert users_of("1.0") == referring
    assert users_of("2.0") == ["Other/1.0-refer"]
    assert users_of("1.0-refer-1") == []
    # the image is gone, and still needed
    (family / "1.0/a.sif").unlink()
    assert users_of("1.0") == referring
    # what a reinstallation has left counts for nothing; what modules elsewhere use counts
    install(family / "1.0-left", "reference", family / "2.0/a.sif")
    (family / "1.0-left").rename(family / "1.0-left.replaced")
    elsewhere = family.parent.parent / "elsewhere"
    for syntax, name in (
        ('local root = "{}"\nput("CONTAINERROOT", root)\n', "1.0-a.lua"),
        ('set root {}\nput CONTAINERROOT "${{root}}"\n', "1.0-b"),
    ):
        install(elsewhere / name.removesuffix(".lua"), "reference", family / "2.0/a.sif")
        (elsewhere / "modules/Example").mkdir(parents=True, exist_ok=True)
        (elsewhere / "modules/Example" / name).write_text(syntax.format(elsewhere / name.removesuffix(".lua")))
    (elsewhere / "modules/Example/other").write_text("set root /\n")
    assert users_of("2.0") == ["Example/1.0-a", "Example/1.0-b", "Other/1.0-refer"]
    other = SimpleNamespace(name="Other", file_name="a.sif", image_places=[], moving=None)
    assert bases.sources(other, search.everything()).endswith(f":{family}/2.0")
    # the record has the name, whatever the site's naming scheme calls the module
    install(elsewhere / "Other/1.0")
    (elsewhere / "modules/ai/Other").mkdir(parents=True)
    (elsewhere / "modules/ai/Other/1.0").write_text(f"set root {elsewhere}/Other/1.0\nput CONTAINERROOT $root\n")
    assert f"{elsewhere}/Other/1.0" in bases.sources(other, search.everything()).split(":")


def test_an_image_in_use_is_replaced(family):
    """E-01: modules without a copy are named if another image takes the place of theirs."""
    images = InstalledImages(str(family / "1.0"), [])
    image = Image(Wanted("a.sif", "own"), images)
    assert image.stale_modules(hashlib.sha256(b"another").hexdigest()) == ["Example/1.0-refer-1"]
    assert image.stale_modules(hashlib.sha256(CONTENT).hexdigest()) == []
    images = InstalledImages(str(family / "1.0-refer-1"), [])
    assert Image(Wanted("a.sif", "own"), images).stale_modules("0" * 64) == []


def test_an_image_in_use_is_not_removed(family):
    """I-09: refused with the names of those that need it."""
    base = places.of_directory(family / "1.0")
    with pytest.raises(EbsifError, match=r"that these modules use: Example/1\.0-refer-1; remove those"):
        removal.plan(base, users=search.everything())
    shutil.rmtree(family / "1.0-refer-1")
    assert family / "1.0" in removal.plan(base, users=search.everything()).paths


def test_an_installed_image_that_was_changed(family, monkeypatch):
    """I-03: eb --sanity-check-only and --module-only notice it, but read an image only if its time has changed."""
    options = {}
    monkeypatch.setattr(containerinstall, "build_option", options.get)
    monkeypatch.setattr(image_module, "trace_msg", lambda _: None)
    monkeypatch.setattr(EasyBlock, "sanity_check_step", lambda *_, **__: None)

    class Checked(containerinstall.ContainerInstall):
        spec, initial_environ = ContainerSpec({"name": "a", "version": "1", "sources": [], "init": "none"}), {}
        dry_run = False

        def __init__(self, name, record):
            self.installdir, self.record = str(family / name), record

        def find_record(self):
            return recorded(self.installdir)

    def check(name, **record):
        Checked(name, record).sanity_check_step()

    image = family / "1.0/a.sif"
    with monkeypatch.context() as unread:
        unread.setattr(image_module, "compute_checksum", None)
        check("1.0")
        check("none")
    os.utime(image)
    check("1.0")
    for content, what in ((b"AN image", "its SHA256 is different"), (b"short", "it has 5 bytes, and had 8")):
        image.write_bytes(content)
        for name in ("1.0", "1.0-refer-1"):
            changed = rf"a\.sif was changed after Example/{name} had been installed"
            with pytest.raises(EasyBuildError, match=rf"{changed}: {what}\. Put the earlier"):
                check(name)
    # just installed; ignored; another copy is in use
    check("1.0", image={})
    options["ignore_checksums"] = True
    check("1.0")
    options.clear()
    image.unlink()
    check("1.0")


def test_a_module_with_a_damaged_record_is_not_removed(family):
    """I-09: others may need its image, which only the record names."""
    (family / "1.0/share/ebsif/lock.json").write_text("{")
    with pytest.raises(EbsifError, match="lock.json: not a lock, .* again with `eb --rebuild E"):
        removal.plan(Installation(family / "1.0", "Example/1.0"))


def test_users_elsewhere(family, tmp_path, monkeypatch, capsys, ebsif):
    """I-09: extensions in directories that are named count, with their owners."""
    shutil.rmtree(family / "1.0-refer-1")
    theirs = tmp_path / "theirs/software"
    install(theirs / "Example/1.0-mine", "reference", family / "1.0/a.sif")
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    owner = files.owner(uid)
    monkeypatch.setattr(removal, "check_removable", lambda _: None)
    said = ebsif("remove", str(family / "1.0"), "--users", str(theirs.parent), "-n", status=3).err
    assert f"that these modules use: Example/1.0-mine (of {owner}); remove those first" in said
    # where nobody was found, but somebody may be
    (tmp_path / "nothing").mkdir()
    (theirs / "closed").mkdir()
    (family / "closed").mkdir()
    monkeypatch.setattr(search, "is_closed", lambda path: path.name == "closed")
    expected = f"{family}/closed, {theirs}/closed can't be read: if a module there uses the image, it will stop working"
    for directory, text in (("nothing", f"{tmp_path}/nothing has no container modules"), ("theirs", expected)):
        removal.possible_users([str(tmp_path / directory)])
        assert text in " ".join(capsys.readouterr().err.split())


def test_a_digest_is_recorded_or_taken(family, monkeypatch):
    """E-01: unchanged: the recorded one, nothing is read; touched: read, the same; another content: refused."""
    image = family / "1.0/a.sif"
    options = {}
    monkeypatch.setattr(image_module, "build_option", options.get)
    monkeypatch.setattr(image_module, "trace_msg", lambda _: None)
    install = Image(Wanted("a.sif", "reference"), InstalledImages(str(family / "2.0"), []))
    wanted = hashlib.sha256(CONTENT).hexdigest()
    with monkeypatch.context() as unread:
        unread.setattr(image_module, "compute_checksum", None)
        assert install.digest_in_place(str(image)) == wanted
    os.utime(image)
    assert install.digest_in_place(str(image)) == wanted
    image.write_bytes(b"Another.")
    with pytest.raises(EasyBuildError, match=r"was changed after Example/1\.0 had been installed with it.*Reinstall"):
        install.digest_in_place(str(image))
    options["ignore_checksums"] = True
    assert install.digest_in_place(str(image)) == hashlib.sha256(b"Another.").hexdigest()


@pytest.mark.parametrize(
    ("digest", "checksum", "is_found"),
    [
        (ONE, None, True),
        (OTHER, None, False),
        (None, None, True),
        (OTHER, hashlib.sha256(CONTENT).hexdigest(), True),
        (ONE, hashlib.sha256(b"Another.").hexdigest(), False),
    ],
)
def test_images_of_other_sources_are_not_shared(family, digest, checksum, is_found):
    """E-01, R-01: the image of a module is only shared if its source has the digest, or the file the checksum."""
    lock = family / "1.0/share/ebsif/lock.json"
    record = json.loads(lock.read_text())
    record["image"]["source_digest"] = ONE
    lock.write_text(json.dumps(record))
    shutil.rmtree(family / "2.0")
    source = ImageSource.parse(f"docker://example.org/a@{digest}") if digest else None
    others = InstalledImages(str(family / "3.0"), [])
    found = Image(Wanted("a.sif", "reference", source, checksum=checksum), others).shared_path()
    assert found == (str(family / "1.0/a.sif") if is_found else None)


def test_the_image_of_the_extended_module_comes_first(family):
    """E-01, E-02: among modules with the same image, wherever they are; a copy comes before references to it."""
    base, unrelated, root = family / "2.0", family / "1.0", family / "2.0-mine-1"
    install(family / "2.0-refer-1", "reference", base / "a.sif")
    directories = [str(path) for path in (unrelated, family / "2.0-refer-1", base)]
    for found in (
        InstalledImages(str(root), directories),
        InstalledImages(str(root), []),
        InstalledImages("/elsewhere/Example/2.0-mine-1", directories),
    ):
        assert found.find("a.sif", lambda image: True) == str(base / "a.sif")
        assert not found.origin(str(base / "a.sif")).startswith("Example/1.0")


def test_the_open_file_is_verified(family, monkeypatch):
    """P-05: the runtime verifies the file that is copied afterwards, even if its name leads to another one by then."""
    seen = []
    monkeypatch.setattr(image_module, "trace_msg", lambda _: None)
    monkeypatch.setattr(image_module, "verify", lambda path, *_: (seen.append(Path(path).read_bytes()) or ["me"], ""))
    source = family / "1.0/a.sif"
    opened = OpenImage(str(source))
    source.unlink()
    source.write_bytes(b"of somebody else")
    opened.verify([], "")
    assert (seen, opened.verified) == ([CONTENT], ["me"])


@pytest.mark.parametrize(
    "change",
    [
        lambda image: os.utime(image, (1, 1)),
        lambda image: image.write_bytes(b"AN image"),
        lambda image: image.rename(image.with_name("b.sif")),
        None,
    ],
)
def test_only_what_was_verified_is_installed(family, monkeypatch, change):
    """R-04, P-05: what is copied is the file that was verified, and not if somebody has written to it meanwhile."""
    monkeypatch.setattr(image_module, "build_option", lambda name: None)
    monkeypatch.setattr(image_module, "trace_msg", lambda _: None)
    source, target = family / "1.0/a.sif", family / "3.0/a.sif"
    target.parent.mkdir()
    image = Image(Wanted("a.sif", "own"), InstalledImages(str(target.parent), []))
    opened = OpenImage(str(source))
    opened.verified = ["somebody"]
    if change:
        change(source)
        with pytest.raises(EasyBuildError, match=r"after its signature had been verified\. Try again when nobody"):
            image.install(opened, str(source), str(target.parent))
        return
    # another file of that name
    source.rename(source.with_name("aside"))
    source.symlink_to(source.with_name("aside"))
    opened.before = image_module.file_identity(os.fstat(opened.file.fileno()))
    source.unlink()
    source.write_bytes(b"of somebody else")
    record = image.install(opened, str(source), str(target.parent))
    assert (record.sha256, record.verified) == (hashlib.sha256(CONTENT).hexdigest(), ["somebody"])
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("before", "wanted", "names"),
    [
        (None, ["a"], ["requirements"]),
        (["a", "b"], ["c"], ["requirements", "requirements (more)"]),
        ("a\n", [{"name": "new", "requirements": "c"}], ["requirements", "new"]),
        ([{"name": "one"}, {"requirements": "b"}], [{"name": "one"}], ["one", None, "one (more)"]),
        ([{"name": "one"}, {"name": "one (more)"}], [{"name": "one"}], ["one", "one (more)", "one (more 2)"]),
    ],
)
def test_stages_on_top_of_others(before, wanted, names):
    """E-04: those of the base first, each with a name of its own; without any, the new requirements as they are."""
    found = stages.append(stages.stages_of(before), stages.stages_of(wanted), "more")
    assert [stage.name for stage in found] == names
    assert stages.simplest(found) == (found if before else wanted)
