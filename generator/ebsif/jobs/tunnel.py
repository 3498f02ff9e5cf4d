"""
Connections through the two pipes of a program on another machine, and what runs there: tunnel.py JOB.

A scheduler starts one program on a node of a job, and gives access to its input and output, but to no port. So all
connections share these: each piece is a line with the number of its connection and the content in base64; an empty
piece is the end of a connection. On the node, this file runs by itself, with the standard library only.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Optional

# Where start-server.py, which runs in the job, describes its server and listens: in a directory for each, the file with
# the ID of the job, the file that is there when the server answers, and the socket.
FOLDERS, JOB, DESCRIPTION, SOCKET = "/tmp", "job", "server.json", "relay.sock"

# Stands before the description of the server: a login shell may print something else first.
MARK = b"ebsif-tunnel: "

# Bytes of a piece, characters of a line, and bytes that may wait for one connection, which mustn't stop the others.
PIECE, LINE, WAITING = 32768, 2**17, 2**26

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Tunnel:
    """Connections through a reader and a writer; `connect` makes the other end of one that the other side begins."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connect: Optional[Callable[[], Awaitable[Streams]]] = None,
    ):
        self.reader, self.writer, self.connect = reader, writer, connect
        self.connections: dict[int, asyncio.StreamWriter] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.numbers, self.newest = itertools.count(), -1
        # Python before 3.10.5 lets only one wait until there is room for more
        self.sending = asyncio.Lock()

    async def run(self) -> None:
        """Pass on what the other side sends, until it ends."""
        while line := await self.reader.readline():
            number, piece = int(line.split()[0]), base64.b64decode(b"".join(line.split()[1:]))
            # what was under way when a connection ended here begins no other one
            if number > self.newest and self.connect:
                self.newest = number
                await self.begin(number, self.connect)
            if not (writer := self.connections.get(number)):
                continue
            writer.write(piece)
            if not piece or writer.transport.get_write_buffer_size() > WAITING:
                self.end(number)

    async def begin(self, number: int, connect: Callable[[], Awaitable[Streams]]) -> None:
        """Make the end of a connection on this side, or tell the other side that there is none."""
        try:
            reader, writer = await connect()
        except OSError:
            await self.send(number, b"")
            return
        self.connections[number] = writer
        task = asyncio.ensure_future(self.pump(number, reader))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on a connection that begins on this side, until it ends."""
        first = b""
        with contextlib.suppress(OSError):
            first = await reader.read(PIECE)
        if not first:
            writer.close()
            return
        # only now: the other side begins connections in the order of their numbers
        number = next(self.numbers)
        self.connections[number] = writer
        await self.pump(number, reader, first)

    async def pump(self, number: int, reader: asyncio.StreamReader, first: bytes = b"") -> None:
        """Send what comes from a connection of this side, after its first piece, and its end."""
        with contextlib.suppress(OSError):
            if first:
                await self.send(number, first)
            while piece := await reader.read(PIECE):
                await self.send(number, piece)
        with contextlib.suppress(OSError):
            await self.send(number, b"")
        self.end(number)

    async def send(self, number: int, piece: bytes) -> None:
        """Send a piece of a connection to the other side."""
        async with self.sending:
            self.writer.write(b"%d %s\n" % (number, base64.b64encode(piece)))
            await self.writer.drain()

    def end(self, number: int) -> None:
        """End a connection on this side."""
        if writer := self.connections.pop(number, None):
            writer.close()


def find(job: str) -> tuple[Path, dict[str, str]]:
    """Return the directory of a job's server on this node, and what is written there about it, or {"error": REASON}."""
    own: dict[Path, float] = {}
    for folder in Path(FOLDERS).glob("ebsif-server-*"):
        # one may just be made or removed
        with contextlib.suppress(FileNotFoundError):
            found = folder.lstat()
            # another account may have made one with this name
            is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
            if is_own and (folder / JOB).read_text() == job:
                own[folder] = found.st_mtime
    if not own:
        return Path(FOLDERS), {"error": "no server"}
    # a job that was killed and started again on this node has left an older one
    newest = max(own, key=lambda one: own[one])
    try:
        return newest, json.loads((newest / DESCRIPTION).read_text())
    except FileNotFoundError:
        return newest, {"error": "not ready"}


async def serve(job: str) -> None:
    """Describe the server of a job on the output, then connect to it whenever the other side asks."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    folder, description = find(job)
    writer.write(b"\n" + MARK + json.dumps(description).encode() + b"\n")
    await writer.drain()
    if "error" not in description:
        await Tunnel(reader, writer, lambda: asyncio.open_unix_connection(str(folder / SOCKET))).run()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
