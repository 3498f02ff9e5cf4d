"""Read and compare the lock files of installations, share/ebsif/lock.json."""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional, Union

from easybuild.easyblocks.generic.container import lockfile

from ebsif.errors import EbsifError


class LockError(EbsifError):
    """A lock file can't be read; the message says which one, why, and what to do."""


class ClosedLockError(LockError):
    """A lock file can't be read, because this account lacks the permission."""


@dataclasses.dataclass(frozen=True)
class Change:
    """A difference: its kind (``image``, ``image package`` ...), the name, and both values (None: absent)."""

    kind: str
    name: str
    before: object
    after: object


def read(place: Union[str, Path]) -> dict[str, Any]:
    """
    Read the lock file of an installation.

    Parameters
    ----------
    place
        An installation directory (CONTAINERROOT), or the file itself.

    Returns
    -------
    dict
        The content of the lock file.

    Raises
    ------
    LockError
        If the file is missing or is not a lock file.
    """
    path = Path(place)
    if path.is_dir():
        path = path / lockfile.RECORD
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise LockError(f"{place} does not exist: name the lock of a module, or its installation" if path == Path(place)
                        else f"{place}: not an installation of a container module ({path} does not exist)") from None
    except PermissionError as error:
        raise ClosedLockError(f"{path}: can't be read: {error.strerror}") from error
    except OSError as error:
        raise LockError(f"{path}: can't be read: {error.strerror}") from error
    return parse(text, path)


def parse(text: bytes, path: object) -> dict[str, Any]:
    """
    Return the content of a lock file; `path` says which one it is.

    Raises
    ------
    LockError
        If it is not a lock file.
    """
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise LockError(f"{path}: can't be read as a lock, which `ebsif lock` writes: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get(lockfile.IMAGE), dict):
        raise LockError(f"{path}: not the lock file of an installation (it has no 'image')")
    wrong = next(wrong_keys(content), None)
    if wrong:
        raise LockError(f"{path}: damaged: '{wrong}' has a wrong type")
    return content


def as_text(record: dict[str, Any]) -> str:
    """Return a record as the text of a file for others, without the path of the easyconfig."""
    shared = {name: value for name, value in record.items() if name != lockfile.EASYCONFIG}
    return json.dumps(shared, indent=2, sort_keys=True) + "\n"


def wrong_keys(content: dict[str, Any]) -> Iterator[str]:
    """Yield the keys of a lock file whose values have another type than this program writes."""
    image = content[lockfile.IMAGE]
    if not isinstance(image.get("file"), str):
        yield f"{lockfile.IMAGE}: file"
    yield from (f"{lockfile.IMAGE}: {key}" for key in ("kind", "origin", "source", "source_digest", "resolved",
                                                  "sha256")
                if not isinstance(image.get(key), (str, type(None))))
    yield from (f"{lockfile.IMAGE}: {key}" for key in ("signers", "verified") if not are_texts(image.get(key, [])))
    yield from (f"{lockfile.IMAGE}: {key}" for key in ("size", "mtime_ns")
                if not isinstance(image.get(key), (int, type(None))))
    yield from (key for key in (lockfile.IMAGE_PACKAGES, lockfile.VENV_PACKAGES) if not are_pins(content.get(key, [])))
    yield from (key for key in (lockfile.SYSTEM_PACKAGES, lockfile.CONDA_PACKAGES, lockfile.IMAGE_LIST)
                if not isinstance(content.get(key, {}), dict) or not all(map(are_pins, content.get(key, {}).values())))
    yield from (key for key in (lockfile.MODULE, lockfile.USER_FILES, lockfile.MASKS, lockfile.LOCAL_FILES,
                                lockfile.ARTIFACTS) if not isinstance(content.get(key, {}), dict))
    if not are_stages(content.get(lockfile.STAGES, [])):
        yield lockfile.STAGES


def are_texts(value):
    """Return whether a value is a list of str."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def are_stages(value):
    """Return whether a value is a list of stages with names."""
    return isinstance(value, list) and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in value)


def are_pins(lines):
    """Return whether a value is a list of lines like ``name==version``."""
    return isinstance(lines, list) and all(isinstance(line, str) and "==" in line for line in lines)


def module_name(record: dict[str, Any]) -> Optional[str]:
    """Return name, version and suffix of the module in a record; None if it has none."""
    module = record.get(lockfile.MODULE) or {}
    if not module.get("name"):
        return None
    return f"{module['name']}/{module.get('version', '')}{module.get('versionsuffix', '')}"


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """
    Compare two lock files.

    Parameters
    ----------
    before, after
        Lock files, as `read` returns them.

    Returns
    -------
    list of Change
        The differences, ordered by kind and name; empty if the installations are the same.
    """
    changes = [
        Change("image", key, before[lockfile.IMAGE].get(key), after[lockfile.IMAGE].get(key))
        for key in ("file", "sha256")
        if before[lockfile.IMAGE].get(key) != after[lockfile.IMAGE].get(key)
    ]
    packages_before, packages_after = packages_by_kind(before), packages_by_kind(after)
    for kind in packages_before:
        if kind in packages_after:
            changes += differences(kind, packages_before[kind], packages_after[kind])
    changes += differences("stage", stages(before), stages(after))
    changes += differences("mask", before.get(lockfile.MASKS, {}), after.get(lockfile.MASKS, {}))
    changes += differences("local file", before.get(lockfile.LOCAL_FILES, {}), after.get(lockfile.LOCAL_FILES, {}))
    return changes


def packages_by_kind(record: dict[str, Any]) -> dict[str, dict[str, str]]:
    """
    Return the versions of packages by name, by kind of package.

    Kinds that earlier versions of ebsif did not record are left out, so that they don't look missing.
    """
    found = {}
    if lockfile.IMAGE_PACKAGES in record:
        found["image package"] = pins(record[lockfile.IMAGE_PACKAGES])
    for kind, key in (("system package", lockfile.SYSTEM_PACKAGES), ("Conda package", lockfile.CONDA_PACKAGES)):
        if key in record:
            found[kind] = pins(line for lines in record[key].values() for line in lines)
    found["package"] = pins(record.get(lockfile.VENV_PACKAGES, []))
    return found


def differences(kind: str, before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the differences between two dictionaries."""
    return [
        Change(kind, name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def pins(lines: Iterable[str]) -> dict[str, str]:
    """Return the versions in lines like ``name==version`` by name."""
    return dict(line.split("==", 1) for line in lines)


def stages(record: dict[str, Any]) -> dict[str, dict]:
    """Return the stages in a lock file by name."""
    return {stage["name"]: stage for stage in record.get(lockfile.STAGES, [])}
