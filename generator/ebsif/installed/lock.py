"""Read and compare the records of installations, share/ebsif/lock.json."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from easybuild.easyblocks.generic.container.record.lockfile import RECORD, Record, RecordError, versions_in

from ebsif.errors import EbsifError


class LockError(EbsifError):
    """A lock file can't be read; the message says which one, why, and what to do."""


class ClosedLockError(LockError):
    """A lock file can't be read, because this account lacks the permission."""


# Where to get the lock of a module again.
AGAIN = "get it again: whoever has the module writes it with `ebsif lock` or `ebsif push`"


def read_record(place: Union[str, Path]) -> Record:
    """Return the record in an installation directory or a file. Raise LockError if there is none."""
    path = Path(place)
    if path.is_dir():
        path = path / RECORD
    try:
        return Record.read(str(path))
    except FileNotFoundError:
        raise LockError(
            f"{place} does not exist: give the lock of a module, or its installation"
            if path == Path(place)
            else f"{place}: not an installation of a container module ({path} does not exist)"
        ) from None
    except PermissionError as error:
        raise ClosedLockError(f"{path}: can't be read: {error.strerror}") from error
    except OSError as error:
        raise LockError(f"{path}: can't be read: {error.strerror}") from error
    except RecordError as error:
        # of an installation, the module is to be installed again
        raise LockError(f"{path}: {error}{f'; {AGAIN}' if path == Path(place) else ''}") from error


# What a record says about files and modules of this machine only.
LOCAL = {"easyconfig", "made_from"}


def for_others(record: Record) -> str:
    """Return a record as the text of a file for others, without what is only true here."""
    return Record(**{name: value for name, value in vars(record).items() if name not in LOCAL}).text


@dataclass(frozen=True)
class LockDifference:
    """A difference: its kind (``image``, ``image package`` ...), the name, and both values (None: absent)."""

    kind: str
    name: str
    before: Any
    after: Any


def differences(kind: str, before: dict[str, Any], after: dict[str, Any]) -> list[LockDifference]:
    """Return the differences between two dictionaries, ordered by name."""
    return [
        LockDifference(kind, name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def packages_by_kind(record: Record) -> dict[str, dict[str, str]]:
    """Return the versions of packages by name, by kind; without the kinds that earlier versions did not record."""
    packages = {"image package": versions_in(record.image_packages)} if record.has("image_packages") else {}
    for kind, name in (("system package", "system_packages"), ("Conda package", "conda_packages")):
        if record.has(name):
            packages[kind] = versions_in(line for lines in getattr(record, name).values() for line in lines)
    return {**packages, "package": versions_in(record.venv_packages)}


def package_changes(before: Record, after: Record) -> list[LockDifference]:
    """Return the differences between the packages of two installations, of the kinds that both have recorded."""
    old, new = packages_by_kind(before), packages_by_kind(after)
    return [change for kind in old if kind in new for change in differences(kind, old[kind], new[kind])]
