"""Compare the catalogue of a site with lists of images at URLs (see `Comparison` for directories).

A list is the index page of a directory on a web server, JSON, or text, perhaps of several pages. What its server has
beside an image is read as in a directory: SHA256 and packages. No image is fetched.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http import HTTPStatus
from typing import NamedTuple, Optional
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit
from urllib.request import Request

from easybuild.easyblocks.generic.container.imagesource import HTTPS, ImageSource

from ebsif.catalogue.container import Container
from ebsif.catalogue.fieldtypes import PLACEHOLDER
from ebsif.catalogue.guess.template import read_fields
from ebsif.catalogue.proposal import AddingError
from ebsif.catalogue.selection import natural_key
from ebsif.errors import EbsifError
from ebsif.images.inspection import Inspection
from ebsif.images.registry.client import next_page
from ebsif.images.registry.connection import BROKEN, TransferError, check_next, open_url, size_of
from ebsif.images.remote import Remote
from ebsif.report.findings import NOTE, WARNING
from ebsif.report.steps import Steps
from ebsif.update.comparison import Comparison, sha256_in
from ebsif.update.places import images_of
from ebsif.update.released import LARGEST, SUM, Release, Stated

# The fields of JSON with the address of a file, the best first: GitHub's list of releases has three of them.
ADDRESSES = ("browser_download_url", "url", "href", "path", "file", "name")
SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
MORE_PAGES = 100  # of a list
GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


class ListError(EbsifError):
    """A list can't be read; the message says why."""


class Link(NamedTuple):
    """A file or directory in a list: its URL, SHA256 and size if the list states them, and the URL of the list."""

    url: str
    sha256: Optional[str] = None
    size: int = 0
    page: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return name_of(self.url)

    @property
    def folder(self) -> str:
        """The URL of the directory that it is in."""
        return urljoin(self.url, ".")


class Links(HTMLParser):
    """The links of a web page."""

    def __init__(self):
        """Nothing is read yet."""
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        """Take the target of a link."""
        if tag == "a":
            self.found += [text for name, text in attrs if name == "href" and text]


@dataclass
class Web:
    """
    What there is on web servers.

    Attributes
    ----------
    comparison
        Gets a finding for each list that can't be read.
    listed
        The files of lists by directory and name.
    texts
        The texts of files beside images, by URL.
    """

    comparison: Comparison
    listed: dict[str, dict[str, Link]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def text(self, url: str) -> str:
        """Return the text of a file beside an image; '' if it can't be read."""
        if url not in self.texts:
            self.texts[url] = ""
            with contextlib.suppress(ListError):
                self.texts[url] = read(url).text
        return self.texts[url]

    def pages(self, url: str) -> list[Link]:
        """Return what is in a list of one or more pages; what can't be read becomes a finding."""
        found, seen, following = [], [], url
        while following and following not in seen:
            seen.append(following)
            try:
                with Steps() as steps:
                    # which may not answer
                    steps.begin(f"asking {urlsplit(url).netloc}", important=False)
                    page = read(following)
                    found += links(page.text, page.url)
            except ListError as error:
                self.comparison.say(WARNING, f"can't be read, so its images are unknown: {error}", following)
                break
            following = page.following
            if following and (urlsplit(following)[:2] != urlsplit(page.url)[:2] or len(seen) == MORE_PAGES):
                self.comparison.say(WARNING, f"goes on at {following}, which isn't read: only pages of the same server "
                                    f"are, and at most {MORE_PAGES}", url)
                break
        for link in found:
            self.listed.setdefault(link.folder, {})[link.name] = link
        return found

    def images(self, address: str) -> list[Link]:
        """Return the images of a list, which has placeholders where there are several."""
        start, *parts = address.split("/")
        urls = [start]
        for number, part in enumerate(parts, 1):
            if not PLACEHOLDER.search(part):
                urls = [f"{url}/{part}" for url in urls]
                continue
            end = "/" if number == len(parts) else ""
            urls = [f"{url}/{quote(name)}{end}" for url in urls for name in self.folders(f"{url}/", part)]
        found = [link for url in urls for link in self.pages(url) if self.comparison.is_image(link.name)]
        if urls and not found and not any(one.path in urls for one in self.comparison.findings):
            self.comparison.say(WARNING, "lists no image: correct the address in 'release_lists' of 'images', or what "
                                "is there", address)
        return found

    def folders(self, url, part):
        """Return the names of the directories in a list that fit a part of an address (list of str)."""
        names = [name_of(link.url.rstrip("/")) for link in self.pages(url)]
        return [name for name in dict.fromkeys(names)
                if not self.comparison.is_image(name) and read_fields(part, name) is not None]

    def release(self, image: Link) -> Release:
        """Return the files beside an image."""
        beside = self.listed[image.folder]
        return Release(image.name, {name: link.url for name, link in beside.items()}, self.text)

    def stated(self, image: Link) -> Optional[Stated]:
        """Return the SHA256 that a list, or a file beside the image, states."""
        return Stated(image.sha256, image.page) if image.sha256 else self.release(image).stated

    def look(self, image: Link) -> Remote:
        """Return what is known of an image; raises EbsifError."""
        stated = self.stated(image)
        if not stated:
            raise AddingError(f"nothing states its SHA256, so it has to be fetched: `ebsif add {image.url}`")
        try:
            source = ImageSource.parse(f"{image.url}#sha256={stated.sha256}")
        except ValueError as error:
            raise AddingError(f"its address {error}") from None
        try:
            size = image.size or size_at(image.url)
        except TransferError as error:
            raise AddingError(str(error)) from None
        release = self.release(image)
        return Remote(source, Inspection(
            path=str(source), resolved=image.name, size=size, sha256=stated.sha256, init="", listed=release.packages,
            listed_in=str(release.bill), source=str(source)))


class Page(NamedTuple):
    """A page: its text, the URL to which its URL redirects, and the address of the next page in a header Link."""

    text: str
    url: str
    link: Optional[str]

    @property
    def following(self) -> Optional[str]:
        """The URL of the next page of a list, which the header or JSON names; None if there is none."""
        target = self.link or next_in(self.text)
        try:
            return urldefrag(urljoin(self.url, target)).url if target else None
        except ValueError:
            return None


def next_in(text: str) -> Optional[str]:
    """Return the address of the next page in JSON: `next` in it, or in its `links`, as a text or with `href`."""
    try:
        content = json.loads(text) if text.lstrip()[:1] == "{" else None
    except (ValueError, RecursionError):
        # reported when it is read
        return None
    places = [content, *(content.get(key) for key in ("links", "_links"))] if content else []
    found = [one["next"] for one in places if isinstance(one, dict) and one.get("next")]
    found = [one.get("href") if isinstance(one, dict) else one for one in found]
    return next((one for one in found if isinstance(one, str)), None)


def read(url: str) -> Page:
    """Return the text at a URL; raises ListError."""
    try:
        with open_url(Request(url)) as answer:
            content, size, place = answer.read(LARGEST + 1), size_of(answer), answer.geturl()
            link = next_page(answer.headers)
    except (TransferError, ValueError) as error:
        raise ListError(str(error)) from None
    except BROKEN as error:
        raise ListError(f"the connection was cut: {error}") from None
    if len(content) > LARGEST:
        raise ListError(f"it has more than {LARGEST // 10 ** 6} MB")
    if len(content) < (size or 0):
        raise ListError(f"the connection was cut after {len(content)} of {size} bytes")
    return Page(content.decode(errors="replace"), place, link)


def size_at(url: str) -> int:
    """Return the size of a file at a URL, 0 if its server doesn't say it; raises TransferError."""
    with open_url(Request(url, method="HEAD")) as answer:
        return size_of(answer) or 0


def links(text: str, place: str) -> Iterator[Link]:
    """Yield what is in the text of a list: JSON, HTML, or a file or a line of sha256sum on each line."""
    start = text.lstrip()[:1]
    if start and start in "[{":
        try:
            found = list(links_in(json.loads(text)))
        except (ValueError, RecursionError) as error:
            raise ListError(f"it is not JSON: {error}") from None
    elif start == "<":
        page = Links()
        page.feed(text)
        found = [Link(one) for one in page.found]
    else:
        sums = {name: digest for digest, name in SUM.findall(text)}
        found = [Link(*one) for one in sums.items()] or [Link(line.strip()) for line in text.splitlines()]
    for link in found:
        try:
            url = urldefrag(urljoin(place, link.url)).url
            check_next(url, place)
        except (TransferError, ValueError):
            # mailto: and others
            continue
        yield link._replace(url=url, page=place)


def links_in(value: object) -> Iterator[Link]:
    """Yield the files in JSON: texts, or objects with an address and perhaps SHA256 and size."""
    if isinstance(value, str):
        yield Link(value)
    elif isinstance(value, list):
        for one in value:
            yield from links_in(one)
    elif isinstance(value, dict):
        address = next((value[key] for key in ADDRESSES if isinstance(value.get(key), str)), None)
        if address:
            digest = SHA256.fullmatch(str(value.get("sha256") or value.get("digest")))
            size = value.get("size")
            yield Link(address, digest and digest.group(1), size if type(size) is int and size > 0 else 0)
        yield from links_in([one for one in value.values() if isinstance(one, (list, dict))])


def name_of(url: str) -> str:
    """Return the name of the file at a URL."""
    return unquote(urlsplit(url).path).rpartition("/")[2]


def addresses(comparison: Comparison) -> list[str]:
    """Return the addresses of the lists that the site and its families name."""
    return list(dict.fromkeys(address for images in images_of(comparison.profile, comparison.documents)
                              for address in images.release_lists))


def compare(comparison: Comparison, addresses: list[str]) -> None:
    """Compare the catalogue with lists, and with the web servers that records name as the sources of their images."""
    web = Web(comparison)
    images = {link.url: link for address in addresses for link in web.images(address)}
    lost = list(lost_records(comparison))
    others: dict[object, list[str]] = {}
    for image in sorted(images.values(), key=lambda one: natural_key(one.url)):
        known = comparison.known.get(image.name)
        kind = None if known else comparison.other_kind(image.name)
        if known:
            check_known(comparison, web, image, known, lost)
        elif kind:
            others.setdefault(image.folder, []).append(kind)
        else:
            propose(comparison, web, image, lost)
    comparison.name_others(others)
    for container in lost:
        comparison.say_of(WARNING, container, f"its image is no longer at {url_of(container)}: bring it back, write "
                          "another 'source', or archive the record ('archived')")


def url_of(container: Container) -> Optional[str]:
    """Return the URL that a record names as the source of its image, None if it names none."""
    source = ImageSource.parse(container.source) if container.source else None
    return source.path if source and source.kind == HTTPS else None


def lost_records(comparison: Comparison) -> Iterator[Container]:
    """Yield the containers whose images are not at their URLs any longer; say which have another size."""
    for container in comparison.containers:
        url = None if container.archived else url_of(container)
        if not url:
            continue
        try:
            size = size_at(url)
        except TransferError as error:
            if error.status in GONE:
                yield container
                continue
            comparison.say_of(WARNING, container, f"it is unknown whether its image is still at {url}: {error}")
            continue
        if size:
            comparison.has_size(container, url, size)


def check_known(comparison, web, image, known, lost):
    """Compare an image with the records that have an image of its name: it may have moved, or be another one."""
    stated = web.stated(image)
    for container in (one for one in known if not one.archived):
        if container in lost and (not stated or sha256_in(container) in (None, stated.sha256)):
            lost.remove(container)
            say_moved(comparison, container, image)
        else:
            comparison.check_sum(container, image.url, stated)


def say_moved(comparison, container, image):
    """Say that the image of a record is at another URL."""
    comparison.say_of(WARNING, container, f"its image was moved from {url_of(container)} to {image.url}: write that as "
                      "'source'" + ("" if container.file_name == image.name else f", and {image.name} as 'file'"))


def propose(comparison, web, image, lost):
    """Propose the record of an image, unless it is that of another record under another name (R-12)."""
    stated = web.stated(image)
    same = next((one for one in comparison.containers if stated and sha256_in(one) == stated.sha256), None)
    if same in lost:
        lost.remove(same)
        say_moved(comparison, same, image)
    elif same:
        comparison.say(NOTE, f"is the image of {same.module} (SHA256 {stated.sha256}) under another name; it may be "
                       "another one tomorrow", image.url)
    else:
        try:
            comparison.propose_remote(web.look(image), image.name)
        except EbsifError as error:
            comparison.say_unadded(error, path=image.url)
