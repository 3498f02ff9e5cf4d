"""Environments of others: what is checked, kept, masked and refused. No image, registry or installation is needed."""

import datetime
import hashlib
import json
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.image.source import ImageSource
from easybuild.easyblocks.generic.container.record.lockfile import Record
from easybuild.easyblocks.generic.container.values import SQUASHFS
from ebsif.cli import main
from ebsif.environments import artifact, crate, portable, repeating
from ebsif.errors import EbsifError
from ebsif.images.registry.login import VARIABLES, login_for
from ebsif.images.registry.reference import open_repository
from ebsif.installed.names import Names
from ebsif.scan import tags
from prefixes import EASYCONFIG, MINE

CONTENT = bytes(range(256)) * 5000
SHA256 = "0123456789abcdef" * 4
RECORD = {
    "image": {"file": "a.sif", "sha256": "0" * 64},
    "venv_packages": ["einops==0.8.1"],
    "venv_name": "pytorch",
    "module": {"name": "PyTorch", "version": "2.13.0", "versionsuffix": "-mine-1"},
    "stages": [{"name": "requirements", "requirements": "einops\n"}],
}


def share(folder, **changes):
    """Write an environment, with changes to its lock, into a directory, and return its reference."""
    file = folder / "shared.squashfs"
    file.write_bytes(CONTENT)
    record = {**RECORD, "user_software": {SQUASHFS: hashlib.sha256(CONTENT).hexdigest()}}
    texts = {"lock.json": json.dumps({**record, **changes}), "sbom.cdx.json": "{}"}
    now = datetime.datetime.now(datetime.timezone.utc)
    one = portable.Portable("PyTorch/2.13.0-mine-1", Record.from_content(record), texts, file, now, None)
    reference = f"oci:{folder}/layout:1"
    artifact.push(one, open_repository(reference), lambda _: None)
    return reference


def names_in(folder):
    """Return the names of the files in a directory (set of str)."""
    return {one.name for one in folder.iterdir()}


def test_user_software_that_is_replaced_is_kept(eb_prefix, tmp_path, ebsif, monkeypatch):
    """R-06: a file of that name is an error, and renamed with --rebuild; nothing else is left in the directory."""
    eb_prefix.install(MINE)
    place = tmp_path / "place"
    command = ["pull", share(tmp_path), "--name", "theirs", "--date", "1", "-o", str(place)]
    assert main(command) == 0
    (squashfs,) = place.glob("*.squashfs")
    assert squashfs.read_bytes() == CONTENT
    assert squashfs.with_suffix(".eb").read_text().startswith("# Written by `ebsif pull`: yours to change.\n")
    there = {squashfs.with_suffix(suffix).name for suffix in (".eb", ".lock.json", ".squashfs")}
    assert names_in(place) == there
    squashfs.write_bytes(b"of the person")
    assert f"{squashfs} exists already, with different content: use --rebuild" in ebsif(*command, status=3).err
    assert squashfs.read_bytes() == b"of the person"
    monkeypatch.setattr("ebsif.environments.installing.install", lambda *_: 0)
    assert f"the previous user software is now {squashfs}.old\n" in ebsif(*command, "--rebuild").err
    assert squashfs.read_bytes() == CONTENT
    assert squashfs.with_name(f"{squashfs.name}.old").read_bytes() == b"of the person"
    squashfs.with_suffix(".lock.json").write_text("{}")
    assert f"the previous lock is now {squashfs.with_suffix('.lock.json')}.old\n" in ebsif(*command, "--rebuild").err
    assert names_in(place) == {*there, f"{squashfs.name}.old", f"{squashfs.stem}.lock.json.old"}


def test_a_transfer_that_is_cut(eb_prefix, tmp_path, ebsif):
    """R-03, R-06: nothing of it stays, neither in the directory nor of the file that it would replace."""
    eb_prefix.install(MINE)
    reference, place = share(tmp_path), tmp_path / "place"
    command = ["pull", reference, "--name", "theirs", "--date", "1", "-o", str(place)]
    blob = tmp_path / "layout/blobs/sha256" / hashlib.sha256(CONTENT).hexdigest()
    blob.write_bytes(CONTENT[:-1])
    assert "was cut after " in ebsif(*command, status=3).err
    assert not list(place.iterdir())
    blob.write_bytes(CONTENT)
    assert main(command) == 0


def test_an_image_that_is_not_here(eb_prefix, tmp_path, capsys, ebsif):
    """R-06: another image is no substitute; the message says what to type; --check writes nothing."""
    eb_prefix.install(MINE)
    reference, place = share(tmp_path, image={"file": "b.sif", "sha256": "1" * 64}), tmp_path / "place"
    command = ["pull", reference, "--name", "theirs", "-o", str(place)]
    expected = (
        "the image b.sif of PyTorch/2.13.0-mine-1 is neither in an installed module nor in the catalog (its "
        f"SHA256 is {'1' * 64}), and its user software fits no other image. To install the packages of its lock on "
        "another one: {}ebsif extend CONTAINER --from-lock {} --name theirs\n"
    )
    for option in ("--check", "--dry-run"):
        assert main([*command[:-2], option]) == 3
        name = "PyTorch-2.13.0-mine-1.lock.json"
        then = expected.format("`ebsif pull` without --check or --dry-run writes the lock, then ", name)
        assert then in capsys.readouterr().err
    assert not list(tmp_path.glob("*.lock.json"))
    place.mkdir()
    first = place / name
    first.write_text("{}")
    said = ebsif(*command, status=3).err
    assert "the image b.sif of" in said and f"{first} exists already" in said and "--date" not in said
    assert first.read_text() == "{}"
    first.unlink()
    for more, printed in (([], f"{first}\n"), (["--json"], "")):
        said = ebsif(*command, *more, status=3)
        assert expected.format("", first) in said.err and said.out == printed
        assert json.loads(first.read_text())["venv_packages"] == RECORD["venv_packages"]
    assert names_in(place) == {first.name}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"image": {"file": "a.sif"}}, "it has no SHA256 of the image"),
        ({"image": {"file": "a.sif", "sha256": "1"}}, "it has no SHA256 of the image"),
        ({"image": {"file": "../a.sif", "sha256": SHA256}}, "without a directory"),
        ({"venv_packages": None}, "damaged: 'venv_packages' has a wrong type"),
        ({"venv_packages": ["--index-url https://x.example==1"]}, "lines like name==version"),
        ({"venv_packages": ["--index-url=https://x.example==1"]}, "lines like name==version"),
        ({"venv_name": "../x"}, "the name of a directory"),
        ({"module": {"name": "a\nb"}}, "should be printable"),
        ({"stages": [{"requirements": "x"}]}, "damaged: 'stages' has a wrong type"),
        ({"stages": [{"name": "a", "requirements": [{"name": "x"}]}]}, "damaged: 'stages' has a wrong type"),
        ({"stages": [{"name": "a", "requirements": "x", "newer": 1}]}, "in the stage 'a', 'newer' is unknown or wrong"),
        ({"stages": [{"name": "a", "requirements": "x", "options": [1]}]}, "in the stage 'a', 'options' is unknown or"),
        ({"stages": []}, "there is nothing to repeat"),
        *(
            ({"stages": [{"name": "a", "requirements": "x", "modules": [path]}]}, "is not the name of a module")
            for path in ("/tmp/evil.tcl", "./evil", "gcc/../../tmp/evil", "-f", "gcc;id", "~/evil")
        ),
    ],
)
def test_locks_of_others_are_checked(tmp_path, changes, problem):
    """E-07, R-06: from a file and from a registry: what is missing or damaged is said, before anything is done."""
    path = tmp_path / "lock.json"
    path.write_text(json.dumps({**RECORD, **changes}))
    with pytest.raises(EbsifError, match=problem):
        repeating.read(path)
    with pytest.raises(EbsifError, match=problem):
        artifact.read(open_repository(share(tmp_path, **changes)))


# what a stage can do besides installing packages of the usual index, and how that is shown
STAGE = {
    "name": "a",
    "requirements": ["einops", "--find-links /tmp/x", "mine @ https://x.example/mine.whl"],
    "modules": ["gcc/13"],
    "env": {"PIP_INDEX_URL": "https://y.example"},
    "index_url": "https://z.example/simple",
    "options": ["--trusted-host=z.example"],
    "pre": ["touch /tmp/before"],
    "post": [["rm", "-r", "a \x1b[2Jb"]],
    "verify": ["id > /tmp/pwn"],
}
SHOWN = """\
  stage 'a' loads the module: gcc/13
  stage 'a' sets: PIP_INDEX_URL=https://y.example
  stage 'a' takes packages from: https://z.example/simple
  stage 'a' gives pip: --trusted-host=z.example
  stage 'a' runs: touch /tmp/before
  stage 'a' runs: rm -r 'a \\x1b[2Jb'
  stage 'a' runs: id > /tmp/pwn
  stage 'a' gives pip: --find-links /tmp/x
  stage 'a' gives pip: mine @ https://x.example/mine.whl
"""


@pytest.mark.parametrize("command", ["extend", "pull"])
def test_what_a_lock_runs_is_shown_and_asked_for(command, eb_prefix, tmp_path, capsys, ebsif, monkeypatch):
    """P-07: commands, modules and indexes of somebody else's lock, before any is run or used."""
    eb_prefix.install(MINE)
    (tmp_path / "lock.json").write_text(json.dumps({**RECORD, "stages": [STAGE]}))
    reference = share(tmp_path, stages=[STAGE])
    source = ["extend", "--from-lock", "lock.json"] if command == "extend" else ["pull", reference]
    words = [*source, "--name", "theirs", "--date", "1"]
    made = []
    monkeypatch.setattr("ebsif.environments.making.make", lambda *_: made.append(1) or 0)
    ways = ([], ["--rebuild"], *([["--check"]] if command == "extend" else []))
    for way in ways:
        monkeypatch.setattr("sys.argv", ["ebsif", *words, *way])
        said = ebsif(*words, *way, status=3).err
        assert SHOWN in said and made == []
        assert f"if you trust whoever wrote it, ebsif {command} " in said
        assert said.endswith(f"{' '.join(['1', *way])} --yes\n")
        # at a terminal
        with monkeypatch.context() as terminal:
            terminal.setattr("ebsif.environments.trust.confirmed", lambda *_: False)
            assert main([*words, *way]) == 1
        assert "nothing was done" in capsys.readouterr().err and made == []
    # nothing is run when the easyconfig is written, or with consent
    for way in (["-o", "place"], *([*one, "--yes"] for one in ways)):
        assert SHOWN in ebsif(*words, *way).err
        assert made.pop() and not made
    # only packages: nothing to ask
    (tmp_path / "lock.json").write_text(json.dumps(RECORD))
    if command == "extend":
        assert "besides packages" not in ebsif(*words).err


def test_locks_with_something_missing(tmp_path):
    """E-07, R-06: no packages are an error, and what neither lock nor file has is not the same."""
    record = {key: value for key, value in RECORD.items() if key != "venv_packages"}
    with pytest.raises(EbsifError, match="lines like name==version"):
        repeating.repeatable(Record.from_content(record), "x")
    found = artifact.read(open_repository(share(tmp_path, user_software={})))
    with pytest.raises(EbsifError, match="user-software.squashfs doesn't match the lock"):
        artifact.download(found, tmp_path / "place", lambda _: None)
    assert not (tmp_path / "place").exists()
    easyconfig = tmp_path / "x.eb"
    easyconfig.with_suffix(".lock.json").write_text(json.dumps({**RECORD, "image": {"file": "a.sif"}}))
    assert not repeating.is_same(Record.from_content(RECORD), easyconfig)


def installed(prefix, text="", **record):
    """Return an installation whose easyconfig has more text."""
    prefix.install(MINE, text=EASYCONFIG + text, **record)
    return Names().installation(MINE)


@pytest.mark.parametrize(
    "text",
    [
        "container_env = {'HF_TOKEN': 'hf_oneverysecret'}",
        "container_env = dict(HF_TOKEN='hf_oneverysecret')",
        "container_env = {}\ncontainer_env['HF_TOKEN'] = 'hf_oneverysecret'",
        "container_env = {'URL': 'https://me' ':oneverysecret@host.example'}",
        "local_password = 'oneverysecret'",
        "local_env = {'HF_TOKEN': 'hf_oneverysecret'}",
    ],
)
def test_credentials_in_an_easyconfig_are_not_shared(eb_prefix, text):
    """R-09: however they are written; the message names the parameter, and doesn't repeat them."""
    with pytest.raises(EbsifError, match=f"'{text.split()[0]}' in .* has a credential") as error:
        portable.of(installed(eb_prefix, text), with_user_software=False)
    assert "oneverysecret" not in str(error.value)


@pytest.mark.parametrize(
    "stage",
    [
        {"post": [["login", "--token", "hf_oneverysecret"]]},
        {"env": {"HF_TOKEN": "hf_oneverysecret"}},
        {"requirements": "--index-url https://me:oneverysecret@registry.example/simple\n"},
    ],
)
def test_credentials_in_a_record_are_not_shared(eb_prefix, stage):
    """R-09: also a secret among the words of a command is refused."""
    with pytest.raises(EbsifError, match="'stages' in the record has a credential"):
        portable.of(installed(eb_prefix, stages=[{"name": "x", **stage}]), with_user_software=False)


def test_what_is_no_credential_is_shared(eb_prefix):
    """R-09: names of variables, numbers of tokens; a credential in a comment is one."""
    text = "container_env = {'HF_TOKEN': '$HF_TOKEN', 'MAX_TOKEN': '4096'}\n"
    package = portable.of(installed(eb_prefix, text), with_user_software=False)
    (name,) = [name for name in package.texts if name.endswith(".eb")]
    assert package.texts[name].endswith(text)
    (eb_prefix.software / MINE / "easybuild" / name).write_text(f"{EASYCONFIG}# https://me:oneverysecret@host\n")
    with pytest.raises(EbsifError, match=r"\.eb has a credential"):
        portable.of(Names().installation(MINE), with_user_software=False)


@pytest.mark.parametrize(
    ("label", "named", "expected"),
    [
        ("Apache-2.0 AND MIT", None, "Apache-2.0 AND MIT"),
        ("mit", None, "MIT"),
        ("See LICENSE.txt", None, None),
        ("", None, None),
        ("See LICENSE.txt", "CC0-1.0", "CC0-1.0"),
        (None, "MIT OR Apache-2.0", "MIT OR Apache-2.0"),
    ],
)
def test_licenses(eb_prefix, label, named, expected):
    """R-07: expressions of SPDX; a label of the image that is none counts as not stated."""
    labels = {} if label is None else {portable.LICENSES: label}
    image = {"file": "a.sif", "sha256": "0" * 64, "labels": labels}
    found = portable.of(installed(eb_prefix, image=image), named, with_user_software=False)
    assert found.license == expected
    url, properties = crate.license_of(found)
    assert url.startswith("https://spdx.org/licenses/") == (" " not in (expected or " "))
    assert properties["name"] == (expected or "not stated")


@pytest.mark.parametrize("command", [["push", MINE, "oci:layout:1"], ["export", MINE, "-o", "crate"]])
def test_wrong_licenses_are_refused(eb_prefix, tmp_path, ebsif, command):
    """R-07: by both commands, before anything is written."""
    eb_prefix.install(MINE)
    said = ebsif(*command, "--license", "free for all", status=3).err
    assert "--license free for all: should be in SPDX's list of licenses" in said
    assert not {"layout", "crate"} & names_in(tmp_path)


@pytest.mark.parametrize(("hosts", "is_sent"), [(["a.example"], True), (["a.example", "b.example"], False)])
def test_variables_with_a_password_are_for_one_registry(tmp_path, monkeypatch, capsys, hosts, is_sent):
    """R-09: `ebsif scan` asks many registries; user and password for one call of the runtime aren't for all."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (
        "APPTAINER_AUTH_FILE",
        "SINGULARITY_AUTH_FILE",
        "APPTAINER_CONFIGDIR",
        "SINGULARITY_CONFIGDIR",
        "DOCKER_CONFIG",
        *(name for names in VARIABLES for name in names),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_USERNAME", "me")
    monkeypatch.setenv("DOCKER_PASSWORD", "oneverysecret")
    seen = []

    def asked(place):
        seen.append(login_for(place.host))
        raise EbsifError("no answer")

    monkeypatch.setattr(tags, "open_repository", asked)
    tags.compare(
        SimpleNamespace(findings=[]),
        {ImageSource.parse(f"docker://{host}/{name}"): [] for host in hosts for name in "xy"},
    )
    assert len(seen) == 2 * len(hosts)
    assert all(bool(login) == is_sent for login in seen)
    assert ("user and password in variables" in capsys.readouterr().err) != is_sent
