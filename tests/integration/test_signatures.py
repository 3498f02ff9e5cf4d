"""Signatures of images, made and verified by the real runtime, and by cosign in a registry."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import ocilayouts
import pytest
from ebsif_command import run_ebsif
from parts import part
from registry import ACCOUNT, PASSWORD

TEXT = "init = 'none'\nsignature = '{signature}'\nsignature_keys = {keys}\n"


@pytest.fixture(scope="module")
def signing(tmp_path_factory, small_image):
    """
    A directory with images: signed with a PGP key, with a PEM key, with an unknown key, unsigned, altered, extended.

    The public keys are site.asc and site.pem.
    """
    folder = tmp_path_factory.mktemp("signing")

    def run(*command, keys="keys", **options):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True,
                       env={**os.environ, "APPTAINER_KEYSDIR": str(folder / keys)}, **options)

    for keys, name in (("keys", "Site"), ("other", "Other")):
        run("apptainer", "key", "newpair", "--name", name, "--email", "s@example.org", "--comment", "",
            "--password", "", "--push=false", "--bit-length", "2048", keys=keys)
    run("apptainer", "key", "export", "--armor", "site.asc", input="0\n")
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "private.pem")
    run("openssl", "ec", "-in", "private.pem", "-pubout", "-out", "site.pem")
    for name in ("unsigned", "signed", "pem", "foreign"):
        shutil.copy(small_image("busybox"), folder / f"{name}.sif")
    run("apptainer", "sign", "--keyidx", "0", "signed.sif")
    run("apptainer", "sign", "--keyidx", "0", "foreign.sif", keys="other")
    run("apptainer", "sign", "--key", "private.pem", "pem.sif")
    altered = bytearray((folder / "signed.sif").read_bytes())
    altered[600_000] ^= 1
    (folder / "altered.sif").write_bytes(altered)
    shutil.copy(folder / "signed.sif", folder / "extended.sif")
    (folder / "more").write_bytes(bytes(4096))
    run("apptainer", "sif", "add", "extended.sif", "more", "--datatype", "4", "--parttype", "4", "--partfs", "1",
        "--partarch", "2", "--groupid", "0")
    return folder


@pytest.fixture
def installing(site, signing):
    """A function that installs easyconfigs {name: (image, signature)}; it returns the site and the results."""
    def install(images, keys=("site.asc", "site.pem"), more="", **environment):
        keys = [str(signing / name) for name in keys]
        for image in {image for image, _ in images.values()}:
            if (signing / f"{image}.sif").exists():
                shutil.copy(signing / f"{image}.sif", site.sources)
        texts = {name: f"easyblock = 'ContainerInstall'\nsources = ['{image}.sif']\nversionsuffix = '-{name}'\n"
                 + TEXT.format(signature=signature, keys=keys) + more for name, (image, signature) in images.items()}
        return site, site.eb_each(texts, **environment)

    return install


def record(site, name):
    """Return what an installation has recorded on its image."""
    path = site.prefix / f"eb/software/Example/1.0-{name}/share/ebsif/lock.json"
    return json.loads(path.read_text())["image"]


def test_images_signed_after_they_were_recorded(signing, tmp_path):
    """R-05, R-04: `ebsif update` tells an image that has only got a signature from one that was altered as well."""
    images = tmp_path / "images"
    images.mkdir()
    for version, name in (("1", "signed"), ("2", "altered"), ("3", "extended")):
        shutil.copy(signing / f"{name}.sif", images / f"tool-{version}.sif")
    before = (signing / "unsigned.sif").read_bytes()
    recorded = f"sha256: {hashlib.sha256(before).hexdigest()}, size: {len(before)}"
    records = tmp_path / "own/mine/containers"
    records.mkdir(parents=True)
    (records / "Tool.yaml").write_text(
        "name: Tool\nfamilies:\n  tool: {homepage: 'https://tool.example', description: x, file: 'tool-{version}.sif', "
        "init: none}\ncontainers:\n" + "".join(f"  - {{family: tool, version: '{version}', {recorded}}}\n"
                                                for version in "123"))
    (records.parent / "site.yaml").write_text(
        f"name: mine\ndescription: x\nimages: {{directories: [{{path: '{images}'}}]}}\n")
    result = run_ebsif(["update", "--site", "mine", "--catalogue", tmp_path / "own"])
    signed = (images / "tool-1.sif").read_bytes()
    assert f"Tool/1: its image {images}/tool-1.sif was signed since the record was written, and is the same otherwise" \
        f": correct 'sha256' ({hashlib.sha256(signed).hexdigest()}) and 'size' ({len(signed)})" in result.stdout
    for version in "23":
        assert f"Tool/{version}: its image {images}/tool-{version}.sif was replaced or truncated: " in result.stdout
    assert result.stdout.count("warning: ") == 3


def test_required_signatures(installing):
    """R-04: images that are unsigned, signed by others, altered or extended are refused before they are copied."""
    names = ("unsigned", "foreign", "altered", "extended", "signed", "pem")
    site, results = installing({name: (name, "required") for name in names})
    said = {name: " ".join(results[name].stdout.split()) for name in names}
    assert "is not signed, and the easyconfig requires a signature" in said["unsigned"]
    assert "is not signed with one of the keys in 'signature_keys' (signed by " in said["foreign"]
    assert "was altered after it had been signed (integrity: data object integrity compromised" in said["altered"]
    assert "was altered after it had been signed (integrity: non-signature object" in said["extended"]
    for name in names[:4]:
        assert results[name].returncode == 1, said[name]
        assert "copying" not in said[name]
        assert not list((site.prefix / f"eb/software/Example/1.0-{name}").glob("*"))
    for name, signer in (("signed", "Site <s@example.org> ("), ("pem", "site.pem")):
        assert results[name].returncode == 0, said[name]
        found = record(site, name)["signature"]
        assert found["state"] == "verified"
        assert found["details"].startswith(signer)
        # so does the help of the module, and `ebsif show`
        assert f"The image is signed by {signer}" in (site.modules / f"Example/1.0-{name}.lua").read_text()
        shown = site.run(["ebsif", "show", site.prefix / f"eb/software/Example/1.0-{name}"]).stdout
        assert f"the image is signed by {signer}" in shown


def test_recorded_signatures(installing):
    """R-04: where signatures are recorded, an image is installed whatever they are; warning, help and record say it."""
    site, results = installing({"mine": ("foreign", "recorded"), "none": ("unsigned", "ignored")}, keys=["site.pem"])
    assert "WARNING: the image foreign.sif is not signed with one of the keys" in results["mine"].stdout
    assert record(site, "mine")["signature"]["state"] == "foreign"
    help_text = (site.modules / "Example/1.0-mine.lua").read_text()
    assert "The image is not signed with one of the keys in 'signature_keys' (signed by" in help_text
    bill = (site.prefix / "eb/software/Example/1.0-mine/share/ebsif/sbom.cdx.json").read_text()
    assert '"name": "ebsif:signature"' in bill
    assert "signature" not in record(site, "none")
    assert "WARNING: the image" not in results["none"].stdout


def test_wrong_keys(installing, signing):
    """R-04: keys that are missing, private or no keys are named; without keys nothing can be required."""
    _, results = installing({"one": ("signed", "required")}, keys=["private.pem"])
    assert "private.pem is a private key" in results["one"].stdout
    (signing / "no-key").write_text("no key")
    _, results = installing({"two": ("signed", "required")}, keys=["no-key"])
    assert "no-key is no public key that apptainer can read" in results["two"].stdout
    _, results = installing({"three": ("signed", "required")}, keys=[])
    assert "'signature' is 'required', so 'signature_keys' must name" in results["three"].stdout


def test_signatures_in_registries(installing, signing, site, root_of_busybox, private_registry, tmp_path):
    """R-04, R-09: cosign verifies what is converted, by digest, with the runtime's login; anything else is refused."""
    cosign = Path(part("EBSIF_TEST_COSIGN"))
    search = [path for path in os.environ["PATH"].split(":") if not Path(path, "cosign").exists()]
    site.run(["apptainer", "registry", "login", "--username", ACCOUNT, "--password", PASSWORD,
              f"docker://{private_registry.host}"])
    # the runtime reads it first
    (site.home / ".apptainer").mkdir(exist_ok=True)
    (site.home / ".apptainer/docker-config.json").write_text('{"auths": {"other.example": {"auth": "bWU6eA=="}}}')
    sources = {}
    for name in ("signed", "unsigned"):
        layout = tmp_path / name
        digest = ocilayouts.add_image(layout, root_of_busybox, "1", {"name": name})
        place = f"{private_registry.host}/signatures/{name}"
        site.run(["skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false", f"oci:{layout}:1",
                  f"docker://{place}:1"], REGISTRY_AUTH_FILE=site.home / ".docker/config.json")
        sources[name] = f"image_source = 'docker://{place}@{digest}'\n"
        if name == "signed":
            place_of_signed, digest_of_signed = f"{place}@{digest}", digest
            site.run([cosign, "generate-key-pair", "--output-key-prefix", signing / "cosign"], COSIGN_PASSWORD="")
            site.run([cosign, "sign", "--yes", "--key", signing / "cosign.key", "--tlog-upload=false",
                      "--allow-http-registry", f"{place}@{digest}"], COSIGN_PASSWORD="")
    paths = {"without": ":".join(search), "with": ":".join([str(cosign.parent), *search])}
    for source, keys, path, expected in (
            ("signed", ["cosign.pub"], "without", "can't be verified here (cosign is not on PATH)"),
            ("unsigned", ["cosign.pub"], "with", "is not signed, and the easyconfig requires"),
            ("signed", ["site.pem"], "with", "is not signed with one of the keys in 'signature_keys' (no matching sig"),
            ("signed", ["site.asc"], "with", "cosign needs a key in PEM format")):
        _, results = installing({"x": ("converted", "required")}, keys, sources[source], PATH=paths[path])
        assert expected in " ".join(results["x"].stdout.split())
        assert not list(site.sources.rglob("converted*"))
    _, results = installing({"x": ("converted", "required")}, ["site.pem", "cosign.pub"], sources["signed"],
                            PATH=paths["with"])
    assert results["x"].returncode == 0, results["x"].stdout
    assert record(site, "x")["signature"] == {"state": "verified", "details": "cosign.pub"}
    assert PASSWORD not in results["x"].stdout
    # what cosign has saved needs no registry
    site.run([cosign, "save", "--dir", tmp_path / "saved", "--allow-http-registry", place_of_signed])
    saved = f"image_source = 'oci:{tmp_path}/saved@{digest_of_signed}'\n"
    _, results = installing({"z": ("saved", "required")}, ["cosign.pub"], saved, PATH=paths["with"])
    assert results["z"].returncode == 0, results["z"].stdout
    assert record(site, "z")["signature"] == {"state": "verified", "details": "cosign.pub"}
    # a note is the word of whoever can write it
    folder = site.sources / "e/Example"
    folder.chmod(0o777)
    _, results = installing({"y": ("converted", "required")}, ["cosign.pub"], sources["signed"], PATH=paths["with"])
    assert f"accounts other than yours and root can change {folder})" in " ".join(results["y"].stdout.split())
    assert results["y"].returncode == 1
