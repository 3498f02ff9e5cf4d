"""`ebsif show IMAGE`: contents of an image apart from Python packages."""

import json
import subprocess

import pytest
from easybuild.easyblocks.generic.container.image import sif
from ebsif import cli
from ebsif.images import inspection
from parts import copy_from_image, new_key
from support import write_program


@pytest.fixture(scope="module")
def image(small_image, tmp_path_factory):
    """An image with the files of OCI and Conda; the same image signed; the fingerprint of the key."""
    place = tmp_path_factory.mktemp("inspecting")
    root = copy_from_image(small_image("busybox"), place / "root", "bin", "etc", ".singularity.d")
    run = {"check": True, "timeout": 300, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    for name in ("usr", "proc", "sys", "dev", "tmp"):
        (root / name).mkdir(exist_ok=True)
    texts = {
        ".singularity.d/runscript": "#!/bin/sh\nOCI_ENTRYPOINT='\"/opt/entry.sh\"'\nOCI_CMD='\"tool\"'\nexec sh\n",
        ".singularity.d/labels.json": json.dumps({"org.opencontainers.image.version": "4.5.6", "x": "1"}),
        ".singularity.d/env/10-docker2singularity.sh": "export NVIDIA_TENSORFLOW_VERSION=25.03-tf2\n",
        "usr/local/cuda/version.json": '{\n  "cuda" : {\n    "version" : "12.9.20250222"\n  }\n}\n',
        "opt/miniconda3/conda-meta/python-3.12.1-h1_0.json": "{}",
        "opt/miniconda3/envs/one/conda-meta/python-3.11.7-h1_0.json": "{}",
        "opt/miniconda3/envs/no python/conda-meta/x-1-0.json": "{}",
    }
    for name, text in texts.items():
        write_program(root / name, text)
    subprocess.run(["apptainer", "--silent", "build", place / "plain.sif", root], **run)
    (place / "signed.sif").write_bytes((place / "plain.sif").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APPTAINER_CONFIGDIR", str(place / "keys"))
        subprocess.run(new_key("a"), **run)
        subprocess.run(["apptainer", "sign", place / "signed.sif"], **run)
        said = subprocess.run(["apptainer", "verify", "--local", "--json", place / "signed.sif"], **run).stdout
    fingerprint = json.loads(said)["SignerKeys"][0]["Signer"]["Fingerprint"]
    return place / "plain.sif", place / "signed.sif", fingerprint.upper()


def test_metadata_of_an_image(image, capsys):
    """`show` lists what an image lacks, its entry point, labels, Conda environments, signers and release."""
    plain, signed, fingerprint = image
    assert cli.main(["show", str(signed), "--no-checksum"]) == 0
    text = capsys.readouterr().out
    for line in (
        f"signed by       {fingerprint}, not verified",
        "  without       bash, which a module with Python needs",
        "python          none",
        "conda           /opt/miniconda3 with Python 3.12.1",
        "conda           /opt/miniconda3/envs/no python",
        "conda           /opt/miniconda3/envs/one with Python 3.11.7",
        "label           org.opencontainers.image.version: 4.5.6",
        "label           x: 1",
        "release         25.03",
        "cuda            12.9",
        'entry point     "/opt/entry.sh"',
        '  with          "tool"',
    ):
        assert f"{line}\n" in text
    assert cli.main(["show", str(plain), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["signers"], data["bash"], data["python"]) == ([], "", None)
    assert data["entry_point"] == {"entrypoint": '"/opt/entry.sh"', "cmd": '"tool"'}
    assert {"prefix": "/opt/miniconda3/envs/one", "python": "3.11.7"} in data["conda"]
    found = inspection.inspect(plain, checksum=False)
    said = inspection.run_in_image(found, "env", "CUDA_VERSION=12.8.1.012", "sh", "-c", inspection.probe("image.sh"))
    assert "cuda\t12.8.1\n" in said.stdout
    assert inspection.programs(found, ["sh", "no", "/bin/busybox", "/opt/x"]) == {"sh", "/bin/busybox"}


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", bytes(32) + b"SIF_MAGIC\0" + b"\xff" * 200])
def test_signatures_of_other_files(tmp_path, content):
    """Files that are no image, or a damaged one, have no signers."""
    (tmp_path / "x.sif").write_bytes(content)
    assert sif.signers(tmp_path / "x.sif") == []
