"""A stand-in for vLLM, a program that asks it, and a job with both on this machine."""

import contextlib
import http.client
import json
import os
import socket
import sys
import time
from pathlib import Path

from support import CONTAINER_FILES, processes_with, started, until

START = CONTAINER_FILES / "runscripts/start-server.py"

# `vllm serve`: it answers after a moment, and notes what it was told.
SERVER = """
import http.server, json, os, signal, socket, socketserver, subprocess, sys, time

folder, where = os.environ["STAND_IN"], sys.argv[-1]
print("loading", os.environ.get("SAYS", ""), flush=True)
if "FAILS" in os.environ:
    sys.exit(int(os.environ["FAILS"]))
subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
begin = time.monotonic()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/gone":
            self.rfile.read(1)
            open(f"{folder}/gone", "w").close()
        if self.path == "/upgrade" and self.headers["Connection"] == "Upgrade":
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", self.headers["Upgrade"])
            self.end_headers()
            for line in self.rfile:
                self.wfile.write(line.upper())
            return
        ready = time.monotonic() > begin + float(os.environ.get("SLOW", 0.3))
        self.answer(200 if ready or self.path != "/health" else 503, self.path.encode())

    def do_POST(self):
        self.answer(200, self.rfile.read(int(self.headers["Content-Length"])).upper())

    def answer(self, status, text):
        if self.path == "/exit":
            os._exit(9)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def address_string(self):
        return "client"

if where.startswith("/"):
    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True
else:
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
    where = ("127.0.0.1", int(where))
server = Server(where, Handler)
told = {"words": sys.argv[1:], "variables": dict(os.environ), "process": os.getpid()}
if isinstance(where, str):
    told["modes"] = [oct(os.stat(os.path.dirname(where)).st_mode & 0o777), sorted(os.listdir(os.path.dirname(where)))]
with open(f"{folder}/told.json", "w") as file:
    json.dump(told, file)
server.serve_forever()
"""

# Asks the server, then does what its arguments say.
CLIENT = """
import json, os, signal, subprocess, sys, time, urllib.error, urllib.request
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]

def ask(path, key, data=None):
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(base + path, data, headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["code"]

said = {"models": ask("/models", key), "post": ask("/x", key, b"question" * 50000)[1] == "QUESTION" * 50000,
        "none": ask("/models", None), "wrong": ask("/models", key[:-1] + "x"),
        "base": base, "rank": "RANK" in os.environ, "no_proxy": os.environ["no_proxy"]}
with open("said.json", "w") as file:
    json.dump(said, file)
if sys.argv[1] == "kills":
    try:
        urllib.request.urlopen(urllib.request.Request(base[:-3] + "/exit", None, {"Authorization": f"Bearer {key}"}))
    except Exception:
        sys.exit(5)
time.sleep(0 if sys.argv[1] != "waits" else 30)
sys.exit(int(sys.argv[1]))
"""


class SocketConnection(http.client.HTTPConnection):
    """A connection to a socket file."""

    def connect(self):
        """Connect to the file that is called host."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.host)


def ask(place, key, path="/v1/models", data=None):
    """Return status and answer of the server at a socket file, or at a port."""
    kind = SocketConnection if isinstance(place, str) else http.client.HTTPConnection
    with contextlib.closing(kind(place if isinstance(place, str) else f"127.0.0.1:{place}", timeout=60)) as connection:
        connection.request("POST" if data else "GET", path, data, {"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        return answer.status, answer.read()


class Job:
    """A job with a server on this machine."""

    KEY = "0123456789abcdef"

    def __init__(self, folder):
        self.folder, self.process = folder, None
        (folder / "server.py").write_text(SERVER)
        (folder / "client.py").write_text(CLIENT)
        self.log = folder / "run-server.log"

    def start(self, *arguments, where="{socket}", options=(), **environment):
        """Start the server and, for arguments, the client."""
        server = ["--", sys.executable, str(self.folder / "server.py"), "model", "--uds", where]
        client = ["--", "client.py", *arguments] if arguments else []
        own = {"PATH": os.environ["PATH"], "STAND_IN": str(self.folder), "OPENAI_API_KEY": self.KEY}
        job = {"EBSIF_JOB": "12[3]", "EBSIF_SERVER_LOG": str(self.log), "RANK": "0", "no_proxy": "site"}
        command = [sys.executable, START, "--ready=/health", *options, *server, *client]
        self.process = started(command, cwd=self.folder, env={**own, **job, **environment})

    def wait_for(self, name):
        """Wait until a file in the folder has content; return it as JSON."""
        end = time.monotonic() + 60
        while True:
            assert time.monotonic() < end and self.process.poll() is None, self.process.communicate()[0]
            with contextlib.suppress(OSError, json.JSONDecodeError):
                return json.loads((self.folder / name).read_text())
            time.sleep(0.05)

    def wait_for_file(self, name):
        """Wait until there is a file in the folder."""
        until((self.folder / name).exists, 60)

    def ended(self):
        """Wait for the end; return the status and all that was said. Nothing stays."""
        said = self.process.communicate(timeout=60)[0]
        assert not processes_with(f"STAND_IN={self.folder}")
        folder = self.directory if (self.folder / "told.json").exists() else Path()
        assert not folder.is_absolute() or not folder.exists()
        return self.process.returncode, said

    def relay(self):
        """Return a connection to the relay."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(str(self.directory / "relay.sock"))
        return connection

    def request(self, path, *headers):
        """Return a request with the key (bytes)."""
        lines = [f"GET {path} HTTP/1.1", f"Authorization: Bearer {self.KEY}", *headers, "", ""]
        return "\r\n".join(lines).encode()

    @property
    def directory(self):
        """The server's directory."""
        return Path(json.loads((self.folder / "told.json").read_text())["words"][-1]).parent
