"""OCI images for tests: layouts with one layer, made of the files of a directory."""

import gzip
import hashlib
import io
import json
import tarfile

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
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": {"mediaType": f"{OCI}.config.v1+json", **add_blob(folder, json.dumps(config).encode())},
        "layers": [{"mediaType": f"{OCI}.layer.v1.tar+gzip", **add_blob(folder, gzip.compress(layer, mtime=0))}],
    }
    entry = {"mediaType": manifest["mediaType"], **add_blob(folder, json.dumps(manifest).encode())}
    if tag:
        entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    index = folder / "index.json"
    entries = json.loads(index.read_text())["manifests"] if index.exists() else []
    index.write_text(json.dumps({"schemaVersion": 2, "manifests": [*entries, entry]}))
    return entry["digest"]
