"""Access files that other processes may be reading or writing, or that may be inaccessible."""

import contextlib
import errno
import fcntl
import itertools
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from ebsif import output

# of `locked`, and who has the lock where file systems have none
LOCK, OWNER = ".ebsif.lock", ".ebsif.lock.owner"
WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
PATIENCE = 5  # seconds before a line says who is waited for


def is_there(path: Path) -> bool:
    """Return whether a path exists; in a directory that can't be searched nothing does (pathlib raises an error)."""
    return os.path.exists(path)  # noqa: PTH110


def home() -> Path:
    """Return the home directory; for an account without one /dev/null, below which nothing can exist."""
    try:
        return Path.home()
    except (RuntimeError, KeyError):  # the latter until Python 3.9
        return Path(os.devnull)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """
    Let only one process at a time change the files of a directory, which is created if necessary.

    This is a POSIX lock: NFS and parallel file systems that support locks support these across machines. It ends with
    the process. Everyone who may write to the directory may lock it. File systems without locks, such as Lustre without
    the option flock, get a file instead that says who has the lock.

    Who has the lock may remove it (`remove_lock`): those who wait for it then create another one.
    """
    with contextlib.ExitStack() as held:
        while not has_lock(directory, held):
            held.close()
        yield


def has_lock(directory, held):
    """Lock a directory until an ExitStack ends; return whether that is still its lock (bool), which may be removed."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        lock = held.enter_context((directory / LOCK).open("a"))
        place = directory.stat()
        # for other accounts the owner, who created it, has done that
        set_access(directory / LOCK, place.st_gid, place.st_mode & 0o666 | stat.S_IWUSR)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
            held.enter_context(leased(directory / OWNER))
        return os.path.samestat(os.fstat(lock.fileno()), (directory / LOCK).stat())
    except FileNotFoundError:
        return False


def leased(path: Path) -> contextlib.AbstractContextManager[None]:
    """Return what locks a file whose file system has no locks, as between nodes that fetch an image."""
    # takes long to import
    from easybuild.easyblocks.generic.container.lease import Lease

    waits = itertools.count(1)

    def waiting(owner):
        if next(waits) == PATIENCE:
            who = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
            output.note(f"waiting for {who}, which changes {path.parent}")

    return Lease(str(path)).held(waiting)


def remove_lock(directory: Path) -> None:
    """Remove the file of `locked` from a directory; only for the process that has the lock."""
    (directory / LOCK).unlink(missing_ok=True)


def make_directory(directory: Path) -> None:
    """Create a directory and those above it, unless they exist; who may use them is decided as in `share`."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    share(directory, directory.parent)


def share(path: Path, directory: Path) -> None:
    """
    Let everybody who can use a directory use a file or another directory, and all that is in it, despite the umask.

    Where only the owner of a file may remove it, as in /tmp, the umask decides: these directories are not for sharing.
    """
    place = directory.stat()
    if place.st_mode & stat.S_ISVTX:
        return
    for one in [path, *path.rglob("*")]:
        set_access(one, place.st_gid, place.st_mode & (0o2777 if one.is_dir() else 0o666))


def set_access(path: Path, group: int, mode: int) -> None:
    """Give a file or directory a group and its mode; a group that it has instead may do no more than everybody."""
    if path.stat().st_gid != group:
        try:
            os.chown(path, -1, group)
        except OSError:  # this account isn't in the group, or the file system has none
            mode = mode & ~0o2070 | (mode & 0o007) << 3
    with contextlib.suppress(PermissionError):  # a file system that has no modes
        path.chmod(mode)


def replace(path: Path, text: str, shared: bool = False) -> None:
    """
    Replace a file atomically: readers see either the old or the new content, and its group and mode stay.

    Parameters
    ----------
    path
        The file; its directory is created if necessary.
    text
        The new content.
    shared
        Whether a new file, with its directory, is for everybody who can use the place; else the umask decides.
    """
    if path.parent == Path("/dev") or (path.exists() and not path.is_file()):
        # a device or a pipe: root could replace /dev/null by a file
        path.write_text(text, encoding="utf-8")
        return
    if shared:
        make_directory(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    # a unique name, even among the machines that share a file system
    new = path.with_name(f".{path.name}.{os.urandom(16).hex()}.new")
    try:
        with new.open("x", encoding="utf-8") as file:
            file.write(text)
        if path.exists():
            before = path.stat()
            set_access(new, before.st_gid, before.st_mode & 0o777)
        elif shared:
            share(new, path.parent)
        new.replace(path)
    except OSError as error:
        # nobody knows the name of the new one; the permissions of the old one don't matter, but those of the directory
        is_closed = isinstance(error, PermissionError) and not error.filename2
        error.filename = str(path.parent if is_closed else path)
        raise
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def make_executable(path: Path) -> None:
    """Let everybody who can read a file execute it."""
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)


def how_to_get_access(path: Path) -> str:
    """Return what to do about a file or directory that this account can't read, write or create (str)."""
    place = next(one for one in (path, *path.parents) if is_there(one))
    number = place.stat().st_uid
    if number != os.getuid():
        return f"ask {owner(number)}, who owns {place}, for permission"
    missing = "w" if os.access(place, os.X_OK if place != path else os.R_OK) else "rX"
    return f"run `chmod u+{missing} {shlex.quote(str(place))}`"


def owner(number: int) -> str:
    """Return the name of an account, or its number if it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"account {number}"
