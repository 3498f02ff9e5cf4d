"""What pip has downloaded and built for a check, kept for the installation of the same that follows (N-07)."""

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ebsif.environments import bases
from ebsif.environments.extension import Extension
from ebsif.errors import EbsifError
from ebsif.installed.places import Installation

# Where pip keeps that: the person's own directory is kept for everything.
VARIABLE = "PIP_CACHE_DIR"
SECONDS = 24 * 3600  # for which it is kept


@dataclass
class Kept:
    """The variables of eb with which a check keeps its downloads, and whether an installation can follow it."""

    variables: dict[str, str]
    are_useful: bool = False


@contextlib.contextmanager
def of_check(extension: Extension, there: Iterable[Installation]) -> Iterator[Kept]:
    """
    Yield what a check keeps: nothing if it can't, or pip has a directory already.

    It is removed unless it is useful.
    """
    with contextlib.suppress(OSError):
        # with the access that it has to have
        folder_of_all().mkdir(mode=0o700)
    kept = Kept(variables_of(extension, there))
    try:
        yield kept
    finally:
        if not (kept.are_useful and are_left(kept.variables)):
            remove(kept.variables)


@contextlib.contextmanager
def left_by_check(extension: Extension, there: Iterable[Installation]) -> Iterator[dict[str, str]]:
    """Yield the variables with which an installation takes what a check of the same has left, and then removes it."""
    variables = variables_of(extension, there)
    variables = variables if are_left(variables) else {}
    yield variables
    remove(variables)


def variables_of(extension: Extension, there: Iterable[Installation]) -> dict[str, str]:
    """Return the variables that name the downloads of an extension; those of others, if they are old, are removed."""
    folder = folder_of_all()
    if os.environ.get(VARIABLE) or not is_own(folder):
        return {}
    remove_old(folder)
    return {VARIABLE: str(folder / key_of(extension, there))}


def remove_old(folder: Path) -> None:
    """Remove what is old in a directory from which other commands may remove files, or it, at the same time."""
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.lstat().st_mtime > SECONDS:
                    shutil.rmtree(path, ignore_errors=True)


def are_left(variables: dict[str, str]) -> bool:
    """Return whether there is any file among the downloads that variables name."""
    return any(files for path in variables.values() for _, _, files in os.walk(path))


def remove(variables: dict[str, str]) -> None:
    """Remove the downloads that variables name, and the directory of all if there are no others."""
    for path in variables.values():
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))


def folder_of_all() -> Path:
    """Return the directory for the downloads of all checks of this account."""
    return Path(tempfile.gettempdir(), f"ebsif-downloads-{os.getuid()}")


def is_own(folder: Path) -> bool:
    """Return whether there is a directory to which no other account can write."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def key_of(extension: Extension, there: Iterable[Installation]) -> str:
    """Return a name for the downloads of an extension: what was built for another image or request may not fit."""
    known = [extension.undated]
    with contextlib.suppress(EbsifError, OSError):
        path = bases.image_of(extension.base, there)
        found = path.stat()
        known += [str(path), str(found.st_size), str(found.st_mtime_ns)]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:20]
