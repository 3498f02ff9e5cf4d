"""`ebsif connect`, with stand-ins for the scheduler and for the server of a job."""

import asyncio
import io
import json
import os
import pwd
import re
import secrets
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ebsif.jobs import tunnel
from serving import Job, ask
from support import heed_signals

PERSON = pwd.getpwuid(os.getuid()).pw_name

# Answers as it was told, %s is the ID of the job, and runs what srun would run on a node; a login shell may print
# something first.
PROGRAMS = {
    "squeue": '#!/bin/sh\nfor job; do :; done\nprintf "$SAYS" "$job"\n',
    "srun": '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n',
    "qstat": '#!/bin/sh\nprintf "Job Id: $2.pbs\n Job_Owner = $SAYS@pbs\n job_state = R\n exec_host = n7/0*4+n8/0"\n',
    "ssh": '#!/bin/sh\nwhile [ "${1#n}" = "$1" ]; do shift; done\necho "Welcome, $(id -un)!"; exec sh -c "$2"\n',
}


class Login:
    """A login node with a scheduler."""

    def __init__(self, folder):
        self.folder, self.started = folder, []
        for name, text in PROGRAMS.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def connect(self, *arguments, says=f"RUNNING {PERSON} n7 %s", site="local"):
        """Start `ebsif connect`; return its Popen."""
        variables = {"PATH": f"{self.folder}:{os.environ['PATH']}", "SAYS": says, "EBSIF_SITE": site}
        program = [sys.executable, "-c", "from ebsif.cli import main; raise SystemExit(main())"]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [*program, "connect", *arguments]
        process = subprocess.Popen(command, env=variables, **streams, preexec_fn=heed_signals)
        self.started.append(process)
        return process


@pytest.fixture
def login(tmp_path):
    """A login node."""
    (tmp_path / "bin").mkdir()
    node = Login(tmp_path / "bin")
    yield node
    # those of a test that has failed
    for process in node.started:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture
def served(tmp_path):
    """A job whose server stays."""
    job = Job(tmp_path)
    job.number = str(secrets.randbelow(10**15))
    job.start(EBSIF_JOB=job.number)
    job.wait_for("told.json")
    yield job
    job.process.kill()


def ready(job):
    """Wait until the server of a job can be reached."""
    while "ebsif connect" not in job.process.stdout.readline():
        assert job.process.poll() is None


@pytest.mark.parametrize(
    ("site", "says", "end"),
    [
        ("local", f"RUNNING {PERSON} n7 %s", signal.SIGINT),
        # the terminal has gone
        ("derecho", PERSON, signal.SIGHUP),
        ("local", f"RUNNING {PERSON} n7 %s", signal.SIGTERM),
    ],
)
def test_the_server_of_a_running_job(login, served, site, says, end):
    """Y-04: a socket file of the person alone, the commands for the computer at home, and no key in a file."""
    ready(served)
    connected = login.connect(f"{served.number}", says=says, site=site)
    said = ""
    while "Ctrl-C" not in said:
        line = connected.stdout.readline()
        assert line, connected.stderr.read()
        said += line
    path, here = re.search(r"^  ssh -N -L 8000:(\S+) (\S+) &$", said, re.MULTILINE).groups()
    key = re.search(rf'OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_API_KEY="\$\(ssh {here} cat (\S+)\)"', said)[1]
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700 and stat.S_IMODE(Path(key).stat().st_mode) == 0o600
    assert served.KEY not in said and Path(key).read_text() == served.KEY
    # large ones, several at a time, and without the key
    large, found = b"x" * 5_000_000, []
    asking = [threading.Thread(target=lambda: found.append(ask(path, served.KEY, "/v1/x", large))) for _ in range(3)]
    for thread in asking:
        thread.start()
    assert ask(path, served.KEY) == (200, b"/v1/models")
    assert ask(path, "other")[0] == 401
    # the server learns that nobody waits any more
    with socket.socket(socket.AF_UNIX) as hung_up:
        hung_up.connect(path)
        hung_up.sendall(served.request("/gone"))
    served.wait_for_file("gone")
    for thread in asking:
        thread.join()
    assert found == [(200, large.upper())] * 3
    # nothing stays
    connected.send_signal(end)
    connected.communicate(timeout=60)
    assert not Path(path).parent.exists()


class Sent(io.BytesIO):
    """What is sent to the other end of a tunnel."""

    async def drain(self):
        """Wait for nothing."""


def test_connections_begin_in_the_order_of_their_numbers():
    """Y-04: also if one of them is made earlier, but says something later; the node would take it for an ended one."""

    async def run():
        sent, readers = Sent(), [asyncio.StreamReader(), asyncio.StreamReader()]
        through = tunnel.Tunnel(asyncio.StreamReader(), sent)
        accepted = [asyncio.ensure_future(through.accept(one, Sent())) for one in readers]
        await asyncio.sleep(0)
        for reader, text in zip(reversed(readers), (b"a", b"b")):
            reader.feed_data(text)
            reader.feed_eof()
            await asyncio.sleep(0.01)
        await asyncio.gather(*accepted)
        return sent.getvalue()

    assert asyncio.run(run()) == b"0 YQ==\n0 \n1 Yg==\n1 \n"


def test_what_comes_after_the_end_of_a_connection():
    """Y-04: what a client still sends when its connection has ended on the node doesn't begin another one there."""
    begun = []

    async def connect():
        begun.append(1)
        raise ConnectionRefusedError

    async def run():
        reader, sent = asyncio.StreamReader(), Sent()
        reader.feed_data(b"0 YQ==\n1 YQ==\n0 YQ==\n1 YQ==\n2 YQ==\n")
        reader.feed_eof()
        await tunnel.Tunnel(reader, sent, connect).run()
        return sent.getvalue()

    assert asyncio.run(run()) == b"0 \n1 \n2 \n" and len(begun) == 3


def test_a_job_that_was_started_again(tmp_path, monkeypatch):
    """Y-04: what a killed one has left on the node isn't taken for the server of today."""
    monkeypatch.setattr(tunnel, "FOLDERS", str(tmp_path))
    for number, name in enumerate(("b", "a")):
        folder = tmp_path / f"ebsif-server-{name}"
        folder.mkdir(mode=0o700)
        (folder / "job").write_text("7")
        (folder / "server.json").write_text(json.dumps({"key": name}))
        os.utime(folder, (number, number))
    assert tunnel.find("7") == (tmp_path / "ebsif-server-a", {"key": "a"})
    assert tunnel.find("17")[1] == {"error": "no server"}
    (tmp_path / "ebsif-server-a/server.json").unlink()
    os.utime(tmp_path / "ebsif-server-a", (9, 9))
    assert tunnel.find("7")[1] == {"error": "not ready"}


def test_a_port_for_programs_of_the_login_node(login, served):
    """Y-04: --port listens on the loop-back address; the server asks for the key there, too; a port in use is said."""
    ready(served)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        one.listen()
        refused = login.connect(served.number, "--port", str(port))
        assert f"port {port}: Address already in use: use another one" in refused.communicate(timeout=60)[1]
        assert refused.returncode == 3
    connected = login.connect(served.number, "--port", str(port))
    while "Ctrl-C" not in connected.stdout.readline():
        assert connected.poll() is None
    assert [ask(port, key)[0] for key in (served.KEY, "other")] == [200, 401]
    connected.send_signal(signal.SIGINT)
    connected.communicate(timeout=60)


@pytest.mark.parametrize(
    ("job", "says", "expected"),
    [
        ("12", "", "there is no job 12 in the queue: it may have ended"),
        ("12", "RUNNING somebody n7 %s", "job 12 belongs to somebody: only its owner can reach its server"),
        ("12", f"PENDING {PERSON} n7 %s", "job 12 doesn't run (its state is PENDING): connect while it does"),
        ("12", f"RUNNING {PERSON} n7 13\nRUNNING {PERSON} n7 14", "12 is a job array: name one of its jobs (13, 14)"),
        ("12", f"PENDING {PERSON} n/a 12\nRUNNING {PERSON} n7 13", "job 12 doesn't run (its state is PENDING)"),
        ("0", f"RUNNING {PERSON} n7 %s", "job 0 has no server: `ebsif job --server COMMAND` starts one"),
        ("-x", f"RUNNING {PERSON} n7 %s", ""),
        ("$(id)", f"RUNNING {PERSON} n7 %s", "'$(id)' is not the ID of a job"),
    ],
)
def test_jobs_without_a_server(login, job, says, expected):
    """Y-04: what is wrong with a job is said."""
    connected = login.connect(job, says=says)
    said = connected.communicate(timeout=60)[1]
    assert connected.returncode in (2, 3) and expected in said, said


def test_a_server_that_is_not_ready(login, tmp_path):
    """Y-04: a server that still loads its model, and a directory that somebody else could have made."""
    job = Job(tmp_path)
    job.start(SLOW="100", EBSIF_JOB=(number := str(secrets.randbelow(10**15))))
    try:
        job.wait_for("told.json")
        said = login.connect(number).communicate(timeout=60)[1]
        assert f"job {number} has a server that does not answer yet: try again" in said
        job.directory.chmod(0o755)
        assert f"job {number} has no server" in login.connect(number).communicate(timeout=60)[1]
    finally:
        job.process.kill()
