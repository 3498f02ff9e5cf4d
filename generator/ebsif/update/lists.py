"""Compare the catalogue of a site with lists of images on web servers (see `Comparison` for directories).

A list is text: lines of sha256sum, or a name or URL on each line, relative to where the list is. No image is fetched.
"""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import NamedTuple, Optional
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import Request

from easybuild.easyblocks.generic.container.imagesource import HTTPS, ImageSource

from ebsif.catalogue.container import Container
from ebsif.catalogue.proposal import AddingError
from ebsif.catalogue.selection import natural_key
from ebsif.errors import EbsifError
from ebsif.images.inspection import Inspection
from ebsif.images.registry.connection import MissingError, TransferError, check_next, content_of, open_url, size_of
from ebsif.images.remote import Remote
from ebsif.report.findings import NOTE, WARNING
from ebsif.report.steps import Steps
from ebsif.update.comparison import LARGEST, SUM, Comparison, Stated, sha256_in
from ebsif.update.places import images_of


class Entry(NamedTuple):
    """A file in a list: its URL, and its SHA256 if the list states it."""

    url: str
    stated: Optional[Stated]

    @property
    def name(self) -> str:
        """The name of the file."""
        return unquote(urlsplit(self.url).path).rpartition("/")[2]


def addresses(comparison: Comparison) -> list[str]:
    """Return the addresses of the lists that the site and its families name."""
    return list(dict.fromkeys(address for images in images_of(comparison.profile, comparison.documents)
                              for address in images.release_lists))


def compare(comparison: Comparison, addresses: Iterable[str]) -> None:
    """Compare the catalogue with lists, and with the web servers that records name as the sources of their images."""
    images = {image.url: image for address in addresses for image in images_in(comparison, address)}
    lost = list(lost_records(comparison))
    for image in sorted(images.values(), key=lambda one: natural_key(one.url)):
        known = comparison.known.get(image.name)
        if known:
            check_known(comparison, image, known, lost)
        else:
            propose(comparison, image, lost)
    for container in lost:
        comparison.say_of(WARNING, container, f"its image is no longer at {url_of(container)}: bring it back, write "
                          "another 'source', or archive the record ('archived')")


def images_in(comparison: Comparison, address: str) -> list[Entry]:
    """Return the images in a list; a list that can't be read becomes a finding."""
    try:
        with Steps() as steps:
            # which may not answer
            steps.begin(f"asking {urlsplit(address).netloc}", important=False)
            images = [entry for entry in entries(*read(address)) if comparison.is_image(entry.name)]
    except TransferError as error:
        remedy = ": lists are read without a login. Add its images by hand with `ebsif add`, or have them put into a " \
            "registry, where the runtime's login is used" if error.code == HTTPStatus.UNAUTHORIZED else ""
        comparison.say(WARNING, f"can't be read, so its images are unknown: {error}{remedy}", address)
        return []
    if not images:
        comparison.say(WARNING, "lists no image: it should have lines of sha256sum, or a name or URL on each line. "
                       "Correct the address in 'release_lists' of 'images', or the list", address)
    return images


def read(url: str) -> tuple[str, str]:
    """Return the text at a URL, and the URL to which that redirects. Raise TransferError if it can't be read."""
    try:
        with open_url(Request(url)) as answer:
            return content_of(answer, LARGEST).decode(errors="replace"), answer.geturl()
    except ValueError as error:
        raise TransferError(str(error)) from None


def entries(text: str, place: str) -> Iterator[Entry]:
    """Yield the files in the text of a list at a URL."""
    sums: list[tuple[str, Optional[Stated]]] = [(name, Stated(digest, place)) for digest, name in SUM.findall(text)]
    for name, stated in sums or [(line.strip(), None) for line in text.splitlines()]:
        try:
            url = urljoin(place, name)
            check_next(url, place)
        except (TransferError, ValueError):
            # neither a name nor a URL that is followed
            continue
        yield Entry(url, stated)


def size_at(url: str) -> int:
    """Return the size of a file at a URL, 0 if its server doesn't say it. Raise TransferError if that fails."""
    with open_url(Request(url, method="HEAD")) as answer:
        return size_of(answer) or 0


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
            if size:
                comparison.has_size(container, url, size)
        except MissingError:
            yield container
        except TransferError as error:
            comparison.say_of(WARNING, container, f"it is unknown whether its image is still at {url}: {error}")


def check_known(comparison: Comparison, image: Entry, known: list[Container], lost: list[Container]) -> None:
    """Compare an image with the records that have an image of its name: it may have moved, or be another one."""
    for container in (one for one in known if not one.archived):
        if container in lost and (not image.stated or sha256_in(container) in (None, image.stated.sha256)):
            lost.remove(container)
            say_moved(comparison, container, image)
        else:
            comparison.check_sum(container, image.url, image.stated)


def say_moved(comparison: Comparison, container: Container, image: Entry) -> None:
    """Say that the image of a record is at another URL."""
    comparison.say_of(WARNING, container, f"its image was moved from {url_of(container)} to {image.url}: write that as "
                      "'source'" + ("" if container.file_name == image.name else f", and {image.name} as 'file'"))


def propose(comparison: Comparison, image: Entry, lost: list[Container]) -> None:
    """Propose the record of an image, unless it is that of another record under another name (R-12)."""
    stated = image.stated
    same = next((one for one in comparison.containers if stated and sha256_in(one) == stated.sha256), None)
    if same and same in lost:
        lost.remove(same)
        say_moved(comparison, same, image)
    elif same and stated:
        comparison.say(NOTE, f"is the image of {same.module} (SHA256 {stated.sha256}) under another name; the name can "
                       "come to mean another image", image.url)
    else:
        try:
            comparison.propose_remote(look(image), image.name)
        except EbsifError as error:
            comparison.say_unadded(error, path=image.url)


def look(image: Entry) -> Remote:
    """Return what is known of an image in a list. Raise EbsifError if it is too little for a record."""
    if not image.stated:
        raise AddingError(f"nothing states its SHA256, so it has to be fetched: `ebsif add {image.url}`")
    sha256 = image.stated.sha256
    try:
        source = ImageSource.parse(f"{image.url}#sha256={sha256}")
    except ValueError as error:
        raise AddingError(f"its address {error}") from None
    return Remote(source, Inspection(path=str(source), resolved=image.name, size=size_at(image.url), sha256=sha256,
                                     init="", source=str(source)))
