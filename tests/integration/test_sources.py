"""Images in real registries and OCI layouts: `ebsif show`, `add` and `update` without fetching more than needed."""

import base64
import hashlib
import json
import os
import re
import subprocess

import ocilayouts
import pytest
import yaml
from ebsif.catalog import yamlfile
from ebsif.images.registry.manifest import INDEX, MANIFEST, TITLE, Descriptor
from ebsif.images.registry.reference import open_repository
from ebsif_command import run_ebsif
from httpfiles import SIF_LAYER
from parts import copy_from_image
from registry import ACCOUNT, PASSWORD

EMPTY = "application/vnd.oci.empty.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
BILL = {
    "bomFormat": "CycloneDX",
    "components": [
        {"name": "fast", "version": "3.1", "purl": "pkg:pypi/fast@3.1"},
        {"name": "x", "version": "1", "purl": "pkg:deb/d/x@1"},
    ],
}
CATALOG = """\
name: Tool
families:
  old:
    homepage: https://example.org/
    file: tool-{version}.sif
    suffix: -{date}
    entry_point: /opt/old.sh
  tool:
    extends: old
    entry_point: /opt/start.sh
containers:
  - {family: tool, version: 1.0, date: 1, components: {fast: 1.0}}
  - {family: old, version: 1.1, date: 1}
"""


class Place:
    """A directory with a catalog and EasyBuild's prefix, and a registry."""

    def __init__(self, folder, host):
        self.folder, self.host = folder, host
        self.records = folder / "own/mine/containers"
        self.records.mkdir(parents=True)
        (folder / "own/mine/site.yaml").write_text("name: mine\ndescription: x\n")
        self.environment = {"PATH": os.environ["PATH"], "EASYBUILD_PREFIX": folder / "eb", "EBSIF_SITE": "mine"}
        self.environment |= {"HOME": folder, "TMPDIR": folder}

    def ebsif(self, command, *arguments, status=0, **variables):
        """Run the command with the site's catalog; return its output."""
        own = ["--catalog", "own", *(["-o", "ec"] if command == "add" else [])]
        result = run_ebsif([command, *arguments, *own], cwd=self.folder, env={**self.environment, **variables})
        assert result.returncode == status, result.stdout + result.stderr
        return result.stdout + result.stderr

    def record(self, name):
        """Return the last record of a file."""
        text = (self.records / f"{name}.yaml").read_text()
        return yaml.load(text, yamlfile.YamlLoader)["containers"][-1]


@pytest.fixture
def place(tmp_path, registry):
    return Place(tmp_path, registry.host)


def put(name, layers=(), config=None, tag=None, annotations=None, subject=None):
    """Put a manifest with layers (list of (media type, bytes, title)) into a repository; return its descriptor."""
    repository = open_repository(name)
    parts = [Descriptor.of(kind, content, **({TITLE: title} if title else {})) for kind, content, title in layers]
    content = json.dumps(config).encode() if config else b"{}"
    configuration = Descriptor.of(CONFIG if config else EMPTY, content)
    for part, data in zip([*parts, configuration], [*(one[1] for one in layers), content]):
        repository.upload(part, data)
    text = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": configuration.as_json(),
        "layers": [one.as_json() for one in parts],
        "annotations": annotations or {},
    }
    if subject:
        text["subject"] = subject.as_json()
    return put_text(repository, text, tag)


def put_text(repository, text, tag):
    """Put a manifest (dict) into a repository; return its descriptor."""
    text = json.dumps(text).encode()
    descriptor = Descriptor.of(json.loads(text)["mediaType"], text)
    repository.put_manifest(descriptor, text, tag)
    return descriptor


def put_bill(name, image, how):
    """Attach a bill of materials to an image in one of the ways that tools have; return the tag to ask for."""
    repository = open_repository(name)
    text = json.dumps(BILL).encode()
    if how == "the index":
        statement = json.dumps({"predicateType": "https://cyclonedx.org/bom", "predicate": BILL}).encode()
        bill = put(name, [("application/vnd.in-toto+json", statement, "")])
        about = {
            **bill.as_json(),
            "annotations": {"vnd.docker.reference.digest": image.digest},
            "platform": {"os": "unknown", "architecture": "unknown"},
        }
        machine = {"x86_64": "amd64"}.get(os.uname().machine, "arm64")
        own = {**image.as_json(), "platform": {"os": "linux", "architecture": machine}}
        put_text(repository, {"schemaVersion": 2, "mediaType": INDEX, "manifests": [own, about]}, "index")
        return "index"
    bill = put(name, [("application/vnd.cyclonedx+json", text, "bill.json")], subject=image)
    if name.startswith("oras"):
        # as oras attach does for registries that don't list what refers to a manifest
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [bill.as_json()]}
        put_text(repository, index, image.digest.replace(":", "-"))
    return "2.0"


def oci_image(name, tag):
    """Put an OCI image with labels, an entry point and a layer that is no archive into a repository."""
    start = {"Env": ["PATH=/bin", "A=b=c"], "Entrypoint": ["/opt/start.sh"], "Cmd": ["bash"]}
    config = {"architecture": "amd64", "os": "linux", "created": "2026-10-05T01:02:03Z"}
    config["config"] = {"Labels": {"maker": "someone"}, **start}
    return put(name, [("application/vnd.oci.image.layer.v1.tar", b"no archive", "")], config, tag)


def image_source(path):
    """Return a parameter of an easyconfig, which may be on several lines."""
    found = {}
    exec(path.read_text(), {"SYSTEM": None}, found)
    return found["image_source"]


@pytest.mark.parametrize("how", ["a reference", "the index", "a directory"])
def test_what_a_registry_tells(place, how):
    """R-11, R-08: labels, entry point and bill of materials choose family and components; nothing is fetched."""
    (place.records / "Tool.yaml").write_text(CATALOG)
    repository = (
        f"oci:{place.folder}/layout" if how == "a directory" else f"docker://{place.host}/{how.split()[1]}/tool"
    )
    image = oci_image(repository, "2.0")
    tag = put_bill(repository.replace("docker:", "oras:"), image, how)
    said = place.ebsif("show", f"{repository}:{tag}")
    assert re.search(rf"^image +{repository}:{tag}@sha256:[0-9a-f]{{64}}\ncreated +20261005\n", said, re.MULTILINE)
    assert re.search(r"^bill +the bill of materials sha256:\S+ lists packages: 1 pypi, 1 deb$", said, re.MULTILINE)
    assert re.search(r"^label +maker: someone\nentry point +/opt/start\.sh$", said, re.MULTILINE)
    assert re.search(r" is not fetched \(\S+ \S+\): its content is unknown \(--fetch DIRECTORY\)$", said, re.MULTILINE)
    found = json.loads(place.ebsif("show", f"{repository}:{tag}", "--json", "--quiet"))
    assert found["environment"] == {"PATH": "/bin", "A": "b=c"}
    wanted = found["source"]
    if tag == "2.0" and how != "a directory":
        assert wanted == f"{repository}:2.0@{image.digest}"
        said = place.ebsif("add", f"{repository}:2.0")
        assert f"{repository}:2.0 is {image.digest} now; a tag or file can change, so the record has " in said
        expected = {"family": "tool", "version": "2.0", "date": "20261005", "components": {"fast": "3.1"}}
        assert place.record("Tool") == {**expected, "source": wanted}
        assert image_source(place.folder / "ec/t/Tool/Tool-2.0-20261005.eb") == wanted
        assert not (place.folder / "eb").exists()


def test_a_sif_file_in_a_registry(place, small_image):
    """R-02: `ebsif add oras://HOST/ai/thing:3` alone; its digest is in the record; eb finds what was fetched."""
    image = small_image("busybox")
    source = f"oras://{place.host}/ai/thing:3"
    subprocess.run(["apptainer", "push", "--no-https", image, source], check=True, capture_output=True, timeout=300)
    digest = open_repository(source).resolve()
    kept = f"{place.folder}/eb/sources/thing-3.sif: the image, where eb finds it\n"
    said = place.ebsif("add", source)
    assert kept in said and "\ninstall it with: eb ec/t/thing/thing-3.eb\n" in said
    sha256 = hashlib.sha256(image.read_bytes()).hexdigest()
    expected = {"family": "thing", "version": "3", "source": f"{source}@{digest}"}
    assert place.record("thing") == {**expected, "sha256": sha256, "size": str(image.stat().st_size)}
    assert f"checksums = ['{sha256}']\n" in (place.folder / "ec/t/thing/thing-3.eb").read_text()
    assert image_source(place.folder / "ec/t/thing/thing-3.eb") == f"{source}@{digest}"
    assert (place.folder / "eb/sources/thing-3.sif").read_bytes() == image.read_bytes()
    assert "thing-3.sif is in the catalog already: thing/3" in place.ebsif("add", source)
    # another image under the same tag
    other = put(source, [(SIF_LAYER, b"another", "thing.sif")], tag="3")
    assert other.digest != digest
    said = place.ebsif("add", source, status=1)
    assert "thing-3.sif is in the catalog already, and is another image there: thing/3" in said
    assert f"    source: {source}@{other.digest}\n    sha256: {hashlib.sha256(b'another').hexdigest()}\n" in said
    # a digest of the earlier one is still good, and what was fetched is used
    (place.folder / "eb/sources/thing-3.sif").rename(place.folder / "thing-3.sif")
    (place.folder / "eb/sources/thing-3.sif.source.json").rename(place.folder / "thing-3.sif.source.json")
    said = place.ebsif("show", f"{source}@{digest}", "--fetch", ".")
    assert re.search(rf"^  fetched from +{source}@{digest}$", said, re.MULTILINE)
    assert re.search(rf"^sha256 +{sha256}$", said, re.MULTILINE)


def test_new_moved_and_missing_tags(place):
    """R-05, R-12: a new tag becomes a record; what a tag such as latest stands for, and what moved or is gone."""
    name = f"oras://{place.host}/releases/tool"
    images = {
        tag: put(name, [(SIF_LAYER, f"image {tag}".encode(), "image.sif")], tag=tag)
        for tag in ("1.0", "1.1", "2.0", "gone", "moved", "latest", "skipped", "nightly")
    }
    put(name, [(SIF_LAYER, b"image moved", "image.sif")], tag="latest")
    put(name, [(SIF_LAYER, b"image other", "image.sif")], tag="moved")
    sources = [f", source: '{name}:{tag}@{images[tag].digest}'}}" for tag in ("1.0", "1.1", "gone", "moved")]
    text = CATALOG.replace("{fast: 1.0}}", "{fast: 1.0}" + sources[0]).replace(
        "1.1, date: 1}", "1.1, date: 1" + sources[1]
    )
    gone = sources[2].replace(images["gone"].digest, "sha256:" + "0" * 64)
    text += f"  - {{family: tool, version: 1.2, date: 1{gone}\n"
    text += f"  - {{family: tool, version: 1.3, date: 1{sources[3]}\n"
    (place.records / "Tool.yaml").write_text(text)
    (place.folder / "own/mine/site.yaml").write_text(
        "name: mine\ndescription: x\nimages:\n  ignored: [skip*]\n  repositories: [docker://127.0.0.1:9/no/registry]\n"
    )
    said = place.ebsif("scan", status=1)
    sha256 = hashlib.sha256(b"image 2.0").hexdigest()
    assert f"+    source: {name}:2.0@{images['2.0'].digest}\n+    sha256: {sha256}\n+    size: 9\n" in said
    assert said.count("+    source: ") == 1, said
    assert "warning: docker://127.0.0.1:9/no/registry: its tags can't be read: " in said
    assert f"Tool/1.2-1: its image can't be fetched from {name}:gone@sha256:{'0' * 64} any longer: " in said
    assert f"Tool/1.3-1: the tag of {name}:moved@{images['moved'].digest} is another image by now, sha256:" in said
    assert f"note: {name}:latest: is {images['moved'].digest} today, the image of Tool/1.3-1. A tag can change" in said
    assert f"warning: {name}:nightly: is not in the catalog, and can't be added: no family has images with" in said
    assert "skipped" not in said
    place.ebsif("scan", "--write", status=1)
    assert place.record("Tool")["source"] == f"{name}:2.0@{images['2.0'].digest}"
    assert not (place.folder / "eb").exists()


def test_a_registry_with_a_login(tmp_path, private_registry, monkeypatch):
    """R-09: without the runtime's login the message says how to log in; with it, no file of ours has the password."""
    place, host = Place(tmp_path, private_registry.host), private_registry.host
    (place.records / "Tool.yaml").write_text(CATALOG)
    name = f"oras://{host}/private/tool"
    secret = base64.b64encode(f"{ACCOUNT}:{PASSWORD}".encode()).decode()
    login = {"APPTAINER_DOCKER_USERNAME": ACCOUNT, "APPTAINER_DOCKER_PASSWORD": PASSWORD}
    with monkeypatch.context() as patch:
        for variable, value in login.items():
            patch.setenv(variable, value)
        for tag in ("1.0", "2.0"):
            put(name, [(SIF_LAYER, tag.encode(), "image.sif")], tag=tag)
    said = place.ebsif("show", f"{name}:2.0", status=3)
    assert f"log in with `apptainer registry login --username NAME docker://{host}`" in said
    (place.folder / "own/mine/site.yaml").write_text(
        f"name: mine\ndescription: x\nimages: {{repositories: ['{name}']}}\n"
    )
    assert "its tags can't be read: " in place.ebsif("scan", status=1)
    assert "+    source: " in place.ebsif("scan", "--write", status=1, **login)
    (tmp_path / ".apptainer").mkdir()
    (tmp_path / ".apptainer/docker-config.json").write_text(json.dumps({"auths": {host: {"auth": secret}}}))
    place.ebsif("add", f"{name}:2.0")
    texts = [path.read_text() for folder in ("own", "ec") for path in (tmp_path / folder).rglob("*") if path.is_file()]
    assert len(texts) > 2
    assert not [text for text in texts if PASSWORD in text or secret in text]


def test_a_layout_without_a_name(place, tmp_path, small_image):
    """R-08: without a name nothing is fetched; converted, it has no SHA256: each conversion gives another file."""
    root = copy_from_image(small_image("busybox"), tmp_path / "root", "bin")
    (root / ".sbom.json").write_text(json.dumps(BILL))
    digest = ocilayouts.add_image(tmp_path / "boxes", root, "1.5")
    said = place.ebsif("add", "oci:boxes:1.5", status=3)
    assert "no family of the catalog has images named like boxes-1.5.sif: start one with --name NAME" in said
    assert not (tmp_path / "eb").exists()
    said = place.ebsif("add", "oci:boxes:1.5", "--name", "Boxes", "--fetch", "images")
    assert f"Boxes-1.5.eb --sourcepath={tmp_path}/images\n" in said
    expected = {"family": "boxes", "version": "1.5", "source": f"oci:{tmp_path}/boxes:1.5@{digest}"}
    assert place.record("Boxes") == expected
    found = json.loads(place.ebsif("show", "images/boxes-1.5.sif", "--json", "--no-checksum"))
    assert (found["listed"], found["listed_in"]) == ({"pypi": {"fast": "3.1"}, "deb": {"x": "1"}}, "/.sbom.json")


@pytest.mark.parametrize(
    ("source", "status", "message"),
    [
        ("oras://registry.example/A:1", 3, "should be oras://HOST/PATH:TAG@sha256:DIGEST (paths in lower case"),
        ("https://host/image.sif", 2, "has no information about the image before it is fetched: add --fetch "),
        ("docker-archive:image.tar", 3, "fetch it yourself (`apptainer build FILE.sif docker-archive:image.tar`)"),
        ("library://entity/image:1", 3, "fetch it yourself (`apptainer pull FILE.sif library://entity/image:1`), and "),
        ("oci:nothing", 3, "nothing is not a directory with an OCI layout"),
    ],
)
def test_sources_that_tell_nothing(place, source, status, message):
    """R-02: what is missing, and what to write."""
    assert message in place.ebsif("show", source, status=status)
