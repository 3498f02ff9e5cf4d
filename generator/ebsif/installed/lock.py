"""The record of an installation, share/ebsif/lock.json: reading it, and comparing two."""

import dataclasses
import json
from pathlib import Path

from easybuild.easyblocks.generic.container import lockfile

from ebsif.errors import EbsifError


class LockError(EbsifError):
    """A record can't be read; the message says which, why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Change:
    """One difference: of what (``image``, ``image package`` ...), its name, and its values; None where it is absent."""

    kind: str
    name: str
    before: object
    after: object


def read(place):
    """
    Read the record of an installation.

    Parameters
    ----------
    place : str or Path
        An installation directory (CONTAINERROOT), or the file itself.

    Returns
    -------
    dict
        The record.

    Raises
    ------
    LockError
        If there is no such file, or it is none of ours.
    """
    path = Path(place)
    if path.is_dir():
        path = path / lockfile.RECORD
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LockError(f"{place}: no installation of a container module (no file {path})") from None
    except (OSError, ValueError, RecursionError) as error:
        raise LockError(f"{path}: can't be read: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get(lockfile.IMAGE), dict):
        raise LockError(f"{path}: not the record of an installation (it has no 'image')")
    return content


def compare(before, after):
    """
    Compare two records.

    Parameters
    ----------
    before, after : dict
        Records, as `read` returns them.

    Returns
    -------
    list of Change
        The differences, ordered by kind and name; none if the installations are alike.
    """
    changes = [
        Change("image", key, before[lockfile.IMAGE].get(key), after[lockfile.IMAGE].get(key))
        for key in ("file", "sha256")
        if before[lockfile.IMAGE].get(key) != after[lockfile.IMAGE].get(key)
    ]
    for kind, key in (("image package", lockfile.IMAGE_PACKAGES), ("package", lockfile.VENV_PACKAGES)):
        if key == lockfile.IMAGE_PACKAGES and not (key in before and key in after):
            continue  # installed without a venv by an earlier version, which did not record them
        changes += differences(kind, pins(before.get(key, [])), pins(after.get(key, [])))
    changes += differences("stage", stages(before), stages(after))
    changes += differences("mask", before.get(lockfile.MASKS, {}), after.get(lockfile.MASKS, {}))
    changes += differences("local file", before.get(lockfile.LOCAL_FILES, {}), after.get(lockfile.LOCAL_FILES, {}))
    return changes


def differences(kind, before, after):
    """Return a Change for each name whose value is not the same in two dictionaries."""
    return [
        Change(kind, name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def pins(lines):
    """Return the versions of lines like ``name==version``, by name."""
    return dict(line.split("==", 1) for line in lines)


def stages(record):
    """Return the stages of a record by name."""
    return {stage["name"]: stage for stage in record.get(lockfile.STAGES, [])}
