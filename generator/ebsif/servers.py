"""Servers that ``ebsif job --server`` starts: where each kind listens, and what says that it can be used."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from easybuild.easyblocks.generic.container.newest import version_key

from ebsif.errors import EbsifError

# What start-server.py replaces in the command of a server.
SOCKET, PORT = "{socket}", "{port}"


# The first release of Ray that has tokens. With an earlier one, whoever reaches its ports runs code in the job.
RAY_WITH_TOKENS = "2.52"


@dataclass(frozen=True)
class Kind:
    """A kind of server; its program is the first word of its command, or the module that python runs."""

    program: str
    package: str
    # what to ask
    ready: str
    # options for a socket, and the first version of the package that has them; and options for a port
    socket: Sequence[str] = ()
    since: str = ""
    port: Sequence[str] = ()
    # the variable with the key, and what is open in spite of it
    key_variable: str = ""
    is_open: str = ""


KINDS = (
    Kind(
        "vllm",
        "vllm",
        "/health",
        socket=("--uds", SOCKET),
        since="0.10.2",
        port=("--host=127.0.0.1", f"--port={PORT}"),
        key_variable="VLLM_API_KEY",
        is_open="vLLM before 0.10.2 has no socket file, and asks for its key only below /v1",
    ),
    # port 8000 is in the program or in the file that it reads
    Kind("serve", "ray", "http://127.0.0.1:8000/-/healthz", is_open="Ray Serve has neither a socket file nor a key"),
)


@dataclass(frozen=True)
class Server:
    """A server of a job: its command, which may contain placeholders, and what to ask."""

    words: Sequence[str]
    ready: str
    package: str = ""
    key_variable: str = ""
    # why others on the node can use it, if they can
    is_open: str = ""


def server_of(text: str, ready: str = "", versions: Mapping[str, str] = {}) -> Server:
    """
    Return the server of a command as a person types it; raise EbsifError if it isn't known how to reach it.

    `ready` is the path or URL to ask, and `versions` has the packages of the module, as far as they are known.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise EbsifError(f"--server {text}: {error}") from None
    if not words:
        raise EbsifError("--server is empty: give the command of the server, such as 'vllm serve /scratch/model'")
    if "--" in words:
        raise EbsifError(f"--server {text}: leave out the word --, which separates the server from its client")
    if ready and not can_be_asked(ready):
        raise EbsifError(f"--ready {ready}: give a path of the server, such as /health, or http://HOST:PORT/PATH")
    kind = next((one for one in KINDS if one.program == program_of(words)), None)
    ready = ready or (kind.ready if kind else "")
    if not ready:
        raise EbsifError(
            f"what says that {words[0]} can be used is not known: add --ready PATH, which answers with success then"
        )
    named = [place for place in (SOCKET, PORT) if any(place in word for word in words)]
    if named or ready.startswith("http:"):
        why = kind.is_open if kind else f"{words[0]} listens on a port of the node"
        return Server(words, ready, kind.package if kind else "", is_open="" if SOCKET in named else why)
    if not kind:
        raise EbsifError(
            f"where {words[0]} listens is not known: write {SOCKET} (or {PORT}) in its command where the path of its "
            "socket (or its port on 127.0.0.1) belongs, or --ready http://HOST:PORT/PATH"
        )
    if is_before(versions.get(kind.package, ""), kind.since):
        return Server([*words, *kind.port], ready, kind.package, kind.key_variable, kind.is_open)
    return Server([*words, *kind.socket], ready, kind.package)


def can_be_asked(ready: str) -> bool:
    """Return whether a text is the path of a server, or a URL of one."""
    found = re.fullmatch(r"(http://([\w.-]+|\[[\da-fA-F:]+\])(:(?P<port>\d{1,5}))?)?/(?!/)\S*", ready)
    return bool(found and 0 < int(found["port"] or 80) < 65536)


def open_packages(versions: Mapping[str, str]) -> list[str]:
    """Return what others on a node could use in jobs, because packages of a module are too old to be closed."""
    found = [kind.is_open for kind in KINDS if is_before(versions.get(kind.package, ""), kind.since)]
    return [*filter(None, [ray_is_open(versions)]), *found]


def ray_is_open(versions: Mapping[str, str]) -> str:
    """Return why others can use the Ray among these packages; empty if they can't, or its version isn't known."""
    version = versions.get("ray", "")
    # candidates of that release have them: start-ray.py, which asks in the job, compares two numbers only
    is_open = is_before(version, f"{RAY_WITH_TOKENS}.dev")
    return f"Ray {version} has no tokens ({RAY_WITH_TOKENS} has)" if is_open else ""


def is_before(version: str, since: str) -> bool:
    """Return whether a version is known, and earlier than another one that matters."""
    return bool(version and since) and version_key(version) < version_key(since)


def is_python(program: str) -> bool:
    """Return whether the first word of a command starts Python, of whatever version: python3.14t has no global lock."""
    return bool(re.fullmatch(r"python(3(\.\d+t?)?)?", Path(program).name))


def program_of(words: Sequence[str]) -> str:
    """Return the name of the program in a command, or the package of the module that python runs."""
    if is_python(words[0]) and "-m" in words[:-1]:
        return words[words.index("-m") + 1].partition(".")[0]
    return Path(words[0]).name
