"""Registries of container images on this machine: Debian's docker-registry, with and without a login."""

import http.client
import http.server
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from parts import part
from support import in_background

CONFIGURATION = """\
version: 0.1
log: {{level: info, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {place}/data}}
  delete: {{enabled: true}}
  maintenance: {{uploadpurging: {{enabled: false}}}}
http: {{addr: "127.0.0.1:0"}}
"""
LOGIN = """\
auth:
  htpasswd: {{realm: tests, path: {place}/htpasswd}}
"""
ACCOUNT, PASSWORD = "person", "over the rainbow"
# of that password, with bcrypt
HTPASSWD = f"{ACCOUNT}:$2b$04$3wQ/hdKwFL9ejbQEzSNQTOMl/R6bOQjrDk/qDeua9hF18shOwcI5C\n"


class Registry:
    """A running registry, which speaks plain HTTP as registries on 127.0.0.1 may."""

    def __init__(self, place, login=False):
        """Start a registry in a directory (Path), which wants the account and password above if `login` is true."""
        self.place = place
        (place / "configuration.yaml").write_text((CONFIGURATION + (LOGIN if login else "")).format(place=place))
        (place / "htpasswd").write_text(HTPASSWD)
        log = place / "log"
        with log.open("w") as output:
            command = [part("EBSIF_TEST_REGISTRY"), "serve", place / "configuration.yaml"]
            self.process = in_background(command, output, env={"OTEL_TRACES_EXPORTER": "none"})
        until = time.monotonic() + 300
        while not (found := re.search(r"listening on (127\.0\.0\.1:\d+)", log.read_text())):
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise AssertionError(f"the registry does not come up: {log.read_text()}")
            time.sleep(0.02)
        self.host = found.group(1)

    def blob(self, digest):
        """Return the file (Path) with the content of a blob (sha256:...), to alter it."""
        algorithm, _, name = digest.partition(":")
        return self.place / "data/docker/registry/v2/blobs" / algorithm / name[:2] / name / "data"

    def stop(self):
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(timeout=300)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def registry():
    """A registry that everybody can read and write."""
    with tempfile.TemporaryDirectory(prefix="ebsif-registry-") as place:
        started = Registry(Path(place))
        yield started
        started.stop()


@pytest.fixture(scope="session")
def private_registry():
    """A registry that wants a login, with ACCOUNT and PASSWORD."""
    with tempfile.TemporaryDirectory(prefix="ebsif-registry-") as place:
        started = Registry(Path(place), login=True)
        yield started
        started.stop()


class CuttingProxy(http.server.ThreadingHTTPServer):
    """A registry whose connections are cut in the middle of a blob."""

    daemon_threads = True

    def __init__(self, registry, after, times):
        """Forward to a Registry, and cut as many connections, each after a number of bytes."""
        super().__init__(("127.0.0.1", 0), Forwarding)
        self.registry, self.after, self.left, self.ranges = registry, after, times, []
        self.host = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def __exit__(self, *_):
        """Stop."""
        self.shutdown()
        self.server_close()


class Forwarding(http.server.BaseHTTPRequestHandler):
    """A request that is forwarded to the registry."""

    def do_GET(self):
        """Forward it, and cut the answer if it is a blob."""
        connection = http.client.HTTPConnection(self.server.registry.host, timeout=300)
        connection.request("GET", self.path, headers={**self.headers, "Host": self.server.registry.host})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if "/blobs/" in self.path:
            self.server.ranges.append(self.headers.get("Range", ""))
            if self.server.left:
                self.server.left -= 1
                content = content[: self.server.after]
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def log_message(self, *_):
        """Say nothing."""
