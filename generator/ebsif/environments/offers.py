"""What package indexes and directories have of a package: the names of its files, and what these require (N-07)."""

import contextlib
import json
import netrc
import os
import queue
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from html.parser import HTMLParser
from http.client import HTTPResponse
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional, TypeVar
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import Request

from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.images.registry import connection
from ebsif.packages.wanted import KnownImage

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

SECONDS = 3  # for all answers together
MOST_AT_ONCE = 8  # questions
MOST = 20 * 10**6  # bytes of a page
# The forms of a page (PEP 503 and 691), the shorter one first, and how a server may pack it.
FORMS = {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5", "Accept-Encoding": "gzip"}

Question = TypeVar("Question")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Place:
    """Where pip looks for packages: an index, or a directory or page with links to files."""

    url: str
    is_index: bool


@dataclass(frozen=True)
class PackageFile:
    """A file of a package: its URL, the Pythons that it is for (empty: all), whether an index has its metadata."""

    url: str
    python: str = ""
    has_metadata: bool = False

    @property
    def name(self) -> str:
        """Its name, which begins with that of the package and its version."""
        return unquote(urlsplit(self.url).path).rpartition("/")[2]

    @property
    def version(self) -> "Optional[Version]":
        """The version of the package; None for what pip doesn't install."""
        from packaging.utils import (
            InvalidSdistFilename,
            InvalidWheelFilename,
            parse_sdist_filename,
            parse_wheel_filename,
        )

        with contextlib.suppress(InvalidSdistFilename, InvalidWheelFilename):
            return (parse_wheel_filename if self.is_wheel else parse_sdist_filename)(self.name)[1]
        return None

    @property
    def is_wheel(self) -> bool:
        """Whether it is installed as it is."""
        return self.name.endswith(".whl")


# What indexes have, by the normalized name of a package and the place; None if a place doesn't say.
Pages = Mapping[tuple[str, Place], Optional[tuple[PackageFile, ...]]]


@dataclass(frozen=True)
class Lookup:
    """A requirement, and the places where pip looks for it."""

    name: str
    wanted: "Requirement" = field(compare=False)
    places: tuple[Place, ...] = ()

    def files(self, pages: Pages) -> Optional[tuple[PackageFile, ...]]:
        """Return the files that all places have of it; None if one of them doesn't say, or there is none."""
        found = [pages.get((self.name, place)) for place in self.places]
        if not found or any(one is None for one in found):
            return None
        return tuple(chain.from_iterable(one for one in found if one))


# --- many questions


def questions(asked: Sequence[Lookup]) -> list[tuple[str, Place]]:
    """Return what to ask for, and where."""
    return [(one.name, place) for one in asked for place in one.places]


def ask(questions: Sequence[tuple[str, Place]], end: float) -> Pages:
    """Return what places have of packages, as far as they answer in time."""
    return answers(lambda one: files_of(*one), questions, end)


def answers(ask: Callable[[Question], Found], questions: Iterable[Question], end: float) -> dict[Question, Found]:
    """Return the answers to questions, which are asked at once, as far as they come in time; see `deadline`."""
    todo = list(dict.fromkeys(questions))
    left: queue.SimpleQueue = queue.SimpleQueue()
    done: queue.SimpleQueue = queue.SimpleQueue()
    for question in todo:
        left.put(question)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while time.monotonic() < end:
                question = left.get_nowait()
                done.put((question, ask(question)))

    # they may wait for a name server that never answers, and nobody waits for them
    for _ in range(min(MOST_AT_ONCE, len(todo))):
        threading.Thread(target=work, daemon=True).start()
    found: dict[Question, Found] = {}
    with contextlib.suppress(queue.Empty):
        while len(found) < len(todo):
            question, answer = done.get(timeout=max(0, end - time.monotonic()))
            found[question] = answer
    return found


def deadline() -> float:
    """Return when all answers have to be there."""
    return time.monotonic() + SECONDS


# --- one question


def files_of(name: str, place: Place) -> Optional[tuple[PackageFile, ...]]:
    """Return the files of a package (normalized name) in a place: none if it has none; None if it doesn't say."""
    parts = urlsplit(place.url)
    if parts.scheme in ("", "file"):
        return files_in(Path(unquote(parts.path)), name, place.is_index)
    if not place.is_index or is_closed(place.url):
        return None
    url = place.url.rstrip("/")
    try:
        with open_page(f"{url}/{name}/", FORMS) as answer:
            return files_on(answer)
    except connection.MissingError:
        # some proxies answer so to everything; the list of a large index takes long
        return () if is_there(f"{url}/pip/") or is_there(f"{url}/") else None
    except (connection.TransferError, OSError, ValueError):
        return None


def files_in(folder: Path, name: str, is_index: bool) -> Optional[tuple[PackageFile, ...]]:
    """Return the files of a package in a directory, or in that of an index; None if it can't be read."""
    try:
        if not is_index:
            return tuple(
                PackageFile(str(one)) for one in folder.iterdir() if normal_name(one.name).startswith(f"{name}-")
            )
        for one in folder.iterdir():
            if normal_name(one.name) == name:
                page = one / "index.html"
                if page.is_file():
                    return links_in(page.read_text(), "")
                return tuple(PackageFile(str(file)) for file in one.iterdir())
    except (OSError, ValueError):
        # perhaps it is in the image
        return None
    return ()


def requirements_of(file: PackageFile) -> Optional[list[str]]:
    """Return what the metadata of a wheel on an index says that the package requires (PEP 658); None without any."""
    if not file.has_metadata:
        return None
    try:
        with open_page(f"{file.url}.metadata", {"Accept-Encoding": "gzip"}) as answer:
            return HeaderParser().parsestr(text_of(answer)).get_all("Requires-Dist") or []
    except (connection.TransferError, OSError, ValueError):
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


def is_there(url: str) -> bool:
    """Return whether a server has a page; it isn't read."""
    try:
        open_page(url, {}).close()
    except (connection.TransferError, OSError, ValueError):
        return False
    return True


def open_page(url: str, headers: Mapping[str, str]) -> HTTPResponse:
    """Return a page of a server; raise TransferError, MissingError among them, or ValueError if it can't be had."""
    # an index may name a file or a pipe of this machine
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{url} is not on a server")
    return connection.open_url(Request(url, headers=dict(headers)), timeout=SECONDS)


def text_of(answer: HTTPResponse) -> str:
    """Return the text of a page; raise TransferError or ValueError for one that is too large, or nothing to read."""
    content = connection.content_of(answer, MOST)
    if answer.headers.get("Content-Encoding") == "gzip":
        try:
            content = zlib.decompressobj(wbits=31).decompress(content, MOST)
        except zlib.error as error:
            raise ValueError(str(error)) from None
    return content.decode()


# --- pages of an index


def files_on(answer: HTTPResponse) -> tuple[PackageFile, ...]:
    """Return the files that a page of an index lists; raise ValueError for another page."""
    text, url = text_of(answer), answer.geturl()
    if "json" not in (answer.headers.get("Content-Type") or ""):
        return links_in(text, url)
    try:
        return tuple(
            PackageFile(
                urljoin(url, one["url"]),
                one.get("requires-python") or "",
                bool(one.get("core-metadata") or one.get("dist-info-metadata")),
            )
            for one in json.loads(text)["files"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no page of an index: {error}") from None


def links_in(text: str, url: str) -> tuple[PackageFile, ...]:
    """Return the files that a page in HTML links to."""
    found: list[PackageFile] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list) -> None:
            values = dict(attrs)
            if tag == "a" and values.get("href"):
                has_metadata = bool(values.get("data-core-metadata") or values.get("data-dist-info-metadata"))
                file = PackageFile(urljoin(url, values["href"]), values.get("data-requires-python") or "", has_metadata)
                # without its digest
                found.append(replace(file, url=file.url.partition("#")[0]))

    Links().feed(text)
    return tuple(found)


# --- what files are for


def versions_in(files: Iterable[PackageFile], image: KnownImage) -> "list[Version]":
    """
    Return the versions in files for the Python of an image, the newest first.

    Pre-releases are only among them if there is no other.
    """
    from packaging.specifiers import InvalidSpecifier

    found = set()
    for file in files:
        with contextlib.suppress(InvalidSpecifier):
            if file.version and image.has_python(file.python):
                found.add(file.version)
    releases = [one for one in found if not one.is_prerelease]
    return sorted(releases or found, reverse=True)


def chosen(files: Iterable[PackageFile], wanted: "SpecifierSet", image: KnownImage) -> Optional[PackageFile]:
    """Return a wheel of the newest version that is wanted, whose metadata an index has; None if there is none."""
    known = list(files)
    newest = next((one for one in versions_in(known, image) if wanted.contains(one, prereleases=True)), None)
    return next((one for one in known if newest and one.has_metadata and one.version == newest), None)
