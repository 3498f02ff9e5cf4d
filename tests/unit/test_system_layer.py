"""V-04: what of packages of the image's system can be said without an image: names, the record, its summary."""

import hashlib
import json
import os
import re
import types

import pytest
from easybuild.easyblocks.generic.container import overlay
from easybuild.easyblocks.generic.container.image.installed import InstalledImage
from easybuild.easyblocks.generic.container.record.lockfile import LAYER, ImageRecord, LayerRecord, Record
from easybuild.easyblocks.generic.container.spec import ContainerSpec
from easybuild.easyblocks.generic.container.system import layer as layers
from easybuild.easyblocks.generic.container.system.layer import COMPRESSION, Layer
from easybuild.easyblocks.generic.container.system.packages import PackageInstallation, SystemRequest, cause
from easybuild.tools.build_log import EasyBuildError
from ebsif.catalog.container import Container
from ebsif.catalog.records import ContainerRecord, system_of
from ebsif.environments import plan, repeating
from ebsif.errors import EbsifError
from ebsif.installed import places, report, softwarestate
from prefixes import BASE, EASYCONFIG, MINE, parameters_in
from pydantic import ValidationError
from support import printed

GIT = LayerRecord(
    requested=["git", "libssl3", "vim", "mail-agent"],
    packages=["git==1:2.39-1", "git-man==1:2.39-1"],
    upgraded={"libssl3": ["3.0.1", "3.0.2"]},
    sha256="0" * 64,
    debs={"git": "1" * 64},
)


def check(value):
    """Check an easyconfig with a value of the parameter."""
    defaults = {name: parameter.default for name, parameter in ContainerSpec.PARAMETERS.items()}
    ContainerSpec.check({**defaults, "name": "x", "version": "1", "sources": ["x.sif"], "system_packages": value})


NO_NAMES = ["x;rm", "--option", "-y", "../x.deb", "vim-", "Vim", "a b", "vim=$(id)", "v\n", "./x.deb", "vim/testing"]
UPGRADED = [{"packages": ["vim"], "allow_upgrade": [name]} for name in ("-", "libc6=1")]


@pytest.mark.parametrize("value", [*([name] for name in (*NO_NAMES, "task^", "vim=1 2")), *UPGRADED])
def test_what_is_no_name(value):
    """V-04: values are data: options, paths, patterns and what apt understands besides names are refused."""
    with pytest.raises(EasyBuildError, match="'system_packages': not a name of a package: '"):
        check(value)


@pytest.mark.parametrize("value", ["vim", {"package": ["vim"]}, [1], {"packages": "vim"}, None, 3])
def test_what_has_another_type(value):
    """V-04: the message shows both forms."""
    with pytest.raises(EasyBuildError, match=r"should be a list of names, or \{'packages': \[\.\.\.\], 'allow_upgr"):
        check(value)


@pytest.mark.parametrize(
    "value",
    [
        [],
        ["vim"],
        ["g++", "libstdc++6=12.2.0-14+deb12u1", "python3.11", "0ad", "vim=2:9~rc1"],
        {"packages": ["modern"], "allow_upgrade": ["libssl3"]},
    ],
)
def test_what_is_a_name(value):
    """V-04: names as Debian's policy allows them, with versions that have epochs and tildes."""
    check(value)
    assert bool(SystemRequest(value)) == bool(value)


def test_the_catalog_has_the_same_rule():
    """V-04: the field of a record takes both forms of the parameter, and refuses what the easyblock refuses."""
    record = ContainerRecord(family="x", version="1", system_packages=["vim=2:9"])
    assert system_of(record.system_packages).parameter == ["vim=2:9"]
    both = {"packages": ["modern"], "allow_upgrade": ["libssl3"]}
    assert system_of(ContainerRecord(family="x", version="1", system_packages=both).system_packages).parameter == both
    with pytest.raises(ValidationError, match="not a name of a package of the image's distribution"):
        ContainerRecord(family="x", version="1", system_packages=["x;rm"])


def test_the_record_tells_what_was_added():
    """V-04: a summary names what was asked for; in the lists of packages, what was added has a place of its own."""
    there = "vim (in the image), mail-agent (in the image)"
    assert GIT.summary == f"git 1:2.39-1, libssl3 3.0.2, {there} (and 1 that they need)"
    packages = ["bash==5", "git-man==1:2.39-1", "git==1:2.39-1", "libssl3==3.0.2"]
    record = Record(system_layer=GIT, system_packages={"deb": packages})
    places = {package.name: package.place for package in record.packages}
    assert places == {"bash": "image", **dict.fromkeys(("git", "git-man", "libssl3"), "system-packages")}
    again = Record.from_content({"image": {"file": "x"}, "system_layer": vars(GIT)})
    assert again.system_layer.summary == GIT.summary


def test_compression_that_the_runtime_lacks(tmp_path, monkeypatch):
    """V-04: a layer that the runtime can't mount with zstd is packed with gzip, like user software."""
    packed = []
    monkeypatch.setattr(overlay, "version", lambda: (4, 5))
    ended = [types.SimpleNamespace(exit_code=status) for status in (0, 255)]
    monkeypatch.setattr(overlay, "run_program", lambda command, **_: packed.append(command) or ended[0])
    monkeypatch.setattr(layers, "InstallContainer", lambda *_: types.SimpleNamespace(run=lambda *_, **__: ended[1]))
    (tmp_path / "root").mkdir()
    container = types.SimpleNamespace(runtime=None, image="x.sif")
    Layer(container, str(tmp_path / "root"), str(tmp_path)).pack("x.squashfs")
    assert [command[-len(options) :] for command, options in zip(packed, COMPRESSION)] == list(COMPRESSION)


def test_an_overlay(tmp_path, configuration, monkeypatch):
    """V-04: all of it is of root and from 1980, so it is the same in each run; older mksquashfs can't do that."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files").chmod(0o755)
    files = [overlay.folder("/usr", "755"), overlay.folder("/usr/bin", "1775")]
    files += [overlay.hidden('/usr/a "b"\\c'), overlay.link("/usr/bin/d", "/bin/e")]
    overlay.write(str(tmp_path / "files"), str(tmp_path / "overlay"), files, ["-comp", "gzip"])
    listed = printed(["unsquashfs", "-lln", tmp_path / "overlay"], env={**os.environ, "TZ": "UTC"}).splitlines()
    lines = [" ".join(line.split()) for line in listed if "squashfs-root" in line]
    if overlay.version() < overlay.WITH_TIMES:
        lines = [re.sub(r" \d{4}-\d\d-\d\d \d\d:\d\d ", " 1980-01-01 00:00 ", line) for line in lines]
    assert all(" 0/0 " in line and " 1980-01-01 00:00 " in line for line in lines)
    assert 'c--------- 0/0 0, 0 1980-01-01 00:00 squashfs-root/usr/a "b"\\c' in lines
    assert "lrwxrwxrwx 0/0 6 1980-01-01 00:00 squashfs-root/usr/bin/d -> /bin/e" in lines
    assert [line.split()[0] for line in lines if line.endswith("/bin")] == ["drwxrwxr-t"]
    commands = []
    monkeypatch.setattr(overlay, "run_program", lambda command, **_: commands.append(command))
    monkeypatch.setattr(overlay, "version", lambda: (4, 4))
    overlay.write(str(tmp_path / "files"), "target", [overlay.hidden("/a")], [])
    assert commands[0][-2:] == ["-p", '"a" c 000 0 0 0 0']
    overlay.check_mksquashfs("masked_paths")
    monkeypatch.setattr(overlay, "version", lambda: (4, 3))
    with pytest.raises(EasyBuildError, match="mksquashfs is too old for 'masked_paths', which needs 4.4 or newer: in"):
        overlay.check_mksquashfs("masked_paths")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EasyBuildError, match="mksquashfs not found on PATH, but 'masked_paths' needs it: install the"):
        overlay.check_mksquashfs("masked_paths")
    with pytest.raises(EasyBuildError, match="mksquashfs and unsquashfs not found on PATH: install the package"):
        overlay.check_squashfs_tools(["mksquashfs", "unsquashfs"])


def test_which_layers_are_kept(tmp_path, configuration):
    """V-04, E-03: only with the same names, on the same image as it was, and unchanged; otherwise apt is asked."""
    root, image, target = tmp_path / "installed", tmp_path / "image.sif", tmp_path / "kept"
    (root / "share/ebsif").mkdir(parents=True)
    image.write_bytes(b"image")
    (root / LAYER).write_bytes(b"layer")
    digest = {data: hashlib.sha256(data).hexdigest() for data in (b"image", b"layer")}
    layer = {"requested": ["git"], "allow_upgrade": [], "image": digest[b"image"], "sha256": digest[b"layer"]}
    time = image.stat().st_mtime_ns

    def kept(value=("git",), of=root, **changes):
        used = {"file": "image.sif", "size": 5, "mtime_ns": time, "resolved": str(image), "sha256": digest[b"image"]}
        record = {"image": used, "system_layer": {**layer, **changes}}
        (root / "share/ebsif/lock.json").write_text(json.dumps(record))
        system = SystemRequest(value if isinstance(value, dict) else list(value))
        return bool(system.kept(InstalledImage(str(of)), str(image), str(target)))

    assert kept()
    assert target.read_bytes() == b"layer"
    assert not kept(of="")
    assert not kept(["git", "vim"])
    assert not kept(["git=2"])
    assert not kept({"packages": ["git"], "allow_upgrade": ["libc6"]})
    assert not kept(image="0" * 64)
    assert not kept(sha256="0" * 64)
    os.utime(image, (0, 0))
    assert not kept()
    os.utime(image, ns=(time, time))
    assert kept()
    (root / LAYER).unlink()
    assert not kept()


def test_which_layers_are_wrong(eb_prefix):
    """V-04: gone, truncated, altered (with --verify), or made for another image: said with what to do."""
    digest = hashlib.sha256(b"layer").hexdigest()
    layer = {"requested": ["git"], "image": "0" * 64, "sha256": digest, "size": 5}
    root = eb_prefix.install(MINE, system_layer=layer)
    other = eb_prefix.install(BASE, system_layer={**layer, "image": "1" * 64})
    (other / LAYER).write_bytes(b"layer")

    def problem(root, verify=False):
        found = softwarestate.layer(places.of_directory(root), verify)
        return found and found.text.partition(": install the module again with `")[0]

    assert problem(root) == f"its {LAYER} is gone"
    (root / LAYER).write_bytes(b"lay")
    assert problem(root) == f"its {LAYER} is damaged: it isn't what was installed"
    (root / LAYER).write_bytes(b"other")
    assert problem(root) is None
    assert problem(root, verify=True) == f"its {LAYER} is damaged: it isn't what was installed"
    (root / LAYER).write_bytes(b"layer")
    assert problem(root, verify=True) is None
    assert problem(other) == f"its {LAYER} was made for another image"
    found = report.examine(places.of_directory(other), False)
    assert [one.text for one in found.findings if LAYER in one.text]


# --- ebsif extend

SYSTEM = EASYCONFIG.replace("requirements = [", "system_packages = ['git', 'vim=2:9']\n\nrequirements = [")
ONLY = SYSTEM.partition("requirements = [")[0] + "moduleclass = 'ai'\n"


@pytest.fixture
def extended(eb_prefix, ebsif):
    """A function that extends a module, and returns the system packages in the easyconfig, or the error's text."""
    eb_prefix.install(BASE, text=EASYCONFIG.replace("-mine-20261121", "").partition("requirements = [")[0])

    def extend(*words, status=0):
        said = ebsif(*words, "-n", status=status)
        if status:
            return said.err.removeprefix("ebsif: ").strip()
        return parameters_in(said.out).get("system_packages")

    return extend


def test_extending_by_system_packages(extended, eb_prefix):
    """V-04: --apt alone or with other packages; `name=version`; what may be upgraded; no name of an option of apt."""
    new = ["extend", BASE, "--name", "other"]
    assert extended(*new, "--apt", "git", "--apt", "vim=2:9") == ["git", "vim=2:9"]
    both = {"packages": ["git", "vim"], "allow_upgrade": ["libssl3"]}
    assert extended(*new, "--apt", "git", "vim", "--allow-upgrade", "libssl3", "--add", "rich") == both
    assert extended(*new, "--apt", "x;rm", status=3) == "not a name of a package: 'x;rm' (write NAME or NAME=VERSION)"
    assert "is for the packages of --apt" in extended(*new, "--add", "rich", "--allow-upgrade", "libssl3", status=3)
    assert extended("extend", BASE, "--remove-apt", "git", status=3).startswith("--remove-apt changes an extension")


def test_changing_the_system_packages_of_an_extension(extended, eb_prefix):
    """V-04: one layer with the union; another version replaces one; removing by name; nothing left is refused."""
    eb_prefix.install(MINE, text=SYSTEM)
    assert extended("extend", "mine", "--apt", "graphviz") == ["git", "vim=2:9", "graphviz"]
    assert extended("extend", "mine", "--apt", "vim=2:10") == ["git", "vim=2:10"]
    assert extended("extend", "mine", "--remove-apt", "vim", "--add", "rich") == ["git"]
    assert extended("extend", "mine", "--remove-apt", "vim", "git") is None
    said = extended("extend", "mine", "--remove-apt", "gti", status=3)
    assert "made without the system package gti; did you mean git? (it was made with: git, vim)" in said
    # on top of it, under another name
    assert extended("extend", "mine", "--apt", "graphviz", "--name", "more") == ["git", "vim=2:9", "graphviz"]
    assert extended("extend", "mine", "--add", "rich", "--name", "more") == ["git", "vim=2:9"]


def test_an_extension_with_system_packages_only(extended, eb_prefix, ebsif):
    """V-04: it can be changed and upgraded like others; the last package isn't removed."""
    eb_prefix.install(MINE, text=ONLY, packages=())
    assert extended("extend", "mine", "--apt", "graphviz") == ["git", "vim=2:9", "graphviz"]
    assert extended("extend", "mine", "--remove-apt", "git", "vim", status=3).startswith("nothing would be left of")
    assert "nothing to do" in ebsif("extend", "mine", "--apt", "git").err


def test_a_new_extension_of_the_same_name(extended, eb_prefix):
    """V-04: system packages that would be lost are named, as others are."""
    eb_prefix.install(MINE, text=ONLY, packages=(), system_layer=vars(GIT), stages=[])
    text = extended("extend", BASE, "--name", "mine", "--apt", "tmux", status=3)
    assert text.startswith("`mine` exists (")
    assert "; to add to it: ebsif extend mine --apt tmux" in text and text.endswith("; otherwise choose another --name")


def test_upgrading_keeps_the_names(extended, eb_prefix):
    """V-04: `ebsif upgrade` installs the same names on the newer image, with those that its container has."""
    eb_prefix.install(MINE, text=SYSTEM)
    newer = BASE.replace("20261121", "20270101")
    text = EASYCONFIG.replace("20261121-mine-20261121", "20270101")
    text = text.replace("requirements = [", "system_packages = ['tmux']\nrequirements = [")
    eb_prefix.install(newer, text=text)
    assert extended("upgrade", "mine", newer) == ["tmux", "git", "vim=2:9"]


def test_what_a_check_shows(capsys):
    """V-04: what was asked for, what the image has, what is upgraded, and how many more; no packages of pip."""
    plan.show(plan.Plan(system=GIT), "A/1", "COMMAND")
    assert capsys.readouterr().out.splitlines() == [
        "+ git 1:2.39-1      system package, asked for",
        "= vim               system package, in the image",
        "= mail-agent        system package, in the image",
        "+ libssl3 3.0.2     system package, instead of 3.0.1",
        "+ 1 system package  dependencies",
        "yes: A/1 can be installed: 3 system packages",
    ]


def test_repeating_a_lock_asks_for_the_same_names():
    """V-04: an environment from a lock gets the system packages of the record, not only those of its container."""
    container = Container.of("x", {"parameters": {}, "venv_name": None, "system_packages": ["tmux"]}, None, None)
    record = Record(image=ImageRecord(file="x", sha256="0" * 64), system_layer=GIT, stages=[{"name": "one"}])
    assert system_of(repeating.repeated(container, record).system_packages).packages == GIT.requested
    with pytest.raises(EbsifError, match="ebsif extend CONTAINER --apt git libssl3 vim mail-agent"):
        repeating.repeatable(record.replace(stages=[]), "lock.json")


def test_the_cause_is_shown():
    """V-04: what dpkg calls an error, with the words of the script before it, though much output follows."""
    lines = [f"Selecting previously unselected package a{number}." for number in range(30)]
    error = ["it is broken", "dpkg: error processing package b (--configure):"]
    error += [" installed b package post-installation", "Setting up a1 ..."]
    shown = cause("\n".join([*lines, *error, *lines, "E: Sub-process /usr/bin/dpkg returned an error code (1)"]))
    assert shown == [*lines[-3:], *error]
    assert cause("\n".join(lines)) == lines[-15:]


@pytest.mark.parametrize(
    ("programs", "why"),
    [
        (["zypper", "perl", "tar"], "it has zypper, not apt"),
        (["dnf", "tar"], "it has dnf, not apt"),
        (["apk"], "it has apk, not apt"),
        (["apt-get", "dpkg", "dpkg-status", "tar"], "it lacks perl"),
    ],
)
def test_other_distributions(tmp_path, configuration, programs, why):
    """V-04: an image without apt is refused by what it has instead, with what else works; no such image is here."""
    lines = ["name SUSE Linux 15", *(f"program {name}" for name in programs), "directory usr"]
    printed = types.SimpleNamespace(output="\n".join(lines))
    container = types.SimpleNamespace(runtime=types.SimpleNamespace(run=lambda *_, **__: printed), image="x.sif")
    with pytest.raises(EasyBuildError) as error:
        PackageInstallation(SystemRequest(["vim"]), container, str(tmp_path), "layer").probe()
    assert f"this image (SUSE Linux 15): {why}. Packages of Python from PyPI work with every image" in error.value.msg
