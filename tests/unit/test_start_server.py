"""The run script that starts a server and a program that uses it, with a stand-in for `vllm serve --uds`."""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import sys
import time
import urllib.parse
from pathlib import Path

import pytest
from serving import START, Job, SocketConnection, ask
from support import attempt, until


@pytest.fixture
def served(tmp_path):
    """A job."""
    found = Job(tmp_path)
    yield found
    if found.process:
        found.process.kill()


def test_a_client_and_its_server(served):
    """Y-02, Y-03: the client gets address and key; without the key nobody gets through; its status counts."""
    served.start("3")
    status, said = served.ended()
    assert status == 3, said
    assert re.fullmatch(r"start-server: the server has answered after \d seconds\n", said)
    told, found = (json.loads((served.folder / name).read_text()) for name in ("told.json", "said.json"))
    del found["base"]
    assert (found.pop("none"), found.pop("wrong")) == ([401, "invalid_api_key"],) * 2
    assert found == {"models": [200, "/v1/models"], "post": True, "rank": False, "no_proxy": "site,127.0.0.1"}
    # no variables of a rank, no key in words or in the log; what others may not read
    assert told["words"] == ["model", "--uds", told["words"][-1]] and "RANK" not in told["variables"]
    assert told["modes"] == ["0o700", ["job", "relay.sock", "server.sock"]]
    assert stat.S_IMODE(served.log.stat().st_mode) == 0o600
    assert served.KEY not in served.log.read_text() + str(told["words"])


def test_a_server_on_a_port(served):
    """Y-03: a server without sockets listens on a port of the loop-back address, and has the key in its variable."""
    served.start("0", where="{port}", options=["--key-variable=VLLM_API_KEY"])
    assert served.ended()[0] == 0
    assert json.loads((served.folder / "told.json").read_text())["variables"]["VLLM_API_KEY"] == served.KEY


def test_a_server_that_stays(served):
    """Y-03: without a client, the server stays; only its person reads how to reach it; TERM ends it."""
    served.start()
    assert served.wait_for("told.json")
    path = served.directory / "server.json"
    until(lambda: path.exists() and path.read_text(), 60)
    assert (json.loads(path.read_text()), stat.S_IMODE(path.stat().st_mode)) == ({"key": served.KEY}, 0o600)
    connection = SocketConnection(str(served.directory / "relay.sock"))
    for head, status in (({"authorization": f"Bearer {served.KEY}"}, 200), ({}, 401)):
        connection.request("GET", "/health", headers=head)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Connection")) == (status, "close") and answer.read()
    served.process.send_signal(signal.SIGTERM)
    status, said = served.ended()
    assert status == 143
    assert "start-server: the server answers. To use it: ebsif connect '12[3]'\n" in said


@pytest.mark.parametrize(
    ("arguments", "victim", "status", "reason"),
    [
        # the server ends first, also if the client ends at once because of it
        (["waits"], "server", 137, "the server has ended with status 137"),
        (["kills"], None, 9, "the server has ended with status 9"),
        ([], "server", 137, "the server has ended with status 137"),
        (["waits"], "all", -9, ""),
        # USR1 is for the client, which decides; a server without client has nothing to save
        (["waits"], signal.SIGUSR1, 7, ""),
        ([], signal.SIGUSR1, 0, ""),
    ],
)
def test_what_ends_first_decides(served, arguments, victim, status, reason):
    """Y-03: whichever ends or fails first decides the status, and no process stays."""
    served.start(*arguments)
    if arguments != ["kills"]:
        # that job may have ended before one looks
        served.wait_for("said.json" if arguments else "told.json")
    if victim == "server":
        os.kill(served.wait_for("told.json")["process"], signal.SIGKILL)
    elif victim == "all":
        served.process.kill()
        time.sleep(1)
    elif victim:
        while not arguments and not (served.directory / "server.json").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        served.process.send_signal(victim)
    found, said = served.ended()
    assert found == status, said
    assert reason in said
    assert ("| loading" in said) == bool(reason), said


def test_a_client_that_has_gone(served):
    """Y-03: the server learns that nobody waits for its answer, so it need not go on."""
    served.start()
    served.wait_for("told.json")
    served.wait_for(served.directory / "server.json")
    with served.relay() as connection:
        connection.sendall(served.request("/gone"))
    served.wait_for_file("gone")


def test_another_protocol(served):
    """Y-03: WebSocket and others pass, after a request with the key, in both directions."""
    served.start()
    served.wait_for("told.json")
    served.wait_for(served.directory / "server.json")
    with served.relay() as connection, connection.makefile("rb") as heard:
        connection.sendall(served.request("/upgrade", "Connection: keep-alive, Upgrade", "Upgrade: shout"))
        assert heard.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
        assert b"Connection: Upgrade\r\n" in list(iter(heard.readline, b"\r\n"))
        for word in (b"one\n", b"two\n"):
            connection.sendall(word)
            assert heard.readline() == word.upper()
    with served.relay() as connection, connection.makefile("rb") as heard:
        connection.sendall(served.request("/v1/models", "Connection: Upgrade", "Upgrade: h2c"))
        assert heard.readline() == b"HTTP/1.1 200 OK\r\n"
        assert b"Connection: close\r\n" in list(iter(heard.readline, b"\r\n"))


def test_connections_without_the_key(served):
    """Y-02: whoever fills the relay with connections that say nothing stops nobody else, and loses them soon."""
    served.start("waits")
    base = served.wait_for("said.json")["base"]
    place = ("127.0.0.1", urllib.parse.urlsplit(base).port)
    strangers = [socket.create_connection(place) for _ in range(200)]
    begin = time.monotonic()
    assert ask(place[1], served.KEY)[0] == 200
    for stranger in strangers:
        stranger.settimeout(20)
        with stranger, contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert time.monotonic() < begin + 15


def test_a_signal_for_all_processes(served):
    """Y-03: a scheduler may send TERM to all of them; the relay stays while the program saves its state."""
    served.start("waits")
    served.wait_for("said.json")
    own = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ours = f"STAND_IN={served.folder}\0".encode() in (place / "environ").read_bytes()
            if is_ours and b"start-server.py" in (place / "cmdline").read_bytes():
                own.append(int(place.name))
    # the last one is the relay
    os.kill(max(own), signal.SIGTERM)
    time.sleep(0.5)
    assert served.process.poll() is None
    served.process.send_signal(signal.SIGUSR1)
    assert served.ended()[0] == 7


@pytest.mark.parametrize(
    ("environment", "options", "status", "reason"),
    [
        ({"FAILS": "6", "SAYS": "no GPU"}, [], 6, "| loading no GPU\n"),
        # a server that ends before its client is no success
        ({"FAILS": "0"}, [], 1, "the server has ended with status 0"),
        ({"SLOW": "60"}, ["--within=1"], 1, "the server does not answer at /health within 1 seconds"),
        ({"OPENAI_API_KEY": ""}, [], 1, "the secret of this job, doesn't reach this node"),
        ({"EBSIF_SERVER_LOG": "/proc/no/log"}, [], 1, "can't write the log of the server, /proc/no/log: No such file"),
    ],
)
def test_a_server_that_does_not_answer(served, environment, options, status, reason):
    """Y-03: the status is the server's, its last lines are printed, and the client does not run."""
    served.log.write_text("of the start before\n")
    served.start("0", options=options, **environment)
    found, said = served.process.communicate(timeout=60)[0], served.process.returncode
    assert (said, reason in found) == (status, True), found
    assert "of the start before" not in found
    assert not (served.folder / "said.json").exists()


def test_a_program_that_the_container_lacks(served):
    """Y-03, N-07: the message names the program."""
    command = [sys.executable, START, "--ready=/", "--", "no-such-server", "{socket}"]
    told = attempt(command, env={"OPENAI_API_KEY": "x", "EBSIF_LOADED_MODULE": "M/.1"}, cwd=served.folder)
    assert told.returncode == 1
    assert "the container can't start no-such-server: No such file" in told.stderr
    assert "ebsif extend M/1)" in told.stderr
