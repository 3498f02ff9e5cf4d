"""Access files that other processes may be reading or writing, or that may be inaccessible."""

import contextlib
import errno
import fcntl
import grp
import itertools
import os
import pwd
import shlex
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Optional, Union

from easybuild.easyblocks.generic.container.values import ERRORS, plain_error

from ebsif.errors import EbsifError

LOCK = ".ebsif.lock"
# what locking says on a file system without locks, such as Lustre without the option flock
WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
# how the names of images end: those of Singularity 3, and of its predecessor
IMAGES = (".sif", ".simg")
# as many as the kernel follows
MOST_LINKS = 40


def is_there(path: Path) -> bool:
    """Return whether a path exists; one in an unsearchable directory counts as missing (pathlib raises an error)."""
    return os.path.exists(path)


def home() -> Path:
    """Return the home directory; for an account without one /dev/null, below which nothing can exist."""
    try:
        return Path.home()
    except (RuntimeError, KeyError):  # the latter until Python 3.9
        return Path(os.devnull)


def data_folder() -> Path:
    """Return the directory of what this account has made with ebsif: its catalog, its easyconfigs."""
    return Path(os.environ.get("XDG_DATA_HOME") or home() / ".local/share", "ebsif")


def is_directory(path: Union[str, Path]) -> bool:
    """Return whether a path is a directory that can be reached (older versions of pathlib raise an error if not)."""
    return os.path.isdir(path)


def expanded(text: str) -> Path:
    """Return a path with ~ and ~account expanded, except those of unknown accounts (pathlib raises an error)."""
    return Path(os.path.expanduser(text))


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """
    Let only one process at a time change the files of a directory, which is created if necessary.

    This is a POSIX lock, which ends with the process; on file systems without such locks, nothing is locked. Everyone
    who may write to the directory may lock it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with take_lock(directory):
        yield


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """
    As `locked`, for a directory of other people's files: no file for the lock stays there.

    Where this account can't lock, it goes on without: the directory may be closed, or may be one like /tmp, where only
    the account that has the lock can open it.
    """
    with contextlib.ExitStack() as opened:
        try:
            lock = take_lock(directory)
            while not is_at(lock, directory / LOCK):
                # who had it has removed it
                lock.close()
                lock = take_lock(directory)
            opened.enter_context(lock)
            opened.callback(remove_lock, directory)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
                raise
        yield


def take_lock(directory: Path) -> IO[str]:
    """Wait for the lock of a directory, and return its open file; see `locked`."""
    # not through a link, which another one who may write there could have put in its place
    lock = open(  # noqa: SIM115
        directory / LOCK,
        "a",
        opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666),
    )
    place = directory.stat()
    # for other accounts the owner, who created it, has done that
    with contextlib.suppress(FileNotFoundError):
        set_access(directory / LOCK, place.st_gid, place.st_mode & 0o666 | stat.S_IWUSR)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    return lock


def is_at(file: IO[str], path: Path) -> bool:
    """Return whether an open file is the one that has a path now."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def remove_lock(directory: Path) -> None:
    """Remove the file for the lock of a directory; those who wait for it notice that."""
    with contextlib.suppress(OSError):
        (directory / LOCK).unlink()


@contextlib.contextmanager
def followed(path: Path, shared: bool = False) -> Iterator[Path]:
    """
    Yield the place to which a path leads, which is no link; its directory is created, for others if it is `shared`.

    Somebody else's link could lead to any file of this account. So a link is only followed if it belongs to this
    account or root, and is in a directory where others can't put links; else raise EbsifError (P-08). The directory of
    the place stays the one that was found, whatever others do meanwhile.
    """
    # what autofs mounts is mounted by this, and not by O_PATH
    is_there(path)
    with contextlib.ExitStack() as opened:
        directory, name = Path("/"), "."
        parts, links = list(reversed(path.absolute().parts[1:])), 0
        while parts:
            name = parts.pop()
            try:
                number = os.open(directory / name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
                opened.callback(os.close, number)
                entry = Path(f"/proc/self/fd/{number}")
                if stat.S_ISLNK(os.fstat(number).st_mode):
                    links += 1
                    if links > MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    require_own_link(directory, number, name, path)
                    target = Path(os.readlink("", dir_fd=number))
                    parts += [part for part in reversed(target.parts) if part != "/"]
                    directory, name = Path("/") if target.is_absolute() else directory, "."
                elif parts:
                    directory = entry
            except FileNotFoundError:
                if parts:
                    parts.append(name)
                    create(directory / name, directory, shared)
            except OSError as error:
                error.filename = str(Path(os.path.realpath(directory), name))
                raise
        yield directory / name


def create(new: Path, directory: Path, shared: bool) -> None:
    """Create a directory in another one, for others if it is `shared`."""
    try:
        new.mkdir(exist_ok=True)
        if shared:
            share(new, directory)
    except OSError as error:
        error.filename = str(Path(os.path.realpath(directory), new.name))
        raise


def require_own_link(directory: Path, link: int, name: str, path: Path) -> None:
    """Raise EbsifError unless an open link is ours or root's, and others can't put links into its directory."""
    ours, place = (0, os.geteuid()), directory.stat()
    others = stat.S_IWOTH if is_own_group(place.st_gid) else stat.S_IWOTH | stat.S_IWGRP
    is_closed = place.st_uid in ours and (place.st_mode & stat.S_ISVTX or not place.st_mode & others)
    if is_closed and os.fstat(link).st_uid in ours:
        return
    found = Path(os.path.realpath(directory), name)
    raise EbsifError(
        f"{path} can't be written: {found} is a link that others may have put there. If you want to write "
        f"where it leads, give that path instead: {os.path.realpath(path)}"
    )


def is_own_group(number: int) -> bool:
    """
    Return whether a group has nobody but this account: its number or its name is that of the account.

    For such groups, many systems have the umask 002.
    """
    if number in (0, os.geteuid()):
        return True
    with contextlib.suppress(KeyError):
        group, name = grp.getgrgid(number), pwd.getpwuid(os.geteuid()).pw_name
        return group.gr_name == name and not set(group.gr_mem) - {name}
    return False


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
    """
    Give a file or directory a group and its mode; a group that it has instead may do no more than everybody.

    Where a link is, which others may have put in its place, nothing is done.
    """
    number = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        opened = f"/proc/self/fd/{number}"
        status = os.fstat(number)
        if stat.S_ISLNK(status.st_mode):
            return
        if status.st_gid != group:
            try:
                os.chown(opened, -1, group)
            except OSError:  # this account isn't in the group, or the file system has none
                mode = mode & ~0o2070 | (mode & 0o007) << 3
        with contextlib.suppress(PermissionError):  # a file system that has no modes
            os.chmod(opened, mode)
    finally:
        os.close(number)


def encoded(text: str) -> bytes:
    """Return the bytes of a text in a file; those that aren't UTF-8 stay what they were in an argument or a file."""
    return text.encode("utf-8", "surrogateescape")


def replace(path: Path, content: Union[str, bytes], shared: bool = False) -> None:
    """
    Replace a file atomically: readers see either the old or the new content, and its group and mode stay.

    Its directory is created if necessary. With `shared`, a new file, with its directory, is for everybody who can use
    the place; else the umask decides. A link stays, and leads to the new content, unless others may have put it there.
    """
    if isinstance(content, str):
        content = encoded(content)
    if path.parent == Path("/dev") or str(path).startswith(("/dev/fd/", "/proc/")):
        # their links lead to what this process has open
        path.write_bytes(content)
        return
    with followed(path, shared) as place:
        # a device or a pipe: root could replace a device by a file
        if os.path.lexists(place) and not stat.S_ISREG(place.lstat().st_mode):
            write_into(place, content, path)
        else:
            write(place, content, path, shared)


def write_into(place: Path, content: bytes, path: Path) -> None:
    """Write into a device or a pipe at a place that isn't a link; errors name the path."""
    try:
        with open(place, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
            file.write(content)
    except OSError as error:
        error.filename = str(path)
        raise


def write(place: Path, content: bytes, path: Path, shared: bool) -> None:
    """Replace a file at a place that isn't a link; errors name the path."""
    # a unique name, even among the machines that share a file system
    new = place.with_name(f".{place.name}.{os.urandom(16).hex()}.new")
    try:
        with new.open("xb") as file:
            file.write(content)
        if place.exists():
            before = place.stat()
            set_access(new, before.st_gid, before.st_mode & 0o777)
        elif shared:
            share(new, place.parent)
        new.replace(place)
    except OSError as error:
        # nobody knows the name of the new one; the permissions of the old one don't matter, but those of the directory
        is_closed = isinstance(error, PermissionError) and not error.filename2
        error.filename = str(path.parent if is_closed and path.exists() else path)
        raise
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def write_new(
    contents: Mapping[Path, Union[str, bytes]],
    overwrite: bool = False,
    remedy: str = "choose another name, or replace it with --overwrite",
    shared: bool = False,
    aside: bool = False,
) -> list[Path]:
    """
    Write files; raise EbsifError with a remedy, and write none, if one would be lost that isn't to be overwritten.

    With `aside`, those that would be lost are renamed; return where they are. They are put back if the new ones can't
    be written. With `shared`, new files are for everybody who can use the place.
    """
    for path in contents:
        closed = closed_part(path.parent)
        if closed and closed.is_dir() and not os.path.lexists(path):
            raise EbsifError(not_creatable(path, closed))
    there = [path for path, content in contents.items() if differs(path, content)]
    if there and not (overwrite or aside):
        raise refusal(there, remedy)
    kept = {path: set_aside(path) for path in there if aside}
    try:
        for path, content in contents.items():
            replace(path, content, shared)
    except OSError:
        for path, earlier in kept.items():
            earlier.replace(path)
        raise
    return list(kept.values())


def set_aside(path: Path) -> Path:
    """Rename a file that is going to be replaced to NAME.old, or with a number if that exists; return its new path."""
    numbers = itertools.count(2)
    kept = path.with_name(f"{path.name}.old")
    while kept.exists():
        kept = path.with_name(f"{path.name}.old{next(numbers)}")
    path.replace(kept)
    return kept


def refusal(paths: Iterable[Path], remedy: str) -> EbsifError:
    """Return the error that files with other content exist, with a remedy."""
    return EbsifError(f"{' and '.join(map(str, paths))} exists already, with different content: {remedy}")


def differs(path: Path, content: Union[str, bytes]) -> bool:
    """Return whether a file exists with content other than this; an empty file has none to lose."""
    text = encoded(content) if isinstance(content, str) else content
    return path.is_file() and path.read_bytes() not in (b"", text)


def make_executable(path: Path) -> None:
    """Let everybody who can read a file execute it."""
    with followed(path) as place:
        status = place.stat()
        set_access(place, status.st_gid, stat.S_IMODE(status.st_mode) | (status.st_mode & 0o444) >> 2)


def closed_part(directory: Path) -> Optional[Path]:
    """Return the part of a path, or all of it, that keeps this account from writing there; None if it can."""
    there = directory.absolute()
    while not is_there(there):
        there = there.parent
    return None if there.is_dir() and os.access(there, os.W_OK | os.X_OK) else there


def how_to_get_access(path: Path) -> str:
    """Return what to do about a file or directory that this account can't read, or a file that it can't write."""
    place = next(one for one in (path, *path.parents) if is_there(one))
    return permission(place, "w" if os.access(place, os.X_OK if place != path else os.R_OK) else "rX")


def not_creatable(path: Path, place: Path) -> str:
    """Return the message about a file that this account can't create in a directory, and what to do."""
    missing = "w" if os.access(place, os.X_OK) else "rwX"
    return f"{path} can't be created in {place}: choose another place, or {permission(place, missing)}"


def permission(place: Path, missing: str) -> str:
    """Return how to get permissions that are missing, in the words of chmod."""
    number = place.stat().st_uid
    if number != os.getuid():
        return f"ask {owner(number)}, who owns {place}, for permission"
    return f"run `chmod u+{missing} {shlex.quote(str(place))}`"


def owner(number: int) -> str:
    """Return the name of an account, or its number if it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"account {number}"


def message_of(error: Exception) -> str:
    """Return the message of an error: for a file its path, what is wrong, and who can give permission."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        # each file that could not be copied; one says enough
        return plain_error(str(error.args[0][0][-1]))
    if isinstance(error, FileNotFoundError) and not error.filename:
        return "the current directory was removed: change to another one"
    if not isinstance(error, OSError) or not isinstance(error.filename, str) or error.filename2 or not error.strerror:
        return plain_error(str(error))
    path = Path(error.filename)
    is_closed = isinstance(error, PermissionError) and not os.access(path, os.R_OK | os.W_OK)
    if isinstance(error, FileNotFoundError):
        return f"{path} does not exist"
    place = next((one for one in path.absolute().parents if is_there(one)), path)
    if is_closed and not os.path.lexists(path) and os.access(place, os.X_OK):
        return not_creatable(path, place)
    remedy = f": {how_to_get_access(path)}" if is_closed else ""
    return f"{path}: {ERRORS.get(error.errno or 0, error.strerror)}{remedy}"
