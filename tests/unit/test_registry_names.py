"""Names in registries and directories, and the files in which the runtime keeps logins."""

import base64
import json

import pytest
from ebsif.errors import EbsifError
from ebsif.images.registry.login import login_for
from ebsif.images.registry.reference import parse

DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.mark.parametrize(("text", "read"), [
    ("oras://registry.example/group/mine:1", "oras://registry.example/group/mine:1"),
    ("docker://ubuntu:22.04", "docker://docker.io/library/ubuntu:22.04"),
    (f"oci:layout:1@{DIGEST}", f"oci:HERE/layout:1@{DIGEST}"),
    ("oci:../layout", "oci:HERE/../layout"),
    ("oci:/a/layout:1", "oci:/a/layout:1"),
])
def test_names(tmp_path, monkeypatch, text, read):
    """R-08: names of registries as everywhere; directories may be relative."""
    monkeypatch.chdir(tmp_path)
    assert str(parse(text)) == read.replace("HERE", str(tmp_path))


@pytest.mark.parametrize("text", [
    "registry.example/x:1", "oras://", "oras://host/UPPER:1", "oci:", "https://registry.example/x.sif", "oras://host/x@sha256:12",
])
def test_wrong_names(text):
    """R-02: an error that begins with the name, and says what it should be."""
    with pytest.raises(EbsifError, match="should be|has an @ without") as error:
        parse(text)
    assert str(error.value).startswith(text)


def test_where_apptainer_stores_a_login(tmp_path, monkeypatch):
    """R-09: its own directory, if that is named, in which it calls the file config.json; a file that is named wins."""
    def store(path, user):
        path.parent.mkdir(parents=True, exist_ok=True)
        entry = {"auth": base64.b64encode(f"{user}:very:secret".encode()).decode()}
        path.write_text(json.dumps({"auths": {"registry.example": entry}}))

    for prefix in ("APPTAINER_", "SINGULARITY_", ""):
        for name in ("CONFIGDIR", "AUTH_FILE", "DOCKER_USERNAME", "DOCKER_PASSWORD"):
            monkeypatch.delenv(f"{prefix}{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("APPTAINER_CONFIGDIR", str(tmp_path / "configuration"))
    assert login_for("registry.example") is None
    for place, user in ((".docker/config.json", "docker"), ("configuration/config.json", "configured"),
                        ("configuration/docker-config.json", "first")):
        store(tmp_path / place, user)
        assert login_for("registry.example").user == user
    store(tmp_path / "named.json", "named")
    monkeypatch.setenv("APPTAINER_AUTH_FILE", str(tmp_path / "named.json"))
    assert login_for("registry.example")[:2] == ("named", "very:secret")
