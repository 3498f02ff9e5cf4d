"""What the signature of an image that was converted is worth: whose word counts, and the logins for cosign."""

import grp
import json
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import verification
from easybuild.easyblocks.generic.container.imagesource import ImageSource
from easybuild.easyblocks.generic.container.verification import Verification
from httpfiles import digest_of
from noted_images import DIGEST, SIF, SOURCE, verify, write_note

pytestmark = pytest.mark.usefixtures("configuration")

# what cosign prints
SIGNED = [{"critical": {"image": {"docker-manifest-digest": DIGEST}}}]


def test_notes_on_what_was_fetched(noted_image):
    """R-04: the signature of the digest in 'image_source' counts for the file that was made from it."""
    signature = verify(noted_image)
    assert (signature.state, signature.details) == ("verified", SOURCE)
    assert signature.sha256 == digest_of(SIF)[7:]
    # the tag is no part of what was signed
    assert verify(noted_image, SOURCE.replace(":1@", ":2@")).state == "verified"


@pytest.mark.parametrize("source", [
    None, SOURCE.partition("@")[0], SOURCE.replace("1" * 64, "2" * 64), SOURCE.replace("registry", "other"),
    SOURCE.replace("ai/x", "ai/y"), SOURCE.replace("docker", "oras")])
def test_notes_on_other_sources(noted_image, source):
    """R-04: a note on another source than the easyconfig's, or without a digest there, says nothing."""
    assert verify(noted_image, source).state == "unsigned"


def test_notes_on_other_files(noted_image):
    """R-04: a note on another content, or one that can't be read, says nothing."""
    noted_image.write_bytes(SIF + b"altered")
    assert verify(noted_image).state == "unsigned"
    write_note(noted_image, source="docker://NOT A SOURCE")
    assert verify(noted_image).state == "unsigned"


@pytest.mark.parametrize("name", ["x.sif", "x.sif.source.json", ".", ".."])
def test_notes_that_others_can_write(noted_image, name):
    """R-04: where others can write image or note, their word doesn't count; the message names what they can write."""
    path = (noted_image.parent / name).resolve()
    mode = path.stat().st_mode & 0o777
    path.chmod(mode | 0o002)
    signature = verify(noted_image)
    assert signature.state == "unknown"
    assert str(signature).endswith(f"(accounts other than yours and root can change {path})")
    with pytest.raises(Exception, match="`chmod go-w`"):
        verification.check_required(signature, noted_image)
    path.chmod(mode)
    assert verify(noted_image).state == "verified"


@pytest.mark.parametrize(("change", "is_closed"), [
    ({}, True), ({"members": ["bob"]}, False), ({"name": "project"}, False), ({"primary": "bob"}, False),
    ({"attributes": ["system.posix_acl_access"]}, False)])
def test_the_group_of_one_account(noted_image, monkeypatch, change, is_closed):
    """R-04: a directory that only this account's own group may write to is closed; an ACL may let others in."""
    own = "someone"
    group = SimpleNamespace(gr_name=change.get("name", own), gr_mem=change.get("members", [own]))
    accounts = {name: SimpleNamespace(pw_name=name, pw_gid=7, pw_uid=os.getuid())
                for name in (own, change.get("primary", own))}
    noted_image.parent.chmod(0o775)
    monkeypatch.setattr(grp, "getgrgid", lambda _: group)
    monkeypatch.setattr(pwd, "getpwnam", accounts.__getitem__)
    monkeypatch.setattr(pwd, "getpwall", accounts.values)
    monkeypatch.setattr(verification.os, "stat", with_group(7))
    monkeypatch.setattr(verification.os, "listxattr", lambda _: change.get("attributes", []))
    assert (verification.writable_by_others(str(noted_image)) is None) == is_closed


def test_accounts_are_not_listed_without_need(noted_image, monkeypatch):
    """E-01: there may be many of them, on a server; they matter only where the group can write."""
    monkeypatch.setattr(pwd, "getpwall", lambda: pytest.fail("asked for all accounts"))
    assert verification.writable_by_others(str(noted_image)) is None


def with_group(number):
    """Return a stat of files that are all of one group."""
    stat = os.stat

    def changed(path, **options):
        found = list(stat(path, **options))
        found[5] = number
        return os.stat_result(found)

    return changed


@pytest.mark.parametrize(("fingerprint", "state"), [("1" * 40, "verified"), ("2" * 40, "foreign")])
def test_keys_of_the_administrator(tmp_path, monkeypatch, fingerprint, state):
    """R-04: a signature that the runtime's own keyring verifies counts only if the key is one of those named."""
    answers = {"import": "", "list": f"Fingerprint: {'1' * 40}",
               "verify": json.dumps({"SignerKeys": [{"Signer": {"Name": "x", "Fingerprint": fingerprint}}]})}
    key = tmp_path / "site.asc"
    key.write_text("a key")
    verifying = Verification(SimpleNamespace(path="apptainer"), [str(key)], str(tmp_path / "keyring"))
    monkeypatch.setattr(verifying, "run", lambda command, **_: SimpleNamespace(
        exit_code=0, stderr="", output=next(text for word, text in answers.items() if word in command)))
    monkeypatch.setattr(verification, "signers", lambda image: [fingerprint])
    assert verifying.by_pgp("x.sif").state == state


@pytest.mark.parametrize(("host", "name"), [("registry.example", "registry.example"),
                                            ("docker.io", "https://index.docker.io/v1/")])
def test_logins_for_cosign(tmp_path, monkeypatch, host, name):
    """R-04, R-09: cosign gets the login for one registry, as the runtime would find it, in a private file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for place, registry in ((".apptainer/docker-config.json", "other.example"), (".docker/config.json", host)):
        (tmp_path / place).parent.mkdir()
        auths = {registry: {"auth": "bWU6cGFzc3dvcmQ="}, "third.example": {"auth": "bWU6b3RoZXI="}}
        (tmp_path / place).write_text(json.dumps({"auths": auths}))
    seen = {}

    def run(command, DOCKER_CONFIG):  # noqa: N803
        config = Path(DOCKER_CONFIG, "config.json")
        seen.update(logins=json.loads(config.read_text())["auths"], folder=config.parent,
                    modes=[path.stat().st_mode & 0o777 for path in (config, config.parent)], command=command)
        return SimpleNamespace(exit_code=0, output=json.dumps(SIGNED))

    key = tmp_path / "pem"
    key.write_text("-----BEGIN PUBLIC KEY-----")
    verifying = Verification(SimpleNamespace(path="apptainer"), [str(key)], str(tmp_path))
    monkeypatch.setattr(verification, "which", lambda *names, **options: "cosign")
    monkeypatch.setattr(verifying, "run", run)
    source = ImageSource.parse(f"docker://{host}/ai/x@{DIGEST}")
    assert verifying.of_source(source).state == "verified"
    assert seen["logins"] == {name: {"auth": "bWU6cGFzc3dvcmQ="}}
    assert seen["modes"] == [0o600, 0o700]
    assert not seen["folder"].exists()
    assert not any("password" in word or "bWU6" in word for word in seen["command"])
    monkeypatch.setenv("APPTAINER_DOCKER_USERNAME", "other")
    monkeypatch.setenv("APPTAINER_DOCKER_PASSWORD", "words")
    verifying.of_source(source)
    assert seen["logins"] == {name: {"auth": "b3RoZXI6d29yZHM="}}
