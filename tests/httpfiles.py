"""An HTTP server for tests: files that can be cut, altered and moved, and the protocol of registries with tokens."""

import base64
import hashlib
import json
import os
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from easybuild.easyblocks.generic.container.image.sif import DESCRIPTOR, HEADER

# a file that looks like an image
BEGIN = HEADER.size + DESCRIPTOR.size
DATA = os.urandom(300_000 - BEGIN)
SIF = (
    HEADER.pack(bytes(32), b"SIF_MAGIC", b"", b"", 0, 0, 0, 1, HEADER.size, DESCRIPTOR.size, BEGIN, len(DATA))
    + DESCRIPTOR.pack(0x4004, True, 1, 0, 0, BEGIN, len(DATA), len(DATA), 0, 0, 0, 0, b"", b"")
    + DATA
)

SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"


class Files:
    """What a server has, and how it misbehaves."""

    def __init__(self):
        """An empty server."""
        self.content, self.cuts, self.moved, self.links, self.requests = {}, [], {}, {}, []
        self.held = None
        self.password, self.is_basic, self.url = None, False, None

    @property
    def host(self):
        """Host and port."""
        return self.url.partition("://")[2]

    def authorization(self, path):
        """Return the header that a request for a path needs, None if it needs none."""
        if self.password is None:
            return None
        basic = "Basic " + base64.b64encode(f"user:{self.password}".encode()).decode()
        return basic if self.is_basic or path.startswith("/token") else "Bearer " + self.token

    token = "t0ken-of-the-test"

    @property
    def challenge(self):
        """The header of answers without authorization."""
        return 'Basic realm="r"' if self.is_basic else f'Bearer realm="{self.url}/token",service="files"'

    def push(self, repository, tag, data, layer=SIF_LAYER):
        """Add an image to the registry, as `apptainer push` does; return the digests of its manifest and its blob."""
        blob = digest_of(data)
        config = {"mediaType": "application/vnd.sylabs.sif.config.v1+json", "digest": digest_of(b"{}"), "size": 2}
        layers = [{"mediaType": layer, "digest": blob, "size": len(data)}]
        kind = "application/vnd.oci.image.manifest.v1+json"
        content = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers}
        manifest = json.dumps(content).encode()
        self.content[f"/v2/{repository}/blobs/{blob}"] = data
        for reference in (tag, digest_of(manifest)):
            self.content[f"/v2/{repository}/manifests/{reference}"] = manifest
        return digest_of(manifest), blob


def digest_of(data):
    """Return a digest as registries write it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


@contextmanager
def serve_files():
    """Start a server; the value is its Files."""
    files = Files()

    class Handler(BaseHTTPRequestHandler):
        """Answers GET and HEAD."""

        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            """Print nothing."""

        def answer(self, status, data=b"", **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            if self.path in files.links:
                # there may be others
                self.send_header("Link", "<style.css>; rel=preload")
                self.send_header("Link", files.links[self.path])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            is_file = status == 200 and not self.path.startswith("/token") and "/manifests/" not in self.path
            number = files.cuts.pop(0) if is_file and files.cuts else len(data)
            if self.command == "GET":
                self.wfile.write(data[:number])
            if number < len(data):
                # the client may be killed meanwhile
                with suppress(OSError):
                    while files.held and not files.held.wait(1):
                        self.wfile.write(data[number : number + 1])
                        number += 1
                self.close_connection = True

        def do_GET(self):
            files.requests.append((self.path, dict(self.headers)))
            wanted = files.authorization(self.path)
            if wanted and self.headers.get("Authorization") != wanted:
                return self.answer(401, WWW_Authenticate=files.challenge)
            if self.path.startswith("/token"):
                return self.answer(200, json.dumps({"token": files.token}).encode())
            if self.path in files.moved:
                return self.answer(307, Location=files.moved[self.path])
            if self.path not in files.content:
                return self.answer(404)
            return self.answer(200, files.content[self.path])

        do_HEAD = do_GET  # noqa: N815 (name given by http.server)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    files.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
