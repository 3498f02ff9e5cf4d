"""The client for registries and OCI layouts, with a real registry and the real programs that fill it."""

import json

import pytest
from ebsif.errors import EbsifError
from ebsif.images.registry.manifest import Descriptor, Manifest, RegistryContentError
from ebsif.images.registry.reference import open_repository
from parts import part
from registry import CuttingProxy
from support import attempt

CONTENT = bytes(range(256)) * 12_000


def run(*command, **options):
    """Run a program and return its output."""
    done = attempt(list(map(str, command)), timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def pushed(registry, tmp_path):
    """The repository of an artifact that oras has pushed to the registry, with a name of its own for each test."""
    (tmp_path / "data").write_bytes(CONTENT)
    name = f"{registry.host}/tests/{tmp_path.name.replace('_', '-').lower()}"
    content = ("data:application/x-data", "--annotation", "org.opencontainers.image.version=1.0")
    run(part("EBSIF_TEST_ORAS"), "push", "--plain-http", f"{name}:1.0,1.1", *content, cwd=tmp_path)
    return open_repository(f"oras://{name}:1.0")


def place(repository):
    """Return host and path of a repository."""
    return f"{repository.reference.host}/{repository.reference.repository}"


def test_tags_and_digests(pushed, tmp_path):
    """R-02: a tag's digest is the one that skopeo sees; tags, manifest and content are read."""
    name = f"docker://{place(pushed)}"
    raw = run("skopeo", "inspect", "--tls-verify=false", "--raw", f"{name}:1.0")
    assert pushed.resolve() == Manifest.read(raw.encode(), name).digest
    assert pushed.tags() == ["1.0", "1.1"]
    manifest = open_repository(pushed.reference.with_digest(pushed.resolve())).image()
    assert manifest.content == json.loads(raw)
    assert manifest.annotations["org.opencontainers.image.version"] == "1.0"
    (layer,) = manifest.layers
    assert (layer.title, layer.media_type, pushed.read(layer)) == ("data", "application/x-data", CONTENT)
    assert pushed.read(manifest.config) == b"{}"
    with pytest.raises(EbsifError, match=r": tests/\S+ has no tag 1\.2 \(it has 1\.\d, 1\.\d\)"):
        pushed.resolve("1.2")
    with pytest.raises(EbsifError, match="has no manifest sha256:0+ in tests/"):
        pushed.resolve(f"sha256:{'0' * 64}")


def test_a_directory_is_like_a_registry(pushed, tmp_path):
    """R-08: a layout that other programs have written from the registry has the same digests and contents."""
    source, layout = place(pushed), tmp_path / "layout"
    run("skopeo", "copy", "--insecure-policy", "--src-tls-verify=false", f"docker://{source}:1.0", f"oci:{layout}:1.0")
    for name in (f"oci:{layout}:1.0", f"oci:{layout}", f"oci:{layout}@{pushed.resolve()}"):
        here = open_repository(name)
        assert (here.resolve(), here.tags()) == (pushed.resolve(), ["1.0"])
        assert here.read(here.manifest().layers[0]) == CONTENT
    with pytest.raises(EbsifError, match=r"layout has no manifest with the tag 2 \(tags: 1.0\)"):
        open_repository(f"oci:{layout}:2").resolve()
    with pytest.raises(EbsifError, match="none is not a directory with an OCI layout"):
        open_repository(f"oci:{tmp_path}/none:1").resolve()


def test_what_is_uploaded_others_read(registry, tmp_path):
    """R-08: blobs and manifests that are uploaded to a registry and to a directory are valid for oras and skopeo."""
    oras, file = part("EBSIF_TEST_ORAS"), tmp_path / "data"
    file.write_bytes(CONTENT)
    for name, option, other in (
        (f"oras://{registry.host}/tests/up:1", "--plain-http", f"docker://{registry.host}/tests/up:1"),
        (f"oci:{tmp_path}/up:1", "--oci-layout", f"oci:{tmp_path}/up:1"),
    ):
        repository = open_repository(name)
        config = Descriptor.of("application/x-config", b"{}")
        layer = Descriptor.of("application/x-data", CONTENT, **{"org.opencontainers.image.title": "data"})
        text = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config.as_json(),
                "layers": [layer.as_json()],
            }
        ).encode()
        for _ in range(2):
            repository.upload(config, b"{}")
            repository.upload(layer, file)
            repository.put_manifest(Manifest.read(text, name).descriptor, text, "1")
        pulled = tmp_path / option
        run(oras, "pull", option, name.partition(":")[2].removeprefix("//"), "--output", pulled)
        assert (pulled / "data").read_bytes() == CONTENT
        raw = run("skopeo", "inspect", *(["--tls-verify=false"] if other.startswith("docker") else []), "--raw", other)
        assert json.loads(raw) == repository.manifest().content
        assert repository.tags() == ["1"]


def test_cut_and_altered(pushed, registry, tmp_path):
    """R-03: what is cut or altered is refused and leaves nothing behind; the next attempt starts again."""
    (layer,) = pushed.manifest().layers
    with CuttingProxy(registry, 1_500_000, 2) as proxy:
        repository = open_repository(str(pushed.reference).replace(registry.host, proxy.host))
        for read in (lambda: repository.download(layer, tmp_path / "cut"), lambda: repository.read(layer, 10**9)):
            with pytest.raises(EbsifError, match="cut.*un the command again"):
                read()
        assert not (tmp_path / "cut").exists()
        repository.download(layer, tmp_path / "cut")
        assert proxy.ranges == [""] * 3
    assert (tmp_path / "cut").read_bytes() == CONTENT
    blob = registry.blob(layer.digest)
    try:
        blob.write_bytes(CONTENT[:-1] + b"x")
        for read in (lambda: pushed.download(layer, tmp_path / "altered"), lambda: pushed.read(layer)):
            with pytest.raises(RegistryContentError, match=f"{layer.digest} has the wrong content"):
                read()
        assert {one.name for one in tmp_path.iterdir()} == {"data", "cut"}
    finally:
        blob.write_bytes(CONTENT)
    manifest = registry.blob(pushed.resolve())
    before = manifest.read_bytes()
    digest = pushed.resolve()
    try:
        manifest.write_bytes(before.replace(b"1.0", b"9.9"))
        with pytest.raises(EbsifError, match="it was altered, or cut"):
            pushed.resolve(digest)
    finally:
        manifest.write_bytes(before)
