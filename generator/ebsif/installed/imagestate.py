"""The image of an installation: where it is, whose it is, and whether it is the one that was installed."""

import os
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

from easybuild.easyblocks.generic.container.image.installed import InstalledImage, image_places
from easybuild.easyblocks.generic.container.record.lockfile import (
    IMAGE_CENTRAL,
    IMAGE_OWN,
    IMAGE_REFERENCE,
    ImageRecord,
)
from easybuild.easyblocks.generic.container.values import current_root

from ebsif import files
from ebsif.eb import framework
from ebsif.files import is_there
from ebsif.images.checksum import difference, sha256
from ebsif.installed.places import Installation

# What is known of an image, from best to worst. Verified: by its SHA256; recorded: size and time are those recorded.
VERIFIED, RECORDED, UNKNOWN, TOUCHED, CHANGED, UNREADABLE, GONE = STATES = (
    "verified",
    "as recorded",
    "size not recorded",
    "time changed",
    "changed",
    "unreadable",
    "gone",
)
BAD = (CHANGED, UNREADABLE, GONE)
# The SHA256 of images that were read, and whose turn it is to read one.
DIGESTS: dict[tuple[int, int, int], str] = {}
TURNS: dict[tuple[int, int, int], threading.Lock] = {}


@dataclass(frozen=True)
class ImageState:
    """
    The image that a module uses: its kind (own, central or reference), path and size in bytes (None if it is gone).

    `origin` is the module whose image it is, if that is another one, and `state` one of STATES. `problem` says what is
    wrong and what to do.
    """

    kind: str
    origin: Optional[str]
    path: Optional[Path]
    size: Optional[int]
    state: str
    problem: Optional[str] = None

    @property
    def is_bad(self) -> bool:
        """Whether the module can't use the image, or it isn't the one that was installed."""
        return self.state in BAD


def examine(installation: Installation, verify: bool = False) -> ImageState:
    """Return the state of an image by size and time, or its SHA256 (`verify`); raise LockError without a record."""
    known = installation.record.image
    kind, origin = kind_of(installation), known.origin
    path = path_of(installation)
    if not path:
        closed = next(filter(is_closed, candidates(installation)), None)
        if closed:
            return ImageState(kind, origin, None, None, UNREADABLE, unreadable(closed))
        return ImageState(kind, origin, None, None, GONE, gone(installation, kind, origin))
    size = path.stat().st_size
    if not os.access(path, os.R_OK):
        return ImageState(kind, origin, path, size, UNREADABLE, unreadable(path))
    newer = sha256_of_owner(path)
    if newer and known.sha256 and newer != known.sha256:
        return ImageState(
            kind,
            origin,
            path,
            size,
            CHANGED,
            f"the image {path} is another one since "
            f"{origin or path.parent} was installed again: install this module again, too, with "
            f"`{installation.rebuild}`",
        )
    state, problem = compare(path, known, verify, is_same=bool(newer) and newer == known.sha256)
    return ImageState(
        kind, origin, path, size, state, f"{problem}: {remedy(installation, kind, origin)}" if problem else None
    )


def path_of(installation: Installation) -> Optional[Path]:
    """Return the image that the module uses on this machine; None if there is none."""
    return next(filter(is_there, candidates(installation)), None)


def kind_of(installation: Installation) -> str:
    """Return the kind of the image: own, central or reference. Earlier versions didn't record it."""
    known = installation.record.image
    if known.has("kind"):
        return known.kind
    return IMAGE_OWN if is_there(installation.root / known.file) else IMAGE_CENTRAL


def candidates(installation: Installation) -> Iterator[Path]:
    """Yield the paths where the module looks for its image, in its order."""
    known = installation.record.image
    own = str(installation.root / known.file)
    source = known.resolved or known.source or own
    yield from map(Path, image_places(kind_of(installation), own, source, map(str, central_places(installation))))


def central_places(installation: Installation) -> Iterator[Union[str, Path]]:
    """Yield the paths of the image in the site's directories, as in the easyconfig; without that, as recorded."""
    known, path = installation.record.image, installation.easyconfig
    try:
        # this takes longer: nobody asks unless the image is nowhere else
        values: Any = framework.read(path) if path else {}
        directories = values["image_dirs"] or []
    except (framework.EbError, KeyError):
        yield from filter(None, (known.source, known.resolved))
        return
    root = current_root(values["image_root"]) if directories else "/"
    for directory in directories:
        yield Path(root, directory, known.file)


def is_closed(path: Path) -> bool:
    """Return whether a path may exist in a directory that this account can't search."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def unreadable(path: Path) -> str:
    """Return the message for an image that this account can't read."""
    return f"you can't read the image {path}: {files.how_to_get_access(path)}"


def compare(path: Path, known: ImageRecord, verify: bool, is_same: bool) -> tuple[str, Optional[str]]:
    """
    Return the state of an image, compared with its record, and the problem if there is one.

    `is_same`: whether it is the image by the record of the module that it belongs to, whatever its time.
    """
    different = difference(path, known.size, known.sha256, digest if verify else None)
    if different:
        return CHANGED, f"the image {path} was {different.how} after the installation: {different.figures}"
    if verify and known.sha256:
        return VERIFIED, None
    if known.mtime_ns not in (None, path.stat().st_mtime_ns) and not is_same:
        return TOUCHED, (
            f"the image {path} was written to or copied after the installation (`ebsif installed "
            "--verify` compares its content)"
        )
    return (RECORDED if known.size is not None else UNKNOWN), None


def sha256_of_owner(path: Path) -> Optional[str]:
    """Return the SHA256 of an image by the record of the module that it belongs to, if the image is as installed."""
    owner = InstalledImage(str(path.parent))
    return owner.image.sha256 if owner.uses(str(path)) and owner.is_unchanged() else None


def digest(path: Path) -> str:
    """Return the SHA256 of an image, which is read once, however many modules and threads ask for it."""
    status = path.stat()
    key = status.st_dev, status.st_ino, status.st_ctime_ns
    with TURNS.setdefault(key, threading.Lock()):
        if key not in DIGESTS:
            DIGESTS[key] = sha256(path)
        return DIGESTS[key]


def gone(installation: Installation, kind: str, origin: Optional[str]) -> str:
    """Return the message for a missing image."""
    places = [str(path) for path in candidates(installation)]
    if kind == IMAGE_OWN or (kind == IMAGE_REFERENCE and origin):
        return f"the image {places[0]} is gone: {remedy(installation, kind, origin)}"
    file, easyconfig = installation.record.image.file, installation.easyconfig or "the module's easyconfig"
    # a rebuild looks in the same places
    return (
        f"the image {file} isn't where the module looks for it ({', '.join(places) or 'no place is recorded'}): is "
        "the file system mounted? If the image was removed, put it back. If it was moved, correct its directory "
        f"in {easyconfig} (`ebsif add` with the image's new path says what to correct in a catalog), and install "
        f"the module again with `{installation.rebuild}`"
    )


def remedy(installation: Installation, kind: str, origin: Optional[str]) -> str:
    """Return what to do about a wrong image."""
    if kind == IMAGE_CENTRAL:
        return f"put the right image back, or install the module again with `{installation.rebuild}`"
    if origin:
        source = installation.record.image.resolved or installation.root
        theirs, own = Installation(Path(source).parent, origin), installation.easyconfig
        if theirs.easyconfig and own:
            return (
                f"install {origin}, which owns the image, and this module again with `{theirs.rebuild} "
                f"{shlex.quote(str(own))}`"
            )
        return f"install {origin} again, which owns the image, and then this module with `{installation.rebuild}`"
    return f"install the module again with `{installation.rebuild}`"
