"""What cosign says of images without a registry, and of layouts without signatures."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import ocilayouts
import pytest
from easybuild.easyblocks.generic.container.imagesource import ImageSource
from easybuild.easyblocks.generic.container.verification import Verification
from easybuild.tools.build_log import EasyBuildError
from noted_images import DIGEST
from parts import part

pytestmark = pytest.mark.usefixtures("configuration")

# what cosign prints
SIGNED = [{"critical": {"image": {"docker-manifest-digest": DIGEST}}}]


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
