"""The package index of this machine's pip, kept in memory, with the headers by which pip's cache works.

Mirrors often forbid pip to keep what they send. Then each installation downloads all packages, and a benchmark measures
the network. PyPI lets pip keep files, and ask whether a page has changed.
"""

import functools
import hashlib
import json
import os
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What pip uses if nothing is configured, which no command of it tells. Importing it changes how Python logs.
USUAL = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
JSON = "application/vnd.pypi.simple.v1+json"


class Handler(BaseHTTPRequestHandler):
    """Answers with pages (/simple/NAME/) and files (/files/NAME) of the index that is the source."""

    protocol_version = "HTTP/1.1"
    source, kept, places = "", {}, {}

    def do_GET(self):
        """Send a page or file, unless pip has it."""
        content = self.kept.get(self.path) or self.kept.setdefault(self.path, self.fetch())
        tag = f'"{hashlib.sha256(content).hexdigest()}"'
        is_page = self.path.startswith("/simple/")
        is_same = self.headers.get("If-None-Match") == tag
        self.send_response(304 if is_same else 200)
        self.send_header("ETag", tag)
        self.send_header("Cache-Control", f"max-age={600 if is_page else 365000000}, public")
        self.send_header("Content-Type", JSON if is_page else "application/octet-stream")
        self.send_header("Content-Length", str(0 if is_same else len(content)))
        self.end_headers()
        if not is_same:
            self.wfile.write(content)

    def fetch(self):
        """Return a page, whose files are here, or a file."""
        if self.path in self.places:
            return read(self.places[self.path])
        page = json.loads(read(f"{self.source}/{self.path.split('/')[2]}/", Accept=JSON))
        for file in page["files"]:
            self.places[f"/files/{file['filename']}"] = file["url"]
            file["url"] = f"http://{self.headers['Host']}/files/{file['filename']}"
            # pip would ask for it instead of the file
            file.pop("core-metadata", None)
            file.pop("data-dist-info-metadata", None)
        return json.dumps(page).encode()

    def log_message(self, *_):
        """Say nothing."""


def usual_index():
    """Return the index that pip uses if none is configured (str)."""
    return subprocess.run([sys.executable, "-c", USUAL], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def read(url, **headers):
    """Return what is at a URL (bytes)."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        return answer.read()


@functools.cache
def cacheable():
    """
    Start the index, which ends with this process; return the variables that make pip use it (dict).

    Also for PyPI itself: on a machine behind a mirror its name may stand for one that forbids pip to keep files.
    """
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    Handler.source = (os.environ.get("PIP_INDEX_URL") or asked.stdout.strip() or usual_index()).rstrip("/")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # pip keeps nothing from a host without TLS that it doesn't trust
    return {"PIP_INDEX_URL": f"http://127.0.0.1:{server.server_port}/simple", "PIP_TRUSTED_HOST": "127.0.0.1"}
