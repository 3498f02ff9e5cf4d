"""V-04: packages of the image's own distribution, as one read-only layer; from a repository of the tests."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from aptrepository import binds_of, make_deb
from easybuild.easyblocks.generic.container import overlay
from easybuild.easyblocks.generic.container.imageprograms import sh_command
from easybuild.easyblocks.generic.container.runtime import InstallContainer, Runtime
from easybuild.easyblocks.generic.container.system.packages import LAYER, SystemRequest
from easybuild.tools.build_log import EasyBuildError
from parts import TOOLS, Installed, example_site
from support import Site, attempt, printed, record_of, write_program

GREET = "#!/bin/sh\ncat /usr/share/greet/text /usr/share/greet/secret 2>/dev/null\n:\n"
TEXT = (
    Installed.TEXT + "masked_paths = ['/usr/share/greet/secret']\nwrappers = ['greet']\n"
    "system_packages = ['greet']\nrequirements = [{'pre': ['greet'], 'verify': ['! ls /usr/share/greet/secret']}]\n"
)
AS_ROOT = (
    "test $(id -u) = 0\nchown daemon:daemon /usr/share/greet/text\nchmod u+s /usr/share/greet/text\n"
    "test -x /usr/sbin/policy-rc.d\nupdate-alternatives --install /usr/bin/hello hello /usr/bin/greet 1\n"
    "echo log >/var/log/greet\nmkfifo /tmp/$$ && rm /tmp/$$"
)


# not like the one of other tests on this machine
SLEEP = f"sleep 654.{os.getpid()}"

# files in directories that aren't copied, or that hold what isn't packed
PLACED = ["usr/local/bin/placed", "usr/local/etc/placed/removed", "var/cache/placed/data", "var/log/placed/log"]
PLACED += ["run/placed"]


# what somebody who can change a repository may try; PWN is made if mksquashfs takes a name for a command
HOSTILE = """
mkdir /usr/share/hostile && cd /usr/share/hostile
cp /bin/true set-id && chmod 6777 set-id
ln -s /etc/shadow link && mkfifo pipe
touch 'x" f 777 0 0 touch PWN'
touch "$(printf 'y\\nz f 777 0 0 touch PWN')"
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository: a package that needs another, some that can't be installed, a newer version of one in the image."""
    folder = tmp_path_factory.mktemp("repository")
    make_deb(folder, "greet", "1:1.0-2", {"usr/bin/greet": GREET}, Depends="greet-data", postinst=AS_ROOT)
    texts = {"text": "hello from the layer\n", "secret": "secret\n"}
    make_deb(folder, "greet-data", files={f"usr/share/greet/{name}": text for name, text in texts.items()})
    make_deb(folder, "modern", Depends="hostname (>= 99)")
    make_deb(folder, "hostname", "99.0", {"usr/bin/hostname": "#!/bin/sh\necho newer\n"}, Essential="yes")
    make_deb(folder, "hostname", "1.0", {"usr/bin/hostname": "#!/bin/sh\necho older\n"}, Essential="yes")
    make_deb(folder, "rival", Conflicts="media-types")
    make_deb(folder, "greet-dev", Provides="libgreet-dev, greeter", Replaces="greets")
    make_deb(folder, "greet-more", Provides="greeter", Depends="greets")
    make_deb(
        folder,
        "placed",
        files=dict.fromkeys(PLACED, "placed"),
        postinst="echo cache >/var/cache/placed/made; rm /usr/local/etc/placed/removed; echo >/run/made",
    )
    make_deb(
        folder,
        "moved",
        files={"usr/share/moved/file": "text"},
        postinst=(
            "rm -r /etc/terminfo\necho file >/etc/terminfo\nmv /usr/share/perl5 /usr/share/perl5.moved\n"
            "ln -s perl5.moved /usr/share/perl5\nrm -r /usr/share/bug"
        ),
    )
    make_deb(folder, "vendor", files={"opt/vendor/file": "text"})
    make_deb(folder, "lingering", postinst=f"({SLEEP} &)")
    make_deb(folder, "slow", postinst=f"({SLEEP} &)\ntouch $HOME/started\n{SLEEP}")
    make_deb(folder, "failing", postinst="echo it is broken >&2\nexit 3")
    make_deb(folder, "hostile", postinst=HOSTILE)
    return folder


@pytest.fixture
def add(base_image, repository, tmp_path, monkeypatch, configuration):
    """A function that makes a layer, as eb does; returns its record and path."""
    monkeypatch.setenv("EBSIF_INSTALL_BIND", binds_of(repository))
    work = tmp_path / "work"
    work.mkdir()

    def make(*names, image=base_image, allow_upgrade=()):
        wanted = SystemRequest({"packages": list(names), "allow_upgrade": list(allow_upgrade)})
        assert wanted.problem is None
        layer = tmp_path / "layer.squashfs"
        return wanted.add(InstallContainer(Runtime(), str(image), str(work)), str(layer)), layer

    return make


def seen_with(layer, image, script, *arguments):
    """Return what a script prints in a container with a layer."""
    command = ["apptainer", "exec", "--overlay", f"{layer}:ro", image, "sh", "-c", script, "sh", *arguments]
    return attempt(command).stdout


def refused(add, *names, **more):
    """Return why a layer isn't made."""
    with pytest.raises(EasyBuildError) as error:
        add(*names, **more)
    return error.value.msg


def test_a_hostile_package(add, tmp_path, monkeypatch):
    """P-04, P-06: no set-ID bits, pipes or files of the host come along, and no name becomes a command."""
    monkeypatch.chdir(tmp_path)
    record, layer = add("hostile")
    listed = printed(["unsquashfs", "-ll", layer])
    kinds = {
        line.split("/hostile/")[-1].split(" -> ")[0]: line.split()[0]
        for line in listed.splitlines()
        if "/hostile/" in line
    }
    assert (kinds["set-id"], kinds["link"][0]) == ("-rwxrwxrwx", "l")
    assert "pipe" not in kinds and 'x" f 777 0 0 touch PWN' in kinds
    assert not re.search("^.{3}[sS]|^.{6}[sS]", "\n".join(kinds.values()), re.MULTILINE)
    assert not list(tmp_path.rglob("PWN"))
    assert "/etc/shadow" not in record.replaced


@pytest.mark.parametrize(
    "name", ['a" f 777 0 0 touch PWN', "a\\", 'a\\" f 777 0 0 touch PWN', "a\nb f 777 0 0 touch PWN"]
)
def test_names_of_files_that_a_layer_hides(tmp_path, monkeypatch, name, configuration):
    """P-06: of a file of the image that is gone, mksquashfs takes the whole name, and none of it for a command."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").mkdir()
    overlay.write(
        str(tmp_path / "source"),
        str(tmp_path / "made"),
        [overlay.hidden(f"/{name}")],
        ["-comp", "gzip"],
        fail_on_error=False,
    )
    assert not (tmp_path / "PWN").exists()


@pytest.fixture(scope="module")
def layered(tmp_path_factory, base_image, repository):
    """A site whose module has a package of the repository."""
    site = example_site(tmp_path_factory.mktemp("layered"), base_image)
    site.eb(site.easyconfig(TEXT), EBSIF_INSTALL_BIND=binds_of(repository))
    return site


def root_of(site):
    """Return the directory of the installation."""
    return site.root()


def layer_of(site):
    """Return the part of the record on the layer."""
    return record_of(root_of(site))["system_layer"]


SEEN = "hello from the layer\n"


def test_the_loaded_module_has_the_packages(layered):
    """V-04: plain `singularity exec $SIF` sees them, below the masks; so do wrappers; unloading undoes it."""
    script = "module load Example/1.0; {}; module unload Example/1.0; env | grep OVERLAY >&2"
    for command in ("singularity exec $SIF greet", "apptainer exec $SIF hello", "greet"):
        result = layered.bash(script.format(command), check=False)
        assert (result.stdout, result.stderr) == (SEEN, "")
    # without the modules tool, as kernels and wrappers_load do
    words = [root_of(layered) / "bin/with-module", "singularity", "exec"]
    assert layered.run([*words, "--no-home", root_of(layered) / "example.sif", "greet"]).stdout == SEEN
    overlays = layered.bash("module load Example/1.0; echo $APPTAINER_OVERLAY; echo $SINGULARITY_OVERLAY").stdout
    assert overlays == f"{root_of(layered)}/{LAYER}:ro,{root_of(layered)}/share/ebsif/masks.squashfs:ro\n" * 2


def test_modules_in_tcl_have_the_same_overlays(layered):
    """V-04: the other modules tool mounts the layer below the masks as well."""
    site = Site(layered.prefix, TOOLS["EnvironmentModules-Tcl"](), Path(sys.prefix))
    site.eb(site.prefix / "Example-1.0.eb", "--module-only", "--force")
    try:
        script = "module load Example/1.0; singularity exec $SIF greet\nmodule unload Example/1.0; env | grep OVERLAY"
        result = site.bash(script, check=False)
        assert result.stdout == SEEN
    finally:
        (site.modules / "Example/1.0").unlink()


def test_the_image_stays_as_it_is(layered, base_image):
    """V-04: one file beside user software; the image isn't changed, and nobody's account is in the layer."""
    root = root_of(layered)
    assert (root / "example.sif").read_bytes() == base_image.read_bytes()
    assert (root / LAYER).stat().st_mode & 0o777 == 0o644
    listed = printed(["unsquashfs", "-lln", root / LAYER])
    files = {
        line.split("squashfs-root", 1)[1].split(" -> ")[0]: line.split()[:2]
        for line in listed.splitlines()
        if "squashfs-root" in line
    }
    assert files["/usr/share/greet/text"] == ["-rw-r--r--", "0/0"]
    assert {"/usr/bin/greet", "/etc/alternatives/hello", "/etc/ld.so.cache", "/var/lib/dpkg/status"} <= set(files)
    for path in ("/var/log/greet", "/etc/passwd", "/etc/hosts", "/usr/sbin/policy-rc.d", "/usr/bin/env"):
        assert path not in files
    command = ["apptainer", "exec", "--overlay", f"{root / LAYER}:ro", root / "example.sif", "sh"]
    kept = printed([*command, "-c", "ldconfig -p | wc -l; dpkg --audit; dpkg -l greet"])
    plain = printed(["apptainer", "exec", root / "example.sif", "sh", "-c", "ldconfig -p | wc -l"])
    assert kept.splitlines()[0] == plain.strip()
    assert kept.splitlines()[-1].startswith("ii  greet")


def test_the_record_names_the_packages(layered, repository):
    """V-04: names, versions and SHA256s are in the record, in the help and in `ebsif show` and the SBOM."""
    layer, root = layer_of(layered), root_of(layered)
    assert layer["requested"] == ["greet"]
    assert layer["packages"] == ["greet==1:1.0-2", "greet-data==1.0"]
    image = record_of(root)["image"]
    assert layer["image"] == image["sha256"]
    sums = printed(["sha256sum", root / LAYER, repository / "greet_1:1.0-2_all.deb"]).split()
    assert (layer["sha256"], layer["debs"]["greet"]) == (sums[0], sums[2])
    said = "greet 1:1.0-2 (and 1 that they need)"
    assert f"System packages added: {said}." in layered.bash("module help Example/1.0 2>&1").stdout
    assert f"system packages {said}\n" in layered.run(["ebsif", "show", root]).stdout
    bill = json.loads(layered.run(["ebsif", "lock", root, "--format", "sbom"]).stdout)
    (component,) = [one for one in bill["components"] if one["name"] == "greet"]
    assert component["version"] == "1:1.0-2"
    assert component["properties"] == [{"name": "ebsif:place", "value": "system-packages"}]
    assert component["hashes"][0]["content"] == sums[2]
    (other,) = [one for one in bill["components"] if one["name"] == "hostname"]
    assert other["properties"][0]["value"] == "image"


def test_an_installation_without_its_layer(layered):
    """V-04: `ebsif doctor --installed` says that the layer is gone; test_which_layers_are_wrong has the other cases."""
    path = root_of(layered) / LAYER
    path.rename(path.with_suffix(".away"))
    try:
        result = layered.run(["ebsif", "doctor", "--installed", layered.prefix / "eb"], check=False)
    finally:
        path.with_suffix(".away").rename(path)
    assert f"its {LAYER} is gone: install the module again with" in " ".join(result.stdout.split())
    assert result.returncode == 1


# --- what is refused


def test_names_that_apt_does_not_know(add, base_image):
    """V-04: unknown names are refused with similar ones, old versions with those that there are."""
    text = refused(add, "greeet", "greet-data=0.9", "greet.data")
    expected = "no package 'greeet' in the sources of this image (Debian GNU/Linux 12 (bookworm)); did you mean greet"
    assert expected in text
    assert "no package 'greet.data' in" in text
    assert "greet-data has no version 0.9 any more; there is 1.0" in refused(add, "greet-data=0.9")


def test_packages_of_the_image_change_only_if_that_is_allowed(add, base_image):
    """V-04: an upgrade is refused by name; allowed by name it hides what the newer package lacks."""
    text = refused(add, "modern")
    assert "that would change packages of the image: hostname 3.23+nmu1 -> 99.0. " in text
    assert "(in an easyconfig, 'allow_upgrade': ['hostname']):\n    ebsif extend ... --allow-upgrade hostname" in text
    assert "media-types would be removed" in refused(add, "rival", allow_upgrade=["media-types"])
    record, layer = add("modern", allow_upgrade=["hostname"])
    assert record.upgraded == {"hostname": ["3.23+nmu1", "99.0"]}
    assert "/usr/bin/dnsdomainname" in record.hidden
    assert "/usr/bin/hostname" in record.replaced
    script = "hostname; command -v dnsdomainname || echo none"
    assert seen_with(layer, base_image, script) == "newer\nnone\n"
    # also what hides files is the same in each run
    assert add("modern", allow_upgrade=["hostname"])[0].sha256 == record.sha256


@pytest.mark.nightly
def test_a_version_that_is_asked_for(add):
    """V-04: a package of the image gets the version that was asked for, or the newest one, or it is refused."""
    text = refused(add, "hostname=99.0")
    assert "hostname 3.23+nmu1 -> 99.0. To allow it (in an easyconfig, 'allow_upgrade': ['hostname']):" in text
    for name, version in (("hostname=99.0", "99.0"), ("hostname", "99.0"), ("hostname=1.0", "1.0")):
        record, _ = add(name, allow_upgrade=["hostname"])
        assert record.upgraded == {"hostname": ["3.23+nmu1", version]}
        assert "/usr/bin/hostname" in record.replaced
    record, _ = add("hostname=3.23+nmu1", "greet-data")
    assert (record.upgraded, record.packages) == ({}, ["greet-data==1.0"])


def test_files_in_unusual_directories(add, base_image, monkeypatch):
    """V-04: files of packages in /usr/local, caches and logs are in the layer; what can't be is named."""
    said = []
    monkeypatch.setattr("easybuild.easyblocks.generic.container.system.packages.trace_msg", said.append)
    _, layer = add("placed")
    assert said[-1] == "system packages: these files can't be in a layer, so packages may lack them: /run/placed"
    script = 'cd /; cat "$@"; ls var/cache/placed usr/local/etc/placed /run/made'
    seen = seen_with(layer, base_image, script, *PLACED)
    assert seen == "placed" * 3 + "usr/local/etc/placed:\n\nvar/cache/placed:\ndata\n"


def test_directories_that_are_replaced(add, base_image):
    """V-04: a directory whose place is taken by a file or a link hides nothing but itself."""
    record, layer = add("moved")
    assert record.hidden == ["/usr/share/bug"]
    assert {"/etc/terminfo", "/usr/share/perl5"} <= set(record.replaced)
    script = "cat /etc/terminfo; ls -d /usr/share/perl5/Debconf; ls /usr/share/bug 2>&1"
    seen = seen_with(layer, base_image, script)
    assert seen.startswith("file\n/usr/share/perl5/Debconf\nls: cannot access")


def test_what_is_copied(base_image, tmp_path):
    """V-04: of directories to which packages only add, no gigabytes but directories and links."""
    image = tmp_path / "image"
    for name in (
        "usr/local/cuda-12/lib/big",
        "usr/local/share/ca-certificates/site.crt",
        "usr/share/doc/big/file",
        "usr/share/doc/hostname/copyright",
        "var/cache/big/file",
        "var/cache/debconf/config.dat",
        "var/lib/apt/lists/list",
    ):
        (image / name).parent.mkdir(parents=True, exist_ok=True)
        (image / name).write_bytes(b"x" * 3_000_000)
    (image / "usr/local/cuda").symlink_to("cuda-12")
    (image / "usr/local/cuda-12").chmod(0o775)
    overlay, work = tmp_path / "overlay.squashfs", tmp_path / "work"
    subprocess.run(["mksquashfs", image, overlay, "-all-root", "-quiet"], check=True, capture_output=True)
    container = InstallContainer(Runtime(), str(base_image), str(work))
    container.overlays = [str(overlay)]

    def copied(*packages):
        target = work / "-".join(("copy", *packages))
        target.mkdir(parents=True)
        container.run(sh_command("copy-system.sh", str(target), "usr", "etc", "var", "--", *packages))
        return target

    target, more = copied(), copied("hostname")
    kept = {"usr/local": ["usr/local/share/ca-certificates/site.crt"], "var/cache": ["var/cache/debconf/config.dat"]}
    for folder in ("usr/local", "usr/share/doc", "var/cache", "var/lib/apt/lists", "var/log"):
        found = [path for path in (target / folder).rglob("*") if path.is_file() and not path.is_symlink()]
        assert sorted(str(path.relative_to(target)) for path in found) == kept.get(folder, [])
    assert (target / "usr/local/cuda").readlink() == Path("cuda-12")
    assert (target / "usr/local/cuda-12").stat().st_mode & 0o777 == 0o775
    assert (target / "usr/bin/env").stat().st_size and (target / "var/lib/dpkg/status").stat().st_size
    assert [path.parent.name for path in (more / "usr/share/doc").rglob("*") if path.is_file()] == ["hostname"]


def test_names_that_other_packages_provide(add):
    """V-04: such names are refused, with the packages to choose from; such a name never gets into the record."""
    text = refused(add, "greeter", "greets")
    assert "'greeter' is only a name that other packages provide: choose greet-dev or greet-more" in text
    assert "no package 'greets' in the sources of this image (" in text
    assert "); these replace it: greet-dev" in text
    assert "did you mean" not in text
    # apt would silently take the only one, or another package
    text = refused(add, "libgreet-dev", "awk")
    assert "'libgreet-dev' is only a name that other packages provide: choose greet-dev" in text
    assert "'awk' is only a name that other packages provide: choose mawk" in text
    assert "no package 'greet-data+' in the sources" in refused(add, "greet-data+")


def test_a_package_that_fails(add, tmp_path, monkeypatch):
    """V-04: its own message is shown, and nothing stays in TMPDIR."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    text = refused(add, "failing")
    assert text.startswith("System packages can't be added: the installation failed:\n")
    assert "it is broken" in text
    assert list(folder.glob("system-*")) == []


def test_a_package_with_files_where_none_can_be(add):
    """V-04: the directory, and what to do, besides what dpkg says."""
    text = refused(add, "vendor", "greet")
    assert "dpkg: error processing archive" in text
    assert "Packages can't have files in /opt, only in /usr, /etc, /var" in text
    assert "Look for it on PyPI or as a module of this machine, or take an image that has it." in text


def test_a_package_that_leaves_a_process(add):
    """V-04: a program that a package starts ends with the installation, which doesn't wait for it."""
    started = time.monotonic()
    record, _ = add("lingering")
    assert record.packages == ["lingering==1.0"]
    assert time.monotonic() - started < 600
    assert subprocess.run(["pgrep", "-f", SLEEP], check=False, capture_output=True).stdout == b""


def test_an_interrupted_installation(base_image, repository, tmp_path):
    """V-04: apt, what it has started, and the copies end with eb."""
    site = example_site(tmp_path, base_image)
    easyconfig = site.easyconfig(
        "easyblock = 'ContainerInstall'\nsources = ['example.sif']\ninit = 'none'\nsystem_packages = ['slow']\n"
    )
    script = """
        eb "$@" &
        while [[ -z $(find "$PREFIX" -name started) ]]; do sleep 0.2; done
        trap '' TERM
        kill -TERM 0
        wait $!
    """
    command = ["setsid", "bash", "-c", script, "bash", easyconfig, *site.eb_options]
    result = site.run(command, check=False, EBSIF_INSTALL_BIND=binds_of(repository), PREFIX=site.prefix)
    assert result.returncode
    assert subprocess.run(["pgrep", "-f", SLEEP], check=False, capture_output=True).stdout == b""
    assert not list(site.prefix.rglob("system-*/root"))


def test_a_hostile_image(add, repository, tmp_path, monkeypatch):
    """P-03: links in the copy of the image's directories don't lead to files of this machine."""
    # containers don't see the home directory
    with tempfile.TemporaryDirectory(dir=Path.home()) as mine:
        tar = write_program(
            tmp_path / "tar",
            '#!/bin/sh\ncase $* in *-cf*) exit ;; esac\ncat >/dev/null\ncd "$2" && mkdir usr etc var &&'
            f" ln -s {mine} usr/sbin && ln -s {mine}/shadow etc/shadow\n",
        )
        monkeypatch.setenv("EBSIF_INSTALL_BIND", f"{binds_of(repository)},{tar}:/usr/bin/tar")
        text = refused(add, "greet")
        assert list(Path(mine).iterdir()) == []
    assert "the image's system directories can't be copied" in text


def test_nothing_to_do(add):
    """V-04: if the image has all of the packages, there is no layer."""
    record, layer = add("hostname")
    assert record.requested == ["hostname"]
    assert not record.packages and not record.sha256 and not layer.exists()


def test_an_image_without_apt(add, small_image):
    """V-04: the message says why, and what works with every image."""
    text = refused(add, "greet", image=small_image("busybox"))
    assert "(busybox): it lacks apt-get, dpkg-status, perl. " in text
    assert "Packages of Python from PyPI work with every image" in text


def test_a_truncated_image(add, base_image, tmp_path):
    """V-04: it is refused as without system packages."""
    (tmp_path / "short.sif").write_bytes(base_image.read_bytes()[:1_000_000])
    assert "short.sif is an incomplete SIF file" in refused(add, "greet", image=tmp_path / "short.sif")


def test_no_network(add, monkeypatch):
    """V-04: apt's own words, and what to look at."""
    monkeypatch.delenv("EBSIF_INSTALL_BIND")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    text = refused(add, "greet")
    assert text.startswith("System packages can't be added: the package lists can't be fetched:\n")
    assert "127.0.0.1" in text
    assert "a proxy (http_proxy) if it needs one?" in text


def test_an_image_without_sources(add, tmp_path, monkeypatch):
    """V-04: not the network is suspected, but a list of sources is asked for."""
    (tmp_path / "empty").write_text("")
    monkeypatch.setenv("EBSIF_INSTALL_BIND", f"{tmp_path}/empty:/etc/apt/sources.list")
    text = refused(add, "greet")
    assert "The image has no sources for apt. Write a sources.list for Debian GNU/Linux 12 (bookworm), then" in text
    assert "network" not in text


def test_a_directory_for_temporary_files_that_can_not_be_used(add, monkeypatch):
    """V-04: mounted noexec, or too small: named, with what to do."""
    real = os.statvfs
    monkeypatch.setattr(
        os, "statvfs", lambda path: dataclasses.make_dataclass("Status", ["f_flag"])(real(path).f_flag | os.ST_NOEXEC)
    )
    assert "(it is mounted noexec): set TMPDIR to another directory" in refused(add, "greet")
    monkeypatch.setattr(os, "statvfs", real)
    # what tar says
    script = "echo 'tar: text: Cannot write: No space left on device'; exit 2"
    monkeypatch.setattr(
        "easybuild.easyblocks.generic.container.system.packages.sh_command",
        lambda name, *arguments: ["sh", "-c", script] if name == "copy-system.sh" else sh_command(name, *arguments),
    )
    text = refused(add, "greet")
    assert "the disk is full" in text
    assert "need room in " in text and "export TMPDIR=DIRECTORY" in text


def test_mksquashfs_is_missing(add, monkeypatch):
    """V-04: named before the image is started."""
    monkeypatch.setattr("easybuild.easyblocks.generic.container.overlay.which", lambda *_, **__: None)
    assert "mksquashfs not found on PATH" in refused(add, "greet")


# --- ebsif extend

CATALOG = """\
name: Base
families:
  base: {homepage: https://example.org/, file: example.sif, suffix: -base, init: none, venv: false}
  venv: {homepage: https://example.org/, file: example.sif, suffix: -base, init: conda-injected, conda_env: pytorch,
         venv: true, venv_name: pytorch}
containers:
  - {family: base, version: 1.0}
  - {family: venv, version: 2.0}
"""


def test_extending_a_module(site, layered, repository, tmp_path):
    """
    V-04: --check simulates: names that there aren't, what would come; they are added, also without user software.

    The layer is the same as that of another module with these packages on this image, byte for byte.
    """
    folder = tmp_path / "sites/local/containers"
    folder.mkdir(parents=True)
    (folder / "Base.yaml").write_text(CATALOG)

    def extend(*words, status=0, base="Base/1.0"):
        command = ["ebsif", "extend", base, "--catalog", tmp_path / "sites", "--name", "mine", "--date", "1", *words]
        result = site.run([*command, "--", *site.eb_options], check=False, EBSIF_INSTALL_BIND=binds_of(repository))
        assert result.returncode == status, result.stdout + result.stderr
        return result

    wrong = extend("--apt", "greeet", "--check", status=1)
    assert wrong.stdout.startswith(
        "no: Base/mine can't be installed: --apt: no package 'greeet' in the sources of this image ("
    )
    assert "; did you mean greet" in wrong.stdout
    # nothing is installed, so nothing fails
    planned = extend("--apt", "greet", "--apt", "hostname", "failing", "--check")
    assert planned.stdout.splitlines() == [
        "+ greet 1:1.0-2     system package, asked for",
        "= hostname          system package, in the image",
        "+ failing 1.0       system package, asked for",
        "+ 1 system package  dependencies",
        "yes: Base/mine can be installed: 3 system packages",
    ]
    planned = extend("--apt", "hostname=99.0", "--allow-upgrade", "hostname", "--check")
    assert planned.stdout.splitlines()[0] == "+ hostname 99.0  system package, instead of 3.23+nmu1"
    extend("--apt", "greet")
    assert site.bash("module load Base/1.0-base-mine-1; singularity exec $SIF greet").stdout == SEEN + "secret\n"
    # commands run without Python packages, too, where there is user software
    commands = ["--apt", "greet", "--post", "greet >$VIRTUAL_ENV/said", "--verify"]
    expected = "Base/1.0-base can't have --post or --verify: it has no user software"
    assert expected in extend(*commands, "true", "--check", status=3).stderr
    extend(*commands, "cp $VIRTUAL_ENV/said /user-software/verified", base="Base/2.0")
    script = "module load Base/2.0-base-mine-1; singularity exec $SIF sh -c 'cat /user-software/verified'"
    said = site.bash(script).stdout
    assert said.startswith(SEEN)
    made = site.root("Base/1.0-base-mine-1") / LAYER
    assert made.read_bytes() == (root_of(layered) / LAYER).read_bytes()
