"""Read the records of installations, share/ebsif/lock.json, with errors that say what to do."""

from pathlib import Path
from typing import Union

from easybuild.easyblocks.generic.container.lockfile import RECORD, Record, RecordError

from ebsif.errors import EbsifError


class LockError(EbsifError):
    """A lock file can't be read; the message says which one, why, and what to do."""


class ClosedLockError(LockError):
    """A lock file can't be read, because this account lacks the permission."""


def read(place: Union[str, Path]) -> Record:
    """Return the record in an installation directory or a file. Raise LockError if there is none."""
    path = Path(place)
    if path.is_dir():
        path = path / RECORD
    try:
        return Record.read(str(path))
    except FileNotFoundError:
        raise LockError(f"{place} does not exist: name the lock of a module, or its installation" if path == Path(place)
                        else f"{place}: not an installation of a container module ({path} does not exist)") from None
    except PermissionError as error:
        raise ClosedLockError(f"{path}: can't be read: {error.strerror}") from error
    except OSError as error:
        raise LockError(f"{path}: can't be read: {error.strerror}") from error
    except RecordError as error:
        raise LockError(f"{path}: {error}") from error


def for_others(record: Record) -> str:
    """Return a record as the text of a file for others, without the path of the easyconfig."""
    return Record(**{name: value for name, value in vars(record).items() if name != "easyconfig"}).text
