"""What pip has downloaded and built for a check, kept for the installation of the same that follows (N-07)."""

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Optional

from ebsif.environments import replacing
from ebsif.environments.extension import Extension
from ebsif.errors import EbsifError

# Where pip keeps that: the person's own directory is kept for everything.
VARIABLE = "PIP_CACHE_DIR"
SECONDS = 24 * 3600  # for which it is kept


def for_check(extension: Extension) -> dict[str, str]:
    """Return the variables with which a check keeps its downloads; none if it can't, or pip has a directory already."""
    folder = None if os.environ.get(VARIABLE) else own_folder()
    if not folder:
        return {}
    for path in folder.iterdir():
        if time.time() - path.lstat().st_mtime > SECONDS:
            shutil.rmtree(path, ignore_errors=True)
    return {VARIABLE: str(folder / key_of(extension))}


def for_installation(extension: Extension) -> dict[str, str]:
    """Return the variables with which an installation takes what a check of the same has left."""
    variables = for_check(extension)
    return variables if variables and os.path.isdir(variables[VARIABLE]) else {}


def remove(variables: dict[str, str]) -> None:
    """Remove the downloads that variables name."""
    for path in variables.values():
        shutil.rmtree(path, ignore_errors=True)


def own_folder() -> Optional[Path]:
    """Return the directory for all downloads; None if another account could write there."""
    path = Path(tempfile.gettempdir(), f"ebsif-downloads-{os.getuid()}")
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return path if is_own else None


def key_of(extension: Extension) -> str:
    """Return a name for the downloads of an extension: what was built for another image or request may not fit."""
    known = [extension.at("0").body]
    with contextlib.suppress(EbsifError, OSError):
        path = replacing.image_of(extension.base)
        found = path.stat()
        known += [str(path), str(found.st_size), str(found.st_mtime_ns)]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:20]
