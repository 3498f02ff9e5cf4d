"""Signatures of images, made and verified by the real runtime."""

import json
import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.image import signature
from parts import new_key

TEXT = "init = 'none'\nsignature_keys = {keys}\n"


@pytest.fixture(scope="module")
def signing(tmp_path_factory, small_image):
    """
    A directory with images: signed with a key, with an unknown one, with both, unsigned, altered, extended.

    The public keys are site.asc and other.asc.
    """
    folder = tmp_path_factory.mktemp("signing")

    def run(*command, keys="keys", **options):
        environment = {**os.environ, "APPTAINER_KEYSDIR": str(folder / keys)}
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment, **options)

    for keys, name in (("keys", "Site"), ("other", "Other")):
        run(*new_key(name), keys=keys)
    run("apptainer", "key", "export", "--armor", "site.asc", input="0\n")
    run("apptainer", "key", "export", "--armor", "other.asc", input="0\n", keys="other")
    run("apptainer", "key", "export", "--secret", "--armor", "private.asc", input="0\n\n")
    for name in ("unsigned", "signed", "foreign"):
        shutil.copy(small_image("busybox"), folder / f"{name}.sif")
    run("apptainer", "sign", "--keyidx", "0", "signed.sif")
    run("apptainer", "sign", "--keyidx", "0", "foreign.sif", keys="other")
    shutil.copy(folder / "signed.sif", folder / "both.sif")
    run("apptainer", "sign", "--keyidx", "0", "both.sif", keys="other")
    altered = bytearray((folder / "signed.sif").read_bytes())
    altered[600_000] ^= 1
    (folder / "altered.sif").write_bytes(altered)
    shutil.copy(folder / "signed.sif", folder / "extended.sif")
    (folder / "more").write_bytes(bytes(4096))
    options = ["--datatype", "4", "--parttype", "4", "--partfs", "1", "--partarch", "2", "--groupid", "0"]
    run("apptainer", "sif", "add", "extended.sif", "more", *options)
    return folder


@pytest.fixture
def installing(site, signing):
    """A function that installs each image as -IMAGE, with these keys; it returns the outputs."""

    def install(*images, keys=("site.asc",)):
        for name in images:
            shutil.copy(signing / f"{name}.sif", site.sources)
        paths = [str(signing / name) for name in keys]
        texts = {
            name: f"easyblock = 'ContainerInstall'\nsources = ['{name}.sif']\nversionsuffix = '-{name}'\n"
            + TEXT.format(keys=paths)
            for name in images
        }
        return {name: (done.returncode, " ".join(done.stdout.split())) for name, done in site.eb_each(texts).items()}

    return install


def record(site, name):
    """Return what an installation has recorded on its image."""
    path = site.root(f"Example/1.0-{name}") / "share/ebsif/lock.json"
    return json.loads(path.read_text())["image"]


def test_signatures(site, installing):
    """R-04: images that are unsigned, signed by others, altered or extended are refused before they are copied."""
    refused = {
        "unsigned": "is not signed: get the signed image",
        "foreign": "which can't be verified: ",
        "both": "which can't be verified: ",
        "altered": "data object integrity compromised",
        "extended": "non-signature object",
    }
    said = installing(*refused, "signed")
    for name, problem in refused.items():
        status, text = said[name]
        assert (status, problem in text, "copying" in text) == (1, True, False), text
        assert not list(site.root(f"Example/1.0-{name}").glob("*"))
    assert said["signed"][0] == 0, said["signed"]
    (signer,) = record(site, "signed")["verified"]
    assert signer.startswith("Site <s@example.org> (")
    # so does the help of the module, and `ebsif show`
    assert f"The image is signed by {signer}" in (site.modules / "Example/1.0-signed.lua").read_text()
    assert signer in site.run(["ebsif", "show", site.root("Example/1.0-signed")]).stdout
    bill = site.run(["ebsif", "lock", site.root("Example/1.0-signed"), "--format", "sbom"]).stdout
    assert '"name": "ebsif:signature-verified"' in bill


def test_several_signers(site, installing):
    """R-04: an image needs the keys of all who have signed it."""
    status, text = installing("both", keys=("site.asc", "other.asc"))["both"]
    assert status == 0, text
    assert sorted(name.partition(" <")[0] for name in record(site, "both")["verified"]) == ["Other", "Site"]


def test_wrong_keys(installing, signing):
    """R-04: keys that are private or no keys are named."""
    assert "private.asc is a private key" in installing("signed", keys=["private.asc"])["signed"][1]
    (signing / "no-key").write_text("no key")
    expected = "no-key is no public key that the container runtime can read"
    assert expected in installing("signed", keys=["no-key"])["signed"][1]


def test_the_keyring_of_the_administrator(tmp_path, monkeypatch, configuration):
    """R-04: a signature that the runtime's own keyring verifies counts only if the key is one of those named."""
    said = {"verify": json.dumps({"SignerKeys": [{"Signer": {"Name": "Vendor", "Fingerprint": "AB" * 20}}]})}
    monkeypatch.setattr(signature, "signers", lambda path: ["AB" * 20])
    monkeypatch.setattr(
        signature,
        "run_with_keyring",
        lambda words, folder: SimpleNamespace(
            exit_code=0, output=said.get(words[0], f"Fingerprint: {said['ours']}"), stderr=""
        ),
    )
    for said["ours"], found in (("CD" * 20, []), ("ab" * 20, [f"Vendor ({'AB' * 20})"])):
        names, problem = signature.verify("x.sif", [], str(tmp_path / "keys"))
        assert (names, bool(problem)) == (found, not found)
