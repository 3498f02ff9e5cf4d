"""What registries and OCI layouts may contain: valid but unusual, damaged, or meant to do harm."""

import json
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ebsif import cli
from ebsif.environments import plan
from ebsif.errors import EbsifError
from ebsif.images import remote
from ebsif.images.registry import client
from ebsif.images.registry.connection import MissingError, TransferError
from ebsif.images.registry.manifest import INDEX, MANIFEST, TITLE, Descriptor, RegistryContentError
from ebsif.images.registry.reference import open_repository
from ebsif.report import output, table
from ebsif.scan import tags
from httpfiles import SIF_LAYER, serve_files

NAME = "ai/tool"
CONFIG = b'{"config": {"Env": ["A=1"]}}'
DATA = b"the content of a layer."


@pytest.fixture(scope="module")
def server():
    """A registry that answers whatever the test wants."""
    with serve_files() as files:
        yield files


@pytest.fixture
def files(server):
    """The registry, empty."""
    server.content.clear()
    server.cuts.clear()
    server.password = None
    return server


def source(files, rest=":1"):
    """Return the name of an image in the registry."""
    return f"docker://{files.host}/{NAME}{rest}"


def add(files, tag, manifest, *blobs):
    """Put a manifest (dict) and blobs into the registry; return its descriptor."""
    text = json.dumps(manifest).encode()
    found = Descriptor.of(MANIFEST, text)
    for reference in (tag, found.digest):
        files.content[f"/v2/{NAME}/manifests/{reference}"] = text
    for blob in blobs:
        files.content[f"/v2/{NAME}/blobs/{Descriptor.of('', blob).digest}"] = blob
    return found


def image(config=CONFIG, title="tool.sif", **more):
    """Return the manifest of an image (dict), without a media type."""
    layer = Descriptor.of("application/x-layer", DATA).as_json()
    return {
        "schemaVersion": 2,
        "config": Descriptor.of("application/x-config", config).as_json(),
        "layers": [{**layer, "annotations": {TITLE: title}}],
        **more,
    }


def write_layout(folder, index, *texts):
    """Write an OCI layout with an index (dict) and manifests (dict); return the descriptors of these."""
    (folder / "blobs/sha256").mkdir(parents=True)
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    found = []
    for text in texts:
        content = json.dumps(text).encode()
        found.append(Descriptor.of(MANIFEST, content))
        (folder / "blobs/sha256" / found[-1].digest.partition(":")[2]).write_bytes(content)
    (folder / "index.json").write_text(json.dumps(index))
    return found


def test_a_layout_of_others_keeps_what_they_wrote(tmp_path):
    """R-08: of the entries of others only the tag changes that names another manifest from then on."""
    more = {"size": 1, "artifactType": "text/x", "urls": ["https://registry.example"], "data": "e30="}
    more |= {"mediaType": "application/x", "platform": {"os": "x", "variant": "v8"}}
    notes = [{"org.opencontainers.image.ref.name": tag, "more": "kept"} for tag in ("1", "2")]
    others = [{**more, "digest": f"sha256:{digit * 64}", "annotations": one} for digit, one in zip("ab", notes)]
    before = {"schemaVersion": 2, "annotations": {"of": "the index"}, "artifactType": "text/y", "manifests": others}
    write_layout(tmp_path, before)
    repository = open_repository(f"oci:{tmp_path}")
    for text in (b'{"layers": []}', b'{"layers": [ ]}', b'{"layers": []}'):
        found = Descriptor.of(MANIFEST, text)
        for _ in range(2):
            repository.put_manifest(found, text, "1")
        assert repository.resolve("1") == found.digest
    after = json.loads((tmp_path / "index.json").read_text())
    first, second, *own = after.pop("manifests")
    assert first == {**others[0], "annotations": {"more": "kept"}}
    assert second == others[1]
    assert [one.get("annotations") for one in own] == [{"org.opencontainers.image.ref.name": "1"}, {}]
    assert after == {key: value for key, value in before.items() if key != "manifests"}


def test_a_tag_that_has_moved_leaves_one_image(tmp_path):
    """R-08, R-03: without a tag, a directory stands for the manifest that has one; an altered one is refused."""
    repository = open_repository(f"oci:{tmp_path}")
    for text in (b'{"layers": []}', b'{"layers": [ ]}'):
        repository.put_manifest(Descriptor.of(MANIFEST, text), text, "1")
    digest = Descriptor.of(MANIFEST, text).digest
    assert repository.resolve() == digest
    assert repository.tags() == ["1"]
    # what a tag names has the content of its digest
    repository.path_of(digest).write_bytes(b'{"layers": [1]}')
    with pytest.raises(RegistryContentError, match="has the wrong content"):
        repository.resolve("1")


def test_blobs_in_a_layout(tmp_path):
    """R-03: a blob that is there stays; a damaged one is replaced; what hasn't the digest is refused."""
    repository, blob = open_repository(f"oci:{tmp_path}"), Descriptor.of("", DATA)
    (tmp_path / "data").write_bytes(DATA)
    repository.upload(blob, tmp_path / "data")
    path = tmp_path / "blobs/sha256" / blob.digest.partition(":")[2]
    number = path.stat().st_ino
    repository.upload(blob, tmp_path / "none")
    assert path.stat().st_ino == number
    path.write_bytes(b"x" * len(DATA))
    (tmp_path / "data").write_bytes(b"y" * len(DATA))
    with pytest.raises(RegistryContentError, match=f"{blob.digest} has the wrong content"):
        repository.upload(blob, tmp_path / "data")
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    repository.upload(blob, DATA)
    assert path.read_bytes() == DATA
    # which somebody may have put there by hand
    empty = Descriptor.of("", b"")
    repository.upload(empty, b"")
    repository.download(empty, tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


def test_manifests_without_a_media_type(files, tmp_path):
    """R-02: OCI doesn't require it; a list of manifests is an index, a list of layers an image."""
    child = add(files, "child", image(), CONFIG)
    add(files, "1", {"schemaVersion": 2, "manifests": [child.as_json()]})
    found = open_repository(source(files))
    assert (found.manifest().is_index, found.manifest().descriptor.media_type) == (True, INDEX)
    assert found.image().layers[0].title == "tool.sif"
    entry = {"mediaType": INDEX, "digest": "", "size": 0}
    (child, index) = write_layout(tmp_path, {}, image(), {"schemaVersion": 2, "manifests": [child.as_json()]})
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [{**entry, **index.as_json(), "mediaType": ""}]}))
    assert open_repository(f"oci:{tmp_path}").image().digest == child.digest
    add(files, "neither", {"schemaVersion": 2})
    with pytest.raises(RegistryContentError, match="manifests of this kind are not supported"):
        open_repository(source(files, ":neither")).manifest()


@pytest.mark.parametrize(
    ("listed", "known"), [(["1.0", "ä", 5, "a b", None, "-x", "x" * 129, "v2"], ["1.0", "v2"]), (None, []), ([], [])]
)
def test_tags_that_are_none(files, listed, known):
    """R-05: a tag that can't be one is left out."""
    files.content[f"/v2/{NAME}/tags/list"] = json.dumps({"tags": listed}).encode()
    assert open_repository(source(files)).tags() == known


@pytest.mark.parametrize("answer", ['{"tags": 5}', "[1]", "x", "[" * 100_000])
def test_lists_of_tags_that_are_none(files, answer):
    """R-05: an error that names the registry."""
    files.content[f"/v2/{NAME}/tags/list"] = answer.encode()
    with pytest.raises(TransferError, match=f"{files.host}: its list of tags can't be read"):
        open_repository(source(files)).tags()


def test_tags_on_several_pages(files, monkeypatch):
    """R-05: all pages are read, the next one is that of a header; a list without an end is an error."""
    first, second = f"/v2/{NAME}/tags/list", f"/v2/{NAME}/tags/list?last=1"
    files.content[first], files.content[second] = (json.dumps({"tags": [tag]}).encode() for tag in "12")
    monkeypatch.setattr(files, "links", {first: '<list?page=0>; rel="prev", <list?last=1>; rel="next"'})
    assert open_repository(source(files)).tags() == ["1", "2"]
    files.links[second] = f"<{second}>; rel=next"
    monkeypatch.setattr(client, "PAGES", 3)
    with pytest.raises(TransferError, match="the list of tags of ai/tool has no end"):
        open_repository(source(files)).tags()


@pytest.mark.parametrize(
    "config",
    [
        {"config": {"Env": 5, "Entrypoint": 5, "Cmd": {}, "Labels": 5}},
        {"config": {"Env": [{}, 1, None, "x", "A=1"]}},
        {"config": 5, "created": 5},
        5,
        {"config": {"Entrypoint": [5, "/start"], "Labels": {"a": 1}}, "created": "2026"},
    ],
)
def test_odd_configurations(files, config):
    """R-11: what isn't of the right type is ignored, also the name of a layer."""
    text = json.dumps(config).encode()
    manifest = image(text, title=5, annotations={"org.opencontainers.image.created": 7})
    manifest["layers"][0]["mediaType"] = SIF_LAYER
    add(files, "1", manifest, text)
    found = remote.look(open_repository(source(files)).reference)
    assert found.found.environment in ({}, {"A": "1"})
    assert found.found.entry_point in ({}, {"entrypoint": "/start"})
    assert found.names == ["tool-1.sif"]


@pytest.mark.parametrize("kind", ["application/vnd.sylabs.sif.layer.v1.sif", "appliciation/vnd.sylabs.sif.layer.tar"])
def test_a_sif_file_with_a_bill_of_materials(files, kind):
    """R-02: a SIF file is known by its media type, also that of old versions, and beside other layers."""
    layer = Descriptor.of("application/spdx+json", b"{}").as_json()
    sif = {**Descriptor.of(kind, DATA).as_json(), "annotations": {TITLE: "tool-1.sif"}}
    add(files, "1", {**image(), "layers": [layer, sif]}, CONFIG, b"{}")
    found = remote.look(open_repository(source(files)).reference)
    assert (found.found.sha256, found.found.size) == (sif["digest"].partition(":")[2], len(DATA))


def test_a_list_of_references_that_is_cut(files):
    """R-11: an image whose attached bills of materials can't be asked for is known nevertheless."""
    found = add(files, "1", image(), CONFIG)
    files.content[f"/v2/{NAME}/referrers/{found.digest}"] = json.dumps({"manifests": []}).encode()
    repository = open_repository(source(files))
    files.cuts[:] = [3]
    with pytest.raises(TransferError, match="the connection was cut after 3 of 17 bytes"):
        repository.referrers(found.digest)
    # the first answer is that with the configuration
    files.cuts[:] = [len(CONFIG), 3]
    assert remote.look(repository.reference).found.environment == {"A": "1"}
    assert files.cuts == []


@pytest.mark.parametrize("state", ["gone", "refused"])
def test_only_what_is_missing_is_gone(files, state):
    """R-05: a registry that doesn't answer as it should says nothing about its images."""
    said = []
    files.password = "unknown" if state == "refused" else None
    digest = f"sha256:{'0' * 64}"
    repository = open_repository(source(files))
    records = [(SimpleNamespace(archived=None), repository.reference.with_digest(digest))]
    with pytest.raises(TransferError) as error:
        repository.resolve(digest)
    assert isinstance(error.value, MissingError) == (state == "gone")
    tags.check_records(SimpleNamespace(say_of=lambda *found: said.append(found[2])), records, repository)
    (text,) = said
    assert ("archive the record" in text) == (state == "gone")
    assert ("could not be asked: " in text) == (state == "refused")


def test_blobs_that_are_wrong(files, tmp_path):
    """R-03: nothing stays of a blob that is cut or altered, or of which more arrives than the manifest says."""
    blob = Descriptor("", Descriptor.of("", DATA).digest, len(DATA) - 1)
    files.content[f"/v2/{NAME}/blobs/{blob.digest}"] = DATA
    repository = open_repository(source(files))
    with pytest.raises(RegistryContentError, match="has the wrong content"):
        repository.download(blob, tmp_path / "data")
    whole = Descriptor.of("", DATA)
    files.cuts[:] = [5]
    with pytest.raises(TransferError, match=f"{whole.digest} was cut after 5 of {len(DATA)} bytes: run "):
        repository.download(whole, tmp_path / "data")
    files.content[f"/v2/{NAME}/blobs/{whole.digest}"] = b"x" * len(DATA)
    for get in (repository.read, lambda blob: repository.download(blob, tmp_path / "data")):
        with pytest.raises(RegistryContentError, match=f"{whole.digest} has the wrong content"):
            get(whole)
    assert not list(tmp_path.iterdir())
    files.content[f"/v2/{NAME}/blobs/{whole.digest}"] = DATA
    repository.download(whole, tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == DATA


def test_layouts_that_can_not_be_written_or_read(tmp_path):
    """R-03, R-08: a directory that can't be written, and a blob that is cut or gone there, are errors with a remedy."""
    (tmp_path / "file").touch()
    blob = Descriptor.of("", DATA)
    with pytest.raises(RegistryContentError, match=r"x/blobs/.* can't be written \(Not a directory\): make room, or"):
        open_repository(f"oci:{tmp_path}/file/x:1").upload(blob, DATA)
    place = open_repository(f"oci:{tmp_path}/x:1")
    place.upload(blob, DATA)
    assert place.read(blob) == DATA
    place.path_of(blob.digest).write_bytes(DATA[:-1])
    with pytest.raises(TransferError, match=f"{blob.digest} was cut after 22 of 23 bytes: run the command again"):
        place.read(blob)
    place.path_of(blob.digest).unlink()
    with pytest.raises(TransferError, match=f"the blob {blob.digest} is missing"):
        place.read(blob)


def test_control_characters_reach_no_terminal(capsys, monkeypatch):
    """What others have written is shown with its control characters escaped, lines stay lines."""
    monkeypatch.setattr(cli, "run", Mock(side_effect=EbsifError("module \x1b]0;title\x07 of\n\tanother")))
    assert cli.main(["list"]) == 3
    output.note("the image \x1b[31m")
    output.hint("the image \x1b[32m")
    table.print_table(["name"], [["\x1b[33m"]])
    plan.show_packages(plan.Plan(added=[plan.Addition("\x1b[34m", "1\r", "asked for")]))
    said = "".join(capsys.readouterr())
    assert "ebsif: module \\x1b]0;title\\x07 of\n\tanother\n" in said
    assert not set(said) & {"\x1b", "\x07", "\r"}
    assert all(f"\\x1b[{number}m" in said for number in range(31, 35))
