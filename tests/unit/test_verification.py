"""What the signature of an image that was converted is worth: whose word counts, and what failures of cosign mean."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import ocilayouts
import pytest
from easybuild.easyblocks.generic.container import verification
from easybuild.easyblocks.generic.container.imagenote import note_path
from easybuild.easyblocks.generic.container.imagesource import ImageSource
from easybuild.easyblocks.generic.container.signature import Signature
from easybuild.easyblocks.generic.container.verification import Verification
from easybuild.tools.build_log import EasyBuildError
from httpfiles import digest_of
from parts import part

pytestmark = pytest.mark.usefixtures("configuration")

SIF = bytes(32) + b"SIF_MAGIC" + bytes(300_000)
DIGEST = "sha256:" + "1" * 64
SOURCE = f"docker://registry.example/ai/x:1@{DIGEST}"
# what cosign prints
SIGNED = [{"critical": {"image": {"docker-manifest-digest": DIGEST}}}]


@pytest.fixture
def image(tmp_path):
    """An image that nobody has signed, with a note."""
    path = tmp_path / "images/x.sif"
    path.parent.mkdir(mode=0o755)
    path.write_bytes(SIF)
    write_note(path)
    for file in path.parent.iterdir():
        file.chmod(0o644)
    return path


def write_note(image, **changes):
    """Write a note on an image."""
    note = {"source": SOURCE, "source_digest": DIGEST, "sha256": digest_of(image.read_bytes())[7:], **changes}
    Path(note_path(str(image))).write_text(json.dumps(note))


def verify(image, source=SOURCE):
    """Return the Signature of an image, with a registry in which everything is signed."""
    verifying = Verification(SimpleNamespace(path="apptainer"), [], str(image.parent / "keyring"))
    verifying.of_source = lambda source: Signature("verified", str(source))
    return verifying.of_image(str(image), str(image), ImageSource.parse(source) if source else None)


def test_notes_on_what_was_fetched(image):
    """R-04: the signature of the digest in 'image_source' counts for the file that was made from it."""
    signature = verify(image)
    assert (signature.state, signature.details) == ("verified", SOURCE)
    assert signature.sha256 == digest_of(SIF)[7:]
    # the tag is no part of what was signed
    assert verify(image, SOURCE.replace(":1@", ":2@")).state == "verified"


@pytest.mark.parametrize("source", [
    None, SOURCE.partition("@")[0], SOURCE.replace("1" * 64, "2" * 64), SOURCE.replace("registry", "other"),
    SOURCE.replace("ai/x", "ai/y"), SOURCE.replace("docker", "oras")])
def test_notes_on_other_sources(image, source):
    """R-04: a note on another source than the easyconfig's, or without a digest there, says nothing."""
    assert verify(image, source).state == "unsigned"


def test_notes_on_other_files(image):
    """R-04: a note on another content, or one that can't be read, says nothing."""
    image.write_bytes(SIF + b"altered")
    assert verify(image).state == "unsigned"
    write_note(image, source="docker://NOT A SOURCE")
    assert verify(image).state == "unsigned"


@pytest.mark.parametrize("name", ["x.sif", "x.sif.source.json", ".", ".."])
def test_notes_that_others_can_write(image, name):
    """R-04: where others can write image or note, their word doesn't count; the message names what they can write."""
    path = (image.parent / name).resolve()
    mode = path.stat().st_mode & 0o777
    path.chmod(mode | 0o020)
    signature = verify(image)
    assert signature.state == "unknown"
    assert str(signature).endswith(f"(accounts other than yours and root can change {path})")
    with pytest.raises(Exception, match="`chmod go-w`"):
        verification.check_required(signature, image)
    path.chmod(mode)
    assert verify(image).state == "verified"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_notes_of_other_accounts(image):
    """R-04: the note of another account is its word."""
    os.chown(note_path(str(image)), 12345, -1)
    assert verify(image).state == "unknown"


@pytest.fixture
def pem(tmp_path):
    """A public key."""
    for words in (["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key"],
                  ["ec", "-in", "key", "-pubout", "-out", "pem"]):
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "pem"


def test_failures_of_cosign(tmp_path, monkeypatch, pem):
    """R-04: without a network, or without a key for it, nobody can say that an image is signed by somebody else."""
    monkeypatch.setenv("PATH", str(Path(part("EBSIF_TEST_COSIGN")).parent), prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path))
    runtime, source = SimpleNamespace(path="apptainer"), ImageSource.parse(f"docker://127.0.0.1:9/ai/x@{DIGEST}")
    signature = Verification(runtime, [str(pem)], str(tmp_path)).of_source(source)
    assert signature.state == "unknown"
    assert "connection refused" in signature.details
    assert "apptainer registry login" in signature.remedy
    signature = Verification(runtime, [], str(tmp_path)).of_source(source)
    assert (signature.state, signature.details) == ("unknown", "cosign needs a key in PEM format")


def test_layouts_without_signatures(tmp_path, monkeypatch, pem):
    """R-04, R-08: which layouts have signatures, and that archives have none, is said before anything is converted."""
    monkeypatch.setenv("PATH", str(Path(part("EBSIF_TEST_COSIGN")).parent), prepend=":")
    (tmp_path / "root").mkdir()
    digest = ocilayouts.add_image(tmp_path / "layout", tmp_path / "root", "1")
    ocilayouts.pack(tmp_path / "layout", tmp_path / "x.tar")
    verifying = Verification(SimpleNamespace(path="apptainer"), [str(pem)], str(tmp_path))
    for source, said in ((f"oci:{tmp_path}/layout:1@{digest}", r"only `cosign save --dir \w+` keeps in a layout\)"),
                         (f"oci-archive:{tmp_path}/x.tar", "Signatures of archives can't be verified: use a directory"),
                         (f"docker-archive:{tmp_path}/x.tar", "Signatures of archives can't be verified")):
        with pytest.raises(EasyBuildError, match=said):
            verifying.check_source(ImageSource.parse(source))
    # one with a SIF file is verified when it is here
    manifest = json.dumps({"config": {}, "layers": [{
        "digest": DIGEST, "size": 1, "mediaType": "application/vnd.sylabs.sif.layer.v1.sif"}]}).encode()
    digest = ocilayouts.add_blob(tmp_path / "layout", manifest)["digest"]
    (tmp_path / "layout/index.json").write_text(json.dumps({"manifests": [{"digest": digest}]}))
    verifying.check_source(ImageSource.parse(f"oci:{tmp_path}/layout@{digest}"))
    # signatures of something else in a layout are worth nothing
    monkeypatch.setattr(verifying, "run", lambda *_, **__: SimpleNamespace(
        exit_code=0, output=json.dumps(SIGNED), stderr=""))
    signature = verifying.of_source(ImageSource.parse(f"oci:{tmp_path}/layout@{digest}"))
    assert (signature.state, signature.details) == ("unknown", "the signatures there are of other images")


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
