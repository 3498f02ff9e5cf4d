"""The run script that starts Ray on the nodes of a job, with a stand-in for Ray."""

import contextlib
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import stat
import sys
import time
from pathlib import Path

import pytest
from slurm import free_ports
from support import CONTAINER_FILES, processes_with, started, until

START = CONTAINER_FILES / "runscripts/start-ray.py"

# `ray start`: it leaves daemons behind, and notes what it was told.
RAY = """
import json, os, shutil, subprocess, sys, time

folder = os.environ["STAND_IN"]
if os.environ.get("FAILS") in sys.argv:
    sys.exit("no such luck")
rank = "0" if "--head" in sys.argv else "1"
time.sleep(float(os.environ.get("SLOW", 0)) if rank == "0" else 0)
parts = ("RAY", "RANK", "DEVICES", "VLLM")
variables = {name: value for name, value in os.environ.items() if any(part in name for part in parts)}
path = os.environ.get("RAY_AUTH_TOKEN_PATH")
told = {"options": sys.argv[2:], "variables": variables, "token": path and open(path).read(),
        "modes": path and [oct(os.stat(one).st_mode & 0o777) for one in (path, os.path.dirname(path))]}
with open(f"{folder}/told-{rank}.json", "w") as file:
    json.dump(told, file)
os.mkdir(f"{folder}/daemons-{rank}")
for name in ("raylet", "gcs_server")[:2 - int(rank)]:
    program = shutil.copy("/bin/sleep", f"{folder}/daemons-{rank}/{name}")
    daemon = subprocess.Popen([program, "60"], start_new_session=True)
    with open(f"{folder}/{name}-{rank}", "w") as file:
        file.write(str(daemon.pid))
"""

# Says that it runs, and ends with the status in its arguments, or when it is asked to.
PROGRAM = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
open("runs", "w").write(os.environ["RAY_ADDRESS"])
time.sleep(0 if sys.argv[1:] else 30)
sys.exit(int(sys.argv[1]))
"""


class Nodes:
    """Two nodes of a job on this machine, with a stand-in for Ray."""

    SECRET = "0123456789abcdef"

    def __init__(self, folder, version="2.60.0"):
        self.folder, self.processes, self.script = folder, [], START
        (folder / "ray/scripts").mkdir(parents=True)
        (folder / "ray/__init__.py").touch()
        (folder / "ray/scripts/__init__.py").touch()
        (folder / "ray/scripts/scripts.py").write_text(RAY)
        self.set_version(version)
        (folder / "program.py").write_text(PROGRAM)
        (self.port,) = free_ports(1)

    def set_version(self, version):
        """Let Ray have another version."""
        for path in self.folder.glob("ray-*.dist-info"):
            shutil.rmtree(path)
        info = self.folder / f"ray-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ray\nVersion: {version}\n")

    def start(self, rank, *arguments, **environment):
        """Start a node; return its Popen."""
        own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.folder), "STAND_IN": str(self.folder)}
        job = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "ROCR_VISIBLE_DEVICES": "4,5"}
        job |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "RAY_AUTH_TOKEN": self.SECRET}
        command = [sys.executable, self.script, "--cpus=3", "--gpus=2", "--tokens-since=2.52", *arguments]
        process = started(command, cwd=self.folder, env={**own, **job, **environment})
        self.processes.append(process)
        return process

    def both(self, *arguments, **environment):
        """Start both nodes; return their Popens."""
        return [self.start(rank, *arguments, **environment) for rank in (1, 0)][::-1]

    def wait_for(self, name):
        """Wait until a file in the folder has content; return it."""
        path = self.folder / name
        return until(lambda: path.exists() and path.read_text(), 60)

    def ended(self):
        """Wait for all nodes; return their statuses and all that they have said. Nothing of them stays."""
        said = [process.communicate(timeout=60)[0] for process in self.processes]
        assert not processes_with(f"STAND_IN={self.folder}")
        assert not self.directory.exists()
        return [process.returncode for process in self.processes], "".join(said)

    @property
    def directory(self):
        """Ray's directory."""
        name = hmac.new(self.SECRET.encode(), b"directory", hashlib.sha256).hexdigest()[:10]
        return Path("/tmp", f"ray.{name}")


@pytest.fixture
def nodes(tmp_path):
    """Two nodes."""
    found = Nodes(tmp_path)
    found.SECRET = hashlib.sha256(str(tmp_path).encode()).hexdigest()
    yield found
    for process in found.processes:
        process.kill()


def test_ray_on_two_nodes(nodes):
    """Y-01, Y-02: each node of Ray has what the job has; the program's status counts; the token is private."""
    nodes.both("--", "program.py", "3")
    assert nodes.ended() == ([0, 3], "")
    head, other = (json.loads((nodes.folder / f"told-{rank}.json").read_text()) for rank in (0, 1))
    address = (nodes.folder / "runs").read_text()
    assert head["options"][:3] == ["--head", f"--port={address.rpartition(':')[2]}", "--include-dashboard=false"]
    assert other["options"][0] == f"--address={address}"
    for told in (head, other):
        assert {"--num-cpus=3", "--num-gpus=2", f"--temp-dir={nodes.directory}/ray"} < set(told["options"])
        assert (told["token"], told["modes"]) == (nodes.SECRET, ["0o600", "0o700"])
        assert nodes.SECRET not in str(told["options"])
        # what is for a rank isn't for Ray's workers
        place = told["variables"]["RAY_AUTH_TOKEN_PATH"]
        tokens = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": place, "RAY_USAGE_STATS_ENABLED": "0"}
        assert told["variables"] == {**tokens, "HIP_VISIBLE_DEVICES": "4,5", "VLLM_HOST_IP": "127.0.0.1"}


@pytest.mark.parametrize(
    ("victim", "statuses", "reason"),
    [
        ("raylet-0", [1, 1], "the process raylet of Ray has ended"),
        ("gcs_server-0", [1, 1], "the process gcs_server of Ray has ended"),
        ("raylet-1", [1, 1], "the node 127.0.0.1 is lost"),
        (0, [-9, 1], "the first node is lost"),
        (1, [-9, 1], "the node 127.0.0.1 is lost"),
        # the program decides
        (signal.SIGUSR1, [0, 7], ""),
    ],
)
def test_whatever_is_lost_ends_the_job(nodes, victim, statuses, reason):
    """Y-01: if a node or a process of Ray is killed, both nodes end, and no process stays."""
    started = nodes.both("--", "program.py")
    nodes.wait_for("runs")
    if isinstance(victim, signal.Signals):
        started[0].send_signal(victim)
    elif isinstance(victim, int):
        started[victim].kill()
    else:
        os.kill(int((nodes.folder / victim).read_text()), signal.SIGKILL)
    found, said = nodes.ended()
    assert sorted(found) == statuses, said
    assert reason in said


@pytest.mark.parametrize("killed", [False, True])
def test_a_head_that_takes_its_time(nodes, killed):
    """Y-01: on a slow file system, the head is ready long after the others wait for it; they still notice an end."""
    nodes.script = nodes.folder / "start-ray.py"
    text = START.read_text()
    assert "START_LIMIT, MOMENT = 600, 20\n" in text
    nodes.script.write_text(text.replace("MOMENT = 600, 20\n", "MOMENT = 600, 0.5\n"))
    shutil.copy(START.with_name("job_processes.py"), nodes.folder)
    _, other = nodes.both("--", "program.py", "0", SLOW="2")
    if killed:
        time.sleep(1)
        other.kill()
    statuses, said = nodes.ended()
    assert sorted(statuses) == ([-9, 1] if killed else [0, 0]), said
    assert ("the node 127.0.0.1 is lost" in said) == killed


def test_a_node_that_does_not_start(nodes):
    """Y-01: what Ray says is printed, and the program does not run."""
    nodes.both("--", "program.py", FAILS="--num-gpus=2")
    statuses, said = nodes.ended()
    assert statuses == [1, 1] and "no such luck" in said and "Ray does not start" in said
    assert not (nodes.folder / "runs").exists()


def test_who_does_not_know_the_secret(nodes):
    """Y-02: a program of somebody else that connects first is refused, learns nothing, and the job goes on at once."""
    first = nodes.start(0, "--", "program.py", "0")
    silent, begin = [], time.monotonic()
    for answer in (b"", b"0" * 32 + b"\n" + b"0" * 64 + b"\n", None, b"0"):
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                stranger = socket.create_connection(("127.0.0.1", nodes.port))
                break
            assert time.monotonic() < end
        if answer in (None, b"0"):
            # waits, and says no more
            stranger.sendall(answer or b"")
            silent.append(stranger)
            continue
        with stranger:
            stranger.sendall(answer)
            stranger.shutdown(socket.SHUT_WR)
            heard = b""
            with contextlib.suppress(ConnectionResetError):
                while more := stranger.recv(1000):
                    heard += more
        assert nodes.SECRET.encode() not in heard and b":" not in heard
    nodes.start(1, "--", "program.py", "0")
    statuses, said = nodes.ended()
    assert statuses == [0, 0] and first.returncode == 0
    assert time.monotonic() < begin + 15
    for stranger in silent:
        stranger.close()
    assert said.count("start-ray: refused a connection of 127.0.0.1: ") == 2


def test_a_stranger_at_the_port_of_the_first_node(nodes):
    """Y-02: the other nodes tell nothing to a program that listens where the first node should."""
    with socket.create_server(("127.0.0.1", nodes.port)) as server:
        first, other = nodes.both("--", "program.py", "0")
        stranger, _ = server.accept()
        with stranger:
            stranger.sendall(b"0" * 32 + b"\n" + b"0" * 64 + b"\n127.0.0.1:1\n")
            heard = stranger.recv(1000)
        assert nodes.SECRET.encode() not in heard
        assert first.wait(60) == 1
        assert not (nodes.folder / "told-1.json").exists()
        other.kill()
    _, said = nodes.ended()
    assert f"port {nodes.port}: Address already in use (export MASTER_PORT with another one)" in said


def test_a_directory_of_somebody_else(nodes):
    """Y-02: nothing is written where others can read."""
    nodes.directory.mkdir()
    nodes.directory.chmod(0o755)
    try:
        nodes.start(0, "--", "program.py", "0")
        said = nodes.processes[0].communicate(timeout=60)[0]
        assert nodes.processes[0].returncode == 1 and f"{nodes.directory} belongs to others" in said
        assert stat.S_IMODE(nodes.directory.stat().st_mode) == 0o755 and not list(nodes.directory.iterdir())
    finally:
        nodes.directory.rmdir()


@pytest.mark.parametrize(
    ("version", "options", "expected"),
    [
        ("2.51.1", [], "Ray 2.51.1 has no tokens (2.52 has), so others who reach its ports could run code in this job"),
        ("2.51rc1", [], "Ray 2.51rc1 has no tokens (2.52 has), so others who reach its ports could run code in this"),
        ("2.51.1", ["--without-tokens"], ""),
        ("2.60.0", ["--without-tokens"], ""),
        ("2.52.0rc1", [], ""),
        (None, [], "this container has no Ray. To add it: ebsif extend M/1 --name ray --add ray"),
    ],
)
def test_ray_without_tokens(nodes, version, options, expected):
    """Y-02: a Ray that everybody could use is refused, unless others have no access or the person accepts it."""
    if version:
        nodes.set_version(version)
    else:
        shutil.rmtree(nodes.folder / "ray")
        shutil.rmtree(nodes.folder / "ray-2.60.0.dist-info")
    nodes.start(0, *options, "--", "program.py", "0", WORLD_SIZE="1", EBSIF_LOADED_MODULE="M/1")
    statuses, said = nodes.ended()
    assert statuses == [1 if expected else 0]
    assert expected in said
    if not expected:
        token = '"RAY_AUTH_MODE": "token"' in (nodes.folder / "told-0.json").read_text()
        assert token == (version != "2.51.1")
