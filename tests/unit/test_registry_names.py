"""Names of images in registries and directories, and the login that the runtime has stored."""

import base64
import json

import pytest
from ebsif.errors import EbsifError
from ebsif.registry import login
from ebsif.registry.reference import parse

DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.mark.parametrize(("text", "place", "tag", "digest"), [
    ("oras://registry.example/group/mine:1", "registry.example/group/mine", "1", None),
    ("oras://registry.example:5000/mine", "registry.example:5000/mine", "latest", None),
    (f"oras://registry.example/mine:1@{DIGEST}", "registry.example/mine", "1", DIGEST),
    (f"docker://ghcr.io/a/b_c/d@{DIGEST}", "ghcr.io/a/b_c/d", None, DIGEST),
    ("docker://ubuntu:22.04", "docker.io/library/ubuntu", "22.04", None),
    ("docker://rocm/pytorch", "docker.io/rocm/pytorch", "latest", None),
    ("docker://localhost/x", "localhost/x", "latest", None),
    ("oci:../layout:1", "../layout", "1", None),
    ("oci:/a/layout", "/a/layout", None, None),
    (f"oci:/a/layout@{DIGEST}", "/a/layout", None, DIGEST),
])
def test_parts_of_a_name(text, place, tag, digest):
    """R-02: host and path, tag and digest, as the runtime reads them; and it is written as it was read."""
    found = parse(text)
    assert (found.place, found.tag, found.digest) == (place, tag, digest)
    assert parse(str(found)) == found


@pytest.mark.parametrize("text", [
    "registry.example/x:1", "oras://", "oras://host", "oras:///x", "oras://host/UPPER:1", "oras://host/a b", "oci:",
    "oci::1", "oras://host/x:", "oras://host/x:-1", "oras://host/x@sha256:12", "oras://host/x@", "docker://me:secret@host/x",
    "oras://host/x:1;rm", "oras://host/../x",
])
def test_wrong_names(text):
    """R-02: an error that begins with the name, and says what it should be."""
    with pytest.raises(EbsifError, match="should be|is not a|should name") as error:
        parse(text)
    assert str(error.value).startswith(f"{text}: ")


def write_logins(path, content):
    """Write a file of logins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_where_logins_are(tmp_path, monkeypatch):
    """R-09: the runtime's files in their order, its variables, Docker's helpers; a password is never shown."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CONFIGDIR", "AUTH_FILE", "AUTHFILE", "DOCKER_USERNAME", "DOCKER_PASSWORD"):
        for prefix in ("APPTAINER", "SINGULARITY"):
            monkeypatch.delenv(f"{prefix}_{name}", raising=False)
    assert login.find("registry.example") is None

    def entry(user):
        return {"auth": base64.b64encode(f"{user}:very:secret".encode()).decode()}

    write_logins(tmp_path / ".docker/config.json", {
        "auths": {"registry.example": entry("docker"), "https://index.docker.io/v1/": entry("hub"),
                  "token.example": {"identitytoken": "very:secret"}},
        "credHelpers": {"helped.example": "tests"}})
    assert login.find("registry.example") == login.Login("docker", "very:secret")
    assert login.find("docker.io").user == "hub"
    assert login.find("token.example").identity_token == "very:secret"
    write_logins(tmp_path / ".singularity/docker-config.json", {"auths": {"https://registry.example": entry("ce")}})
    assert login.find("registry.example").user == "ce"
    write_logins(tmp_path / ".apptainer/docker-config.json", {"auths": {"registry.example": entry("apptainer")}})
    assert login.find("registry.example").user == "apptainer"
    assert login.find("docker.io").user == "hub"
    assert login.find("registry.example:5000") is None
    helper = tmp_path / "bin/docker-credential-tests"
    helper.parent.mkdir()
    answer = json.dumps({"Username": "at HOST", "Secret": "very:secret"})
    helper.write_text(f"#!/bin/sh\nread -r host\necho '{answer}' | /bin/sed \"s/HOST/$host/\"\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(helper.parent), prepend=":")
    assert login.find("helped.example").user == "at helped.example"
    assert "secret" not in repr(login.find("helped.example"))
    write_logins(tmp_path / "configuration/config.json", {"auths": {"registry.example": entry("configured")}})
    monkeypatch.setenv("APPTAINER_CONFIGDIR", str(tmp_path / "configuration"))
    assert login.find("registry.example").user == "configured"
    write_logins(tmp_path / "named.json", {"auths": {"registry.example": entry("named")}})
    monkeypatch.setenv("APPTAINER_AUTH_FILE", str(tmp_path / "named.json"))
    assert login.find("registry.example").user == "named"
    monkeypatch.setenv("SINGULARITY_DOCKER_USERNAME", "variable")
    monkeypatch.setenv("SINGULARITY_DOCKER_PASSWORD", "very:secret")
    assert login.find("registry.example").user == "variable"


@pytest.mark.parametrize("text", [
    "very secret", "[]", '{"auths": []}', '{"auths": {"registry.example": {"auth": "very secret"}}}'])
def test_damaged_logins(tmp_path, monkeypatch, text):
    """R-09: a damaged file is named, and nothing of it is shown."""
    path = tmp_path / "logins.json"
    path.write_text(text)
    monkeypatch.setenv("APPTAINER_AUTH_FILE", str(path))
    with pytest.raises(EbsifError, match=str(path)) as error:
        login.find("registry.example")
    assert "very secret" not in str(error.value)
    assert "log in again" in str(error.value)
