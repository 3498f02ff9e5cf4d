"""The image of an installation: where it is, whose it is, and whether it is the one that was installed."""

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.sharedimage import IMAGE_CENTRAL, IMAGE_LINK, IMAGE_OWN, IMAGE_REFERENCE
from easybuild.easyblocks.generic.container.texts import format_size

from ebsif import eb
from ebsif.files import is_there
from ebsif.image.checksum import sha256
from ebsif.installed.places import Installation

# What is known of an image, from best to worst. Verified: by its SHA256; recorded: size and time are those recorded.
VERIFIED, RECORDED, UNKNOWN, TOUCHED, CHANGED, UNREADABLE, GONE = STATES = (
    "verified", "as recorded", "size not recorded", "time changed", "changed", "unreadable", "gone")
BAD = (CHANGED, UNREADABLE, GONE)


@dataclass(frozen=True)
class ImageState:
    """
    The image that a module uses.

    Attributes
    ----------
    kind
        own, central, link or reference, as recorded.
    origin
        The module whose image it is, if that is another one.
    path
        The image; None if it is gone.
    size
        Its size in bytes; None if it is gone.
    state
        One of STATES.
    problem
        What is wrong, and what to do; None if nothing is.
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
    """
    Return the state of the image of an installation, by size and time.

    Parameters
    ----------
    installation
        The installation.
    verify
        Whether to compare the SHA256 as well, which reads the whole image.

    Raises
    ------
    LockError
        If the record can't be read.
    """
    known = installation.record[lockfile.IMAGE]
    kind, origin = kind_of(installation), known.get("origin")
    path = next((path for path in candidates(installation) if is_there(path)), None)
    if not path:
        return ImageState(kind, origin, None, None, GONE, gone(installation, kind, origin))
    status = path.stat()
    state, problem = compare(path, status, known, verify)
    return ImageState(kind, origin, path, status.st_size, state,
                      f"{problem}: {remedy(installation, kind, origin)}" if problem else None)


def kind_of(installation: Installation) -> str:
    """Return the kind of the image: own, central, link or reference. Earlier versions didn't record it."""
    known = installation.record[lockfile.IMAGE]
    return known.get("kind") or (IMAGE_OWN if is_there(installation.root / known["file"]) else IMAGE_CENTRAL)


def candidates(installation: Installation) -> Iterator[Path]:
    """Yield the paths where the module looks for its image, in its order."""
    known, kind = installation.record[lockfile.IMAGE], kind_of(installation)
    if kind in (IMAGE_OWN, IMAGE_LINK):
        yield installation.root / known["file"]
    else:
        yield from (Path(known[key]) for key in ("source", "resolved") if known.get(key))
    # asking EasyBuild takes longer
    yield from central_places(installation)


def central_places(installation):
    """Yield the paths of the image in the site's directories, as in the installation's easyconfig."""
    path = installation.easyconfig
    try:
        values = eb.read(path) if path else None
        directories = (values["image_dirs"] or []) if values else []
    except (eb.EasyBuildFailure, KeyError):
        return
    root = os.environ.get(values["image_root_variable"] or "") or values["image_root"] or "/" if directories else "/"
    for directory in directories:
        yield Path(root, directory, installation.record[lockfile.IMAGE]["file"])


def compare(path: Path, status: os.stat_result, known: dict[str, Any], verify: bool) -> tuple[str, Optional[str]]:
    """Return the state of an image, compared with its record, and the problem if there is one."""
    if not os.access(path, os.R_OK):
        return UNREADABLE, f"you can't read the image {path}"
    size, time = known.get("size"), known.get("mtime_ns")
    if size is not None and status.st_size != size:
        how = "truncated" if status.st_size < size else "replaced"
        return CHANGED, (f"the image {path} was {how} after the installation: {format_size(status.st_size)} "
                         f"({status.st_size} bytes) instead of {size} bytes")
    if verify and known.get("sha256"):
        found = digest(status.st_dev, status.st_ino, status.st_ctime_ns, path)
        if found != known["sha256"]:
            return CHANGED, f"the image {path} was changed after the installation: its SHA256 is {found}"
        return VERIFIED, None
    if time is not None and status.st_mtime_ns != time:
        return TOUCHED, (f"the image {path} was written to or copied after the installation (`ebsif installed "
                         "--verify` tells whether its content has changed)")
    return (RECORDED if size is not None else UNKNOWN), None


@functools.cache
def digest(_device, _inode, _time, path):
    """Return the SHA256 of an image (str), which is read once, however many modules share it."""
    return sha256(path)


def gone(installation, kind, origin):
    """Return what to say of an image that isn't there (str)."""
    known = installation.record[lockfile.IMAGE]
    where = next(candidates(installation))
    if kind == IMAGE_OWN:
        return f"the image {where} is gone: {remedy(installation, kind, origin)}"
    if kind == IMAGE_REFERENCE and origin:
        return (f"the image {where} is gone, which is that of {origin}: install {origin} again with `eb --rebuild`, or "
                "this module")
    return (f"the image {known['file']} is in none of its places ({where}): is the file system mounted? If the image "
            f"was removed, {remedy(installation, kind, origin)}")


def remedy(installation, kind, origin):
    """Return what to do about a wrong image (str)."""
    name = installation.easyconfig.name if installation.easyconfig else "EASYCONFIG"
    if kind == IMAGE_CENTRAL:
        return f"put the right image back, or install the module again with `eb --rebuild {name}`"
    if origin:
        return f"install {origin}, whose image it is, again with `eb --rebuild`, then this module"
    return f"install the module again with `eb --rebuild {name}`"
