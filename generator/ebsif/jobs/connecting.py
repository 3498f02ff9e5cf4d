"""Reach the server of a running job at an address of this machine that only its person can use."""

import asyncio
import contextlib
import json
import os
import pwd
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.schedulers import Scheduler

from ebsif import processes
from ebsif.errors import EbsifError
from ebsif.jobs import tunnel
from ebsif.report import output

# Seconds that a scheduler has to answer, to start a program in a job, and to end it.
ANSWER_LIMIT, START_LIMIT, END_LIMIT = 60, 120, 10

PROBLEMS = {
    "no server": "has no server: `ebsif job --server COMMAND` starts one",
    "not ready": "has a server that does not answer yet: try again when the log of the job says that it does",
}


def command(scheduler: type[Scheduler], job: str) -> list[str]:
    """Return the command that runs tunnel.py on the first node of a job; raise EbsifError if it can't run there."""
    if not re.fullmatch(r"[\w.\[\]-]+", job) or job.startswith("-"):
        raise EbsifError(f"'{job}' is not the ID of a job")
    words = [*scheduler.state, job]
    try:
        said = processes.run(words, ANSWER_LIMIT).stdout
    except FileNotFoundError:
        raise EbsifError(f"{words[0]} is not on PATH: connect from a login node") from None
    jobs = scheduler.jobs(said)
    # the last member of an array has the ID of the array
    jobs = [one for one in jobs if one.id == job] or jobs
    if not jobs:
        raise EbsifError(f"there is no job {job} in the queue: it may have ended")
    if len(jobs) > 1:
        raise EbsifError(f"{job} is a job array: name one of its jobs ({', '.join(one.id for one in jobs)})")
    (found,) = jobs
    if found.owner != person():
        raise EbsifError(f"job {job} belongs to {found.owner}: only its owner can reach its server")
    if found.state != scheduler.running:
        raise EbsifError(f"job {job} doesn't run (its state is {found.state}): connect while it does")
    program = [sys.executable, "-I", tunnel.__file__, found.id]
    inside = [word.replace("%j", found.id).replace("%n", found.node) for word in scheduler.inside]
    # ssh gives its words to a shell
    return [*inside, shlex.join(program)] if inside[0] == "ssh" else [*inside, *program]


def person() -> str:
    """Return the name of this account, whatever variables say."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


class Connection:
    """A directory with a socket file for the server of a job, and a file with its key; nobody else can read it."""

    def __init__(self, job: str, folder: Path, port: Optional[int] = None):
        self.job, self.folder, self.port = job, folder, port
        self.socket, self.key = folder / "server.sock", folder / "key"

    async def run(self, words: Sequence[str], ready: Callable[[str], None]) -> None:
        """Serve until the job ends; call `ready` with the key when the server can be reached."""
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=tunnel.LINE,
            # Ctrl-C is for this process
            start_new_session=True,
        )
        assert process.stdin and process.stdout
        try:
            try:
                description = await asyncio.wait_for(described(process.stdout), START_LIMIT)
            except (ValueError, asyncio.TimeoutError):
                raise EbsifError(f"no program can be started in job {self.job} with {words[0]}") from None
            if "error" in description:
                raise EbsifError(f"job {self.job} {PROBLEMS[description['error']]}")
            with open(os.open(self.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(description["key"])
            through = tunnel.Tunnel(process.stdout, process.stdin)
            await asyncio.start_unix_server(through.accept, str(self.socket))
            if self.port:
                try:
                    await asyncio.start_server(through.accept, "127.0.0.1", self.port)
                except OSError as error:
                    raise EbsifError(f"port {self.port}: {os.strerror(error.errno or 0)}: use another one") from None
            ready(description["key"])
            await through.run()
        finally:
            # the program on the node ends with its input
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), END_LIMIT)
            except asyncio.TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()


async def described(reader: asyncio.StreamReader) -> dict[str, str]:
    """Return how tunnel.py describes the server of its job; raise ValueError if it doesn't."""
    while line := await reader.readline():
        _, found, description = line.partition(tunnel.MARK)
        if found:
            return dict(json.loads(description))
    raise ValueError("no description")


def connect(scheduler: type[Scheduler], job: str, port: Optional[int] = None) -> None:
    """Connect to the server of a job until the job ends, and print how to use it; raise EbsifError if it can't be."""
    words = command(scheduler, job)
    output.command(words)
    with tempfile.TemporaryDirectory(prefix="ebsif-connect-", dir="/tmp") as folder:
        connection = Connection(job, Path(folder), port)
        asyncio.run(connection.run(words, lambda key: describe(connection, key)))
    output.note(f"job {job} has ended, or its server")


def describe(connection: Connection, key: str) -> None:
    """Print how to use the server; the key is only for a terminal, because others may read a file."""
    here = f"{person()}@{socket.getfqdn()}"
    shown = key if sys.stdout.isatty() else f'"$(ssh {here} cat {connection.key})"'
    output.result(f"The server of job {connection.job} answers. On your own computer, type:\n")
    output.result(f"  ssh -N -L 8000:{connection.socket} {here} &")
    output.result(f"  export OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_API_KEY={shown}\n")
    if connection.port:
        output.result(f"On this machine: http://127.0.0.1:{connection.port}/v1, with the same key\n")
    output.result("Ctrl-C ends the connection.")
    sys.stdout.flush()
