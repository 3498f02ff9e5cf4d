"""Sources of images, the runtime's logins, and the protocol of registries."""

import base64
import io
import json
from urllib.request import Request

import pytest
from easybuild.easyblocks.generic.container.image.source import ImageSource, is_loopback
from ebsif.errors import EbsifError
from ebsif.images.registry.connection import SameHost, TransferError, open_url
from ebsif.images.registry.login import login_for
from ebsif.images.registry.manifest import THIS_MACHINE, Descriptor, Manifest
from ebsif.images.registry.reference import open_repository, parse
from httpfiles import SIF_LAYER, digest_of, serve_files
from support import write_program

DIGEST = "sha256:" + "0123456789abcdef" * 4
HTTPS = "https://images.example/x.sif"


@pytest.fixture(autouse=True)
def no_login(tmp_path, monkeypatch):
    """A home directory without logins."""
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ["DOCKER_CONFIG", "http_proxy", "https_proxy"]
    for prefix in ("", "APPTAINER_", "SINGULARITY_"):
        names += [f"{prefix}{name}" for name in ("CONFIGDIR", "AUTH_FILE", "DOCKER_USERNAME", "DOCKER_PASSWORD")]
    for name in names:
        monkeypatch.delenv(name, raising=False)


def opened(files):
    """Return the repository ai/x of a registry."""
    return open_repository(f"oras://{files.host}/ai/x:1")


def log_in(home, host, password="s3cret", user="user", file=".apptainer/docker-config.json"):
    """Write the file that `apptainer registry login` writes."""
    (home / file).parent.mkdir(exist_ok=True)
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    (home / file).write_text(json.dumps({"auths": {host: {"auth": auth}}}))


@pytest.mark.parametrize(
    "text, parts",
    [
        (f"oras://registry.example/ai/x:1@{DIGEST}", ("oras", "registry.example", "ai/x", "1", DIGEST, "")),
        ("oras://registry.example:5000/x", ("oras", "registry.example:5000", "x", None, None, "")),
        (f"docker://localhost/a/b-c_d.e@{DIGEST}", ("docker", "localhost", "a/b-c_d.e", None, DIGEST, "")),
        ("docker://python:3.12", ("docker", "docker.io", "library/python", "3.12", None, "")),
        (f"{HTTPS}#sha256={DIGEST[7:]}", ("https", None, None, None, DIGEST, HTTPS)),
        ("oci:/srv/layout:1.0", ("oci", None, None, "1.0", None, "/srv/layout")),
    ],
)
def test_sources_are_read(text, parts):
    """R-01: each kind of source is read as the programs for containers write it, and is written again as it is read."""
    source = ImageSource.parse(text)
    assert (source.kind, source.host, source.repository, source.tag, source.digest, source.path) == parts
    assert ImageSource.parse(str(source)) == source
    assert ImageSource.parse(str(source.with_digest(DIGEST))).digest == DIGEST


@pytest.mark.parametrize(
    "text, problem",
    [
        ("x.sif", "is not the source of an image"),
        ("library://x/y", r"\(`apptainer pull FILE.sif library://x/y`\)"),
        ("oras://registry.example/X:1", "lower case"),
        ("oras://registry.example/x@sha256:12", "64 hexadecimal"),
        # not of Docker Hub
        ("oras://registry.example", "has no path after the host: oras://registry.example/PATH:TAG"),
        (f"oras://registry.example:5000@{DIGEST}", "the host: oras://registry.example:5000/PATH:TAG"),
        ("docker://user:secret@registry.example/x", "apptainer registry login"),
        ("https://user:secret@images.example/x.sif", "others could read"),
        ("http://images.example/x.sif", "altered"),
        ("https://images.example/x.sif?X-Amz-Signature=0a1b2c", r"credential \(\?X-Amz-Signature=\*{4}\)"),
        ("https://images.example/x.sif?a=b&token=0a1b2c", "credential"),
        ("docker://x/y:\u00e4", "lower case"),
        ("https://images.example/x.sif#sha256=1", "64 hexadecimal"),
        ("https://images.example/", "should be https://HOST/PATH#"),
        ("oci:layout", "full path"),
        ("docker-archive:/x.tar", r"\(`apptainer build FILE.sif docker-archive:/x.tar`\)"),
    ],
)
def test_wrong_sources_are_explained(text, problem):
    """R-01: what is no source is refused with what would be one."""
    with pytest.raises(ValueError, match=problem):
        ImageSource.parse(text)


def test_remedies_name_the_runtime_that_is_there(tmp_path, monkeypatch):
    """Where the runtime is called singularity, commands to type begin with that."""
    write_program(tmp_path / "singularity", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="`singularity pull FILE.sif library://x/y`"):
        ImageSource.parse("library://x/y")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("oras://registry.example/group/mine:1", "oras://registry.example/group/mine:1"),
        ("docker://ubuntu:22.04", "docker://docker.io/library/ubuntu:22.04"),
        (f"oci:layout:1@{DIGEST}", f"oci:HERE/layout:1@{DIGEST}"),
        ("oci:../layout", "oci:HERE/../layout"),
        ("oci:/a/layout:1", "oci:/a/layout:1"),
    ],
)
def test_names(tmp_path, monkeypatch, text, read):
    """R-08: names of registries as everywhere; directories may be relative."""
    monkeypatch.chdir(tmp_path)
    assert str(parse(text)) == read.replace("HERE", str(tmp_path))


@pytest.mark.parametrize(
    "text", ["registry.example/x:1", "oras://", "oras://host/UPPER:1", "oci:", HTTPS, "oras://host/x@sha256:12"]
)
def test_wrong_names(text):
    """R-02: an error that begins with the name, and says what it should be."""
    with pytest.raises(EbsifError, match="should be|has an @ without") as error:
        parse(text)
    assert str(error.value).startswith(text)


def test_logins_are_those_of_the_runtime(tmp_path, monkeypatch):
    """R-09: logins come from the files and variables that the runtime reads, and don't show their secrets."""
    assert login_for("registry.example") is None
    (tmp_path / ".docker").mkdir()
    auths = {
        "https://registry.example/v2/": {"username": "docker", "password": "p"},
        "https://index.docker.io/v1/": {"identitytoken": "refresh"},
        "broken.example": {"auth": "%%%"},
    }
    (tmp_path / ".docker/config.json").write_text(json.dumps({"auths": auths}))
    assert login_for("registry.example")[:2] == ("docker", "p")
    assert login_for("docker.io").token == "refresh"
    assert login_for("broken.example") is None
    log_in(tmp_path, "registry.example")
    login = login_for("registry.example")
    assert login[:2] == ("user", "s3cret")
    assert "s3cret" not in repr(login)
    assert login_for("other.example") is None
    monkeypatch.setenv("SINGULARITY_DOCKER_USERNAME", "once")
    monkeypatch.setenv("SINGULARITY_DOCKER_PASSWORD", "pass:word")
    assert login_for("other.example")[:2] == ("once", "pass:word")


def test_where_apptainer_stores_a_login(tmp_path, monkeypatch):
    """R-09: its own directory, if that is named, in which it calls the file config.json; a file that is named wins."""
    monkeypatch.setenv("APPTAINER_CONFIGDIR", str(tmp_path / "configuration"))
    assert login_for("registry.example") is None
    for file in (".docker/config.json", "configuration/config.json", "configuration/docker-config.json"):
        log_in(tmp_path, "registry.example", user=f"of {file}", file=file)
        assert login_for("registry.example").user == f"of {file}"
    log_in(tmp_path, "registry.example", "very:secret", "named", "named.json")
    monkeypatch.setenv("APPTAINER_AUTH_FILE", str(tmp_path / "named.json"))
    assert login_for("registry.example")[:2] == ("named", "very:secret")


def test_logins_of_helpers(tmp_path, monkeypatch):
    """R-09: a program that keeps the logins is asked."""
    answer = '{"Username": "%s", "Secret": "from helper"}'
    write_program(tmp_path / "docker-credential-test", f"#!/bin/sh\nread host\nprintf '{answer}' \"$host\"\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / ".apptainer").mkdir()
    (tmp_path / ".apptainer/docker-config.json").write_text('{"credsStore": "test"}')
    assert login_for("registry.example")[:2] == ("registry.example", "from helper")


@pytest.mark.parametrize("is_basic", [False, True])
def test_registries_with_a_password(tmp_path, is_basic):
    """R-09: with the runtime's login both ways of logging in work; without, the message says what to type."""
    with serve_files() as files:
        files.password, files.is_basic = "s3cret", is_basic
        manifest, blob = files.push("ai/x", "1", b"data of the image")
        with pytest.raises(TransferError, match="log in with `apptainer registry login") as info:
            opened(files).resolve()
        assert info.value.code == 401
        log_in(tmp_path, files.host, password="wrong")
        with pytest.raises(TransferError, match="the login in use has no access") as info:
            opened(files).resolve()
        assert "wrong" not in str(info.value)
        log_in(tmp_path, files.host)
        assert opened(files).resolve() == manifest
        assert opened(files).read(Descriptor("", blob, 17)) == b"data of the image"


def test_passwords_stay_with_the_registry(tmp_path):
    """R-09: the server that a blob is redirected to gets no credentials, that of the registry itself does."""
    with serve_files() as files, serve_files() as elsewhere:
        files.password, files.is_basic = "s3cret", True
        log_in(tmp_path, files.host)
        _, blob = files.push("ai/x", "1", b"data")
        elsewhere.content["/blob"] = b"data"
        files.moved[f"/v2/ai/x/blobs/{blob}"] = elsewhere.url + "/blob"
        assert opened(files).read(Descriptor("", blob, 4)) == b"data"
        assert [headers.get("Authorization") for _, headers in elsewhere.requests] == [None]
        files.moved[f"/v2/ai/x/blobs/{blob}"] = files.url + "/moved"
        files.content["/moved"] = b"data"
        assert opened(files).read(Descriptor("", blob, 4)) == b"data"


def test_altered_manifests_are_refused():
    """R-03: a manifest without the digest that was asked for is an error."""
    with serve_files() as files:
        manifest, _ = files.push("ai/x", "1", b"data")
        files.content[f"/v2/ai/x/manifests/{manifest}"] += b" "
        with pytest.raises(EbsifError, match="it was altered, or cut"):
            opened(files).resolve(manifest)
        with pytest.raises(TransferError, match=f"has no manifest {digest_of(b'other')}"):
            opened(files).resolve(digest_of(b"other"))
        with pytest.raises(TransferError, match="no connection"):
            open_repository("oras://127.0.0.1:1/ai/x:1").resolve()


def test_registries_on_this_machine():
    """R-09: only the loopback addresses count as this machine, where no encryption is needed."""
    here = ["127.0.0.1:5000", "[::1]:5000", "localhost:5000"]
    elsewhere = ["127.example.org", "localhost.example.org", "registry.example", "["]
    assert [text for text in (*here, *elsewhere) if is_loopback(text)] == here


def test_proxies_are_for_other_machines(monkeypatch):
    """R-09: what is on this machine is not asked for through a proxy, other servers are."""
    with serve_files() as files:
        files.content["/x.sif"], files.content["http://images.example/x.sif"] = b"direct", b"proxy"
        for name in ("http_proxy", "no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, "")
        monkeypatch.setenv("http_proxy", files.url)
        with open_url(Request("http://images.example/x.sif")) as answer:
            assert answer.read() == b"proxy"
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        with open_url(Request(files.url + "/x.sif")) as answer:
            assert answer.read() == b"direct"
        # E-09: which of the two could not be reached, and what that means
        proxy = " through the proxy 127.0.0.1:1"
        for name, place in (("127.0.0.1:1", ""), ("images.example", proxy), ("b\u00fccher.example", proxy)):
            with pytest.raises(TransferError) as error:
                open_url(Request(f"http://{name}/x.sif"))
            assert str(error.value).startswith(f"no connection to {name}{place}: the connection was refused (check")


def test_encryption_is_not_given_up(tmp_path):
    """R-09: from https, neither redirects nor registries lead to a connection without encryption, or to files."""
    answer = io.BytesIO()
    with pytest.raises(TransferError, match=r"a.example refers to http://b.example/x, and only https:// is followed"):
        SameHost().redirect_request(Request("https://a.example/x"), answer, 302, "", {}, "http://b.example/x?token=1")
    assert answer.closed
    for place in ("http://registry.example/blob", f"file://{tmp_path}/x", "ftp://registry.example/x"):
        with pytest.raises(TransferError, match="only https:// is followed from there"):
            open_repository("oras://registry.example/x").ask("GET", place)
        with pytest.raises(TransferError, match="only https:// is followed from there"):
            open_repository("oras://registry.example/x").authorization(f'Bearer realm="{place}"', "pull")
    with serve_files() as files:
        files.moved["/x"] = "ftp://images.example/x"
        with pytest.raises(TransferError, match="only http:// or https:// is followed from there"):
            open_url(Request(files.url + "/x"))


def test_images_for_this_machine():
    """R-01: an image without a platform, or with that of this machine, is the one for it."""
    ours = {"architecture": THIS_MACHINE}
    fitting, others = [{}, ours, {"os": "linux", **ours}], [{"architecture": "vax"}, {"os": "windows", **ours}]
    images = [Descriptor("", DIGEST, 1, platform=platform) for platform in (*fitting, *others)]
    assert [image.platform for image in images if image.fits_this_machine] == fitting


def test_sif_files_in_manifests():
    """R-01, R-03: the one SIF file among the layers is found, whatever else is there; malformed layers are refused."""
    file, bill = ({"mediaType": kind, "digest": DIGEST, "size": 1} for kind in (SIF_LAYER, "application/spdx+json"))

    def sif_in(layers):
        return Manifest.read(json.dumps({"layers": layers}).encode(), "x").sif

    assert sif_in([bill, file]).media_type == SIF_LAYER
    for layers in ([bill], [file, file], [], None):
        assert sif_in(layers) is None
    for layers in ("text", [{**file, "digest": "x:/etc/passwd"}], ["text", None]):
        with pytest.raises(EbsifError, match="no valid digest or size|is not a list"):
            sif_in(layers)
