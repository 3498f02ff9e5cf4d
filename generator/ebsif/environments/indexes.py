"""Ask the package indexes that pip would use for names, so that those that exist nowhere are said before pip starts."""

import argparse
import configparser
import contextlib
import netrc
import os
import queue
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn, Optional
from urllib.parse import unquote, urlsplit
from urllib.request import Request

from easybuild.easyblocks.generic.container import remedies
from easybuild.easyblocks.generic.container.requirements import package_lines
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.container import Container
from ebsif.catalog.stages import Stage, lines_of
from ebsif.environments import bases, replacing
from ebsif.environments.extension import ExtendingError
from ebsif.images import inspection
from ebsif.images.registry import connection
from ebsif.packages.formats import condafile
from ebsif.packages.formats.wanted import KnownImage
from ebsif.packages.requirements import name_in

SECONDS = 3  # for all answers together
MOST_AT_ONCE = 8  # questions
# pip's names of settings, which are those of its options, too
INDEX, MORE, LINKS, NONE = "index-url", "extra-index-url", "find-links", "no-index"
# Properties of a stage with which pip may find packages elsewhere.
UNFORESEEABLE = ("pre", "modules", "env")


@dataclass(frozen=True)
class Sources:
    """Where pip looks for packages: indexes, and directories or pages with links to files."""

    indexes: tuple[str, ...]
    links: tuple[str, ...] = ()

    @property
    def all(self) -> list[tuple[str, bool]]:
        """Each place, with whether it is an index."""
        return [*((one, True) for one in self.indexes), *((one, False) for one in self.links)]


class Options(argparse.ArgumentParser):
    """Reads those of pip's options that name places."""

    def __init__(self) -> None:
        """Define them."""
        super().__init__(add_help=False)
        self.add_argument("-i", f"--{INDEX}", "--pypi-url")
        self.add_argument(f"--{MORE}", action="append", default=[])
        self.add_argument("-f", f"--{LINKS}", action="append", default=[])
        self.add_argument(f"--{NONE}", action="store_true")
        # which can have the same options
        self.add_argument("-c", "--constraint", "-r", "--requirement")

    def error(self, message: str) -> NoReturn:
        """Raise ValueError: pip says what is wrong."""
        raise ValueError(message)


def why_unknown(
    container: Container,
    known: KnownImage,
    stages: Sequence[Stage],
    own: Collection[str],
    image: Optional[Path] = None,
    typed: Sequence[str] = (),
) -> str:
    """
    Return which packages that stages ask for exist nowhere, and what to do (N-07); empty if there are none.

    Only an answer that says so (404), of every index that pip would use, counts: without a network, or with an index
    that can't be asked, nothing is said. `own` are the normalized names of packages in user software, `typed` are the
    words of the command.
    """
    wanted = list(names_by_stage(stages, {*own, *known.packages}, known))
    if not wanted:
        return ""
    try:
        path = image or bases.image_of(container)
        settings = parse(inspection.pip_settings(path))
        asked = [(names, sources) for stage, names in wanted for sources in [sources_of(stage, settings)] if sources]
        missing = nowhere(asked)
        there, _ = replacing.packages_of(container, path) if missing else ({}, {})
    except (ExtendingError, inspection.InspectionError, ValueError, configparser.Error):
        # pip says later what is wrong
        return ""
    return said([name for name in missing if name not in there], typed)


def said(names: Sequence[str], typed: Sequence[str]) -> str:
    """Return that packages exist nowhere, with names that resemble theirs; empty if there are none."""
    if not names:
        return ""
    similar = {name: condafile.similar_to(name) for name in names}
    listed = ", ".join(f"{name} (did you mean {similar[name]}?)" if similar[name] else name for name in names)
    command = corrected(typed, similar)
    which, them = ("that name", "it") if len(names) == 1 else ("those names", "them")
    return (
        f"no package index has {listed}\n"
        + (f"With {which}:\n    {command}\n" if command else f"Correct {which}. ")
        + f"If an index of yours has {them}:{remedies.line('--add', '--extra-index-url URL')}"
    )


def corrected(typed: Sequence[str], similar: Mapping[str, Optional[str]]) -> str:
    """Return a command with other names of packages; empty unless there is one for each, which is a word of its own."""
    meant = [(word, similar.get(name_in(word))) for word in typed]
    if not all(similar.values()) or len([name for _, name in meant if name]) < len(similar):
        return ""
    return shlex.join(["ebsif", *(re.sub(r"^[\w.-]+", name, word) if name else word for word, name in meant)])


def names_by_stage(
    stages: Sequence[Stage], there: Collection[str], image: KnownImage
) -> Iterator[tuple[Stage, list[str]]]:
    """Yield stages with the normalized names that they ask an index for, up to one that does what can't be foreseen."""
    placed = {name_in(line) for line in lines_of(stages) if "/" in line}
    for stage in stages:
        if any(getattr(stage, name) for name in UNFORESEEABLE):
            return
        asked = dict.fromkeys(name for name, _, _ in replacing.asked_for([stage], (), image))
        names = [name for name in asked if name not in placed and name not in there]
        # the tool that has written hashes has seen the files
        if names and not any(map(replacing.has_hash, stage.lines)):
            yield stage, names
        if stage.post:
            return


# --- where pip looks


def parse(text: str) -> dict[str, str]:
    """Return pip's settings in the text of its configuration files, and of its variables in the section `:env:`."""
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)
    return {
        key.lower().replace("_", "-"): value
        for section in ("global", "install", ":env:")
        if parser.has_section(section)
        for key, value in parser.items(section)
    }


def sources_of(stage: Stage, settings: Mapping[str, str]) -> Optional[Sources]:
    """Return where pip looks for the packages of a stage; None if that isn't known. Raise ValueError for mistakes."""
    lines = [line for line in stage.written if line.startswith("-") and not package_lines([line])]
    words = [*(word for line in lines for word in shlex.split(line, comments=True)), *stage.options]
    options = vars(Options().parse_known_args(words)[0])
    if options["constraint"]:
        return None
    more = [*settings.get(MORE, "").split(), *stage.extra_index_url, *options["extra_index_url"]]
    links = [*settings.get(LINKS, "").split(), *stage.find_links, *options["find_links"]]
    first = options["index_url"] or stage.index_url or settings.get(INDEX) or default_index()
    no_index = options["no_index"] or settings.get(NONE, "").lower() not in ("", "0", "false", "no", "off")
    if not (first or no_index):
        return None
    return Sources(() if no_index else (first, *more), tuple(links))


def default_index() -> str:
    """Return where pip looks if nobody has said where; empty if there is no pip beside ebsif to ask."""
    # not here: pip changes the logging of the process that imports it, and EasyBuild's has other methods
    command = [sys.executable, "-I", "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout.strip()
    return ""


# --- what is there


def nowhere(asked: Iterable[tuple[Sequence[str], Sources]]) -> list[str]:
    """Return the names that all their sources deny, as far as they answer in time."""
    wanted = {(name, sources): sources.all for names, sources in asked for name in names}
    questions: queue.SimpleQueue = queue.SimpleQueue()
    answers: queue.SimpleQueue = queue.SimpleQueue()
    todo = {(name, *place) for (name, _), places in wanted.items() for place in places}
    for question in todo:
        questions.put(question)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                question = questions.get_nowait()
                answers.put((question, has(*question)))

    # they may wait for a name server that never answers, and nobody waits for them
    for _ in range(min(MOST_AT_ONCE, len(todo))):
        threading.Thread(target=work, daemon=True).start()
    found: dict[tuple[str, str, bool], Optional[bool]] = {}
    end = time.monotonic() + SECONDS
    with contextlib.suppress(queue.Empty):
        while len(found) < len(todo):
            question, answer = answers.get(timeout=max(0, end - time.monotonic()))
            found[question] = answer
    missing = [
        name
        for (name, _), places in wanted.items()
        if places and all(found.get((name, *place)) is False for place in places)
    ]
    return list(dict.fromkeys(missing))


def has(name: str, place: str, is_index: bool) -> Optional[bool]:
    """Return whether a place may have files of a package, by its normalized name; None if it doesn't say."""
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        folder = Path(unquote(parts.path))
        try:
            files = [normal_name(path.name) for path in folder.iterdir()]
        except OSError:
            # perhaps it is in the image
            return None
        return name in files if is_index else any(file.startswith(f"{name}-") for file in files)
    if not is_index or parts.scheme not in ("http", "https") or is_closed(place):
        return None
    url = place.rstrip("/")
    if answers_to(f"{url}/{name}/") is False:
        # some proxies answer so to everything; the list of a large index takes long
        return False if answers_to(f"{url}/pip/") or answers_to(f"{url}/") else None
    return None


def is_closed(url: str) -> bool:
    """Return whether an index may show packages only to those who log in."""
    parts = urlsplit(url)
    if "@" in parts.netloc or "$" in url:
        return True
    path = os.environ.get("NETRC")
    try:
        return bool(path and netrc.netrc(path).authenticators(parts.hostname or ""))
    except (OSError, netrc.NetrcParseError):
        return True


def answers_to(url: str) -> Optional[bool]:
    """Return whether there is a page; None if the server says neither that nor that there is none."""
    # a page can be large; some servers answer only what browsers ask
    for method in ("HEAD", "GET"):
        try:
            connection.open_url(Request(url, method=method), timeout=SECONDS).close()
            return True
        except connection.TransferError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                return None
        except (OSError, ValueError):
            return None
    return False
