"""Files that others may be reading, or writing as well, or that they keep to themselves."""

import contextlib
import fcntl
import os
import uuid
from pathlib import Path


def is_there(path):
    """Tell whether there is a file or directory; a place that can't be looked into has none, pathlib fails there."""
    return os.path.exists(path)  # noqa: PTH110


def home():
    """Return the home directory (Path); for an account that has none /dev/null, in which nothing is or can be made."""
    try:
        return Path.home()
    except (RuntimeError, KeyError):  # the latter until Python 3.9
        return Path(os.devnull)


@contextlib.contextmanager
def locked(directory):
    """
    Let one process at a time change the files of a directory (Path), which is made if it is not there.

    A POSIX lock, which NFS and parallel file systems have across machines where they have any; it ends with the
    process. Who may write to the directory may lock it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".ebsif.lock").open("a") as lock:
        with contextlib.suppress(PermissionError):  # somebody else has made it, for all who may
            os.fchmod(lock.fileno(), directory.stat().st_mode & 0o666)
        fcntl.lockf(lock, fcntl.LOCK_EX)
        yield


def replace(path, text):
    """
    Write a text as a new file that takes the place of an earlier one: whoever reads sees one of the two, whole.

    Parameters
    ----------
    path : Path
        The file; its directory is made if it is not there.
    text : str
        What is in it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # a name of its own, also beside another machine's on a shared file system
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        with new.open("x", encoding="utf-8") as file:
            file.write(text)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
