"""OCI images for tests: layouts, archives and archives of Docker with one layer, made of the files of a directory."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

OCI = "application/vnd.oci.image"


def add_blob(folder, data):
    """Write a blob (bytes) to a layout; return its digest and size, as in a manifest."""
    digest = hashlib.sha256(data).hexdigest()
    (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (folder / "blobs/sha256" / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def layer_of(root):
    """Return the files of a directory as a tar file (bytes)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(root, arcname=".")
    return data.getvalue()


def add_image(folder, root, tag=None):
    """Add an image to an OCI layout, which may be new."""
    folder.mkdir(exist_ok=True)
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    layer = layer_of(root)
    config = {"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/bin:/bin"]},
              "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}}
    manifest = {
        "schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json",
        "config": {"mediaType": f"{OCI}.config.v1+json", **add_blob(folder, json.dumps(config).encode())},
        "layers": [{"mediaType": f"{OCI}.layer.v1.tar+gzip", **add_blob(folder, gzip.compress(layer, mtime=0))}]}
    entry = {"mediaType": manifest["mediaType"], **add_blob(folder, json.dumps(manifest).encode())}
    if tag:
        entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    index = folder / "index.json"
    entries = json.loads(index.read_text())["manifests"] if index.exists() else []
    index.write_text(json.dumps({"schemaVersion": 2, "manifests": [*entries, entry]}))
    return entry["digest"]


def pack(folder, archive):
    """Write a layout to a tar file, as programs for containers do (oci-archive)."""
    with tarfile.open(archive, "w") as file:
        for name in ("oci-layout", "index.json", "blobs"):
            file.add(Path(folder, name), arcname=name)


def docker_archive(archive, root):
    """Write an archive such as `docker save` does."""
    layer = layer_of(root)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {},
                         "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}).encode()
    manifest = [{"Config": f"{hashlib.sha256(config).hexdigest()}.json", "RepoTags": ["test:1"],
                 "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(archive, "w") as file:
        for path, data in ((manifest[0]["Config"], config), (manifest[0]["Layers"][0], layer),
                           ("manifest.json", json.dumps(manifest).encode())):
            member = tarfile.TarInfo(path)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
