"""Fill directories again and again, and replace only what is as it was written; a list of digests tells."""

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ebsif import files
from ebsif.errors import EbsifError


@contextlib.contextmanager
def filled(directory: Path, command: str, overwrite: bool) -> Iterator[Path]:
    """
    Let a command (``docs``) fill a directory: yield an empty one, whose files then replace those of the last time.

    Other files stay. A list of the files with their digests, which `sha256sum -c` reads, tells which are as they were
    written. Raise EbsifError if one would be replaced or removed that the command has not written, or that was
    changed since, unless `overwrite` is true.
    """
    with files.followed(directory, shared=True) as place:
        directory = Path(os.path.realpath(place))
    listed = directory / f".ebsif-{command}"
    if directory.exists() and not directory.is_dir():
        raise EbsifError(f"{directory} is not a directory")
    if not overwrite and directory.is_dir() and any(directory.iterdir()) and not listed.is_file():
        raise EbsifError(
            f"{directory} contains files that `ebsif {command}` has not written: choose another "
            "directory, or write into this one with --overwrite"
        )
    files.make_directory(directory.parent)
    try:
        work = tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent)
    except OSError as error:
        # nobody knows its name
        error.filename = str(directory.parent if directory.exists() else directory)
        raise
    with work as name:
        made = Path(name) / directory.name
        made.mkdir()
        yield made
        old, new = read_digests(listed), digests(made)
        changed = [name for name in {**old, **new} if is_changed(directory, name, old, new)]
        if changed and not overwrite:
            raise EbsifError(
                f"{directory} has files that `ebsif {command}` has not written, or that were changed "
                f"since ({', '.join(changed)}): choose another directory, or replace them with "
                "--overwrite"
            )
        (made / listed.name).write_text(list_of(new), encoding="utf-8")
        move_files(made, directory)
        for name in old.keys() - new:
            remove_file(directory / name)


def is_changed(directory: Path, name: str, *written: Mapping[str, str]) -> bool:
    """Return whether a directory has a file by a name, but with none of the digests that lists have for it."""
    path = directory / name
    return path.is_file() and digest(path) not in (digests.get(name) for digests in written)


def digest(path: Path) -> str:
    """Return the SHA256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digests(directory: Path) -> dict[str, str]:
    """Return the digests of all files in a directory, by relative path."""
    return {str(path.relative_to(directory)): digest(path) for path in sorted(directory.rglob("*")) if path.is_file()}


def list_of(digests: Mapping[str, str]) -> str:
    """Return a list of files with their digests, which `read_digests` and `sha256sum -c` read."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def read_digests(listed: Path) -> dict[str, str]:
    """Return the digests in a list of files, by path relative to its directory; none if it doesn't exist."""
    lines = listed.read_text(encoding="utf-8", errors="replace").splitlines() if listed.is_file() else []
    listed_digests = {name: number for number, _, name in (line.partition("  ") for line in lines)}
    return {
        name: listed_digests[name]
        for name in listed_digests
        if Path(name).parts and not {"..", "/"} & set(Path(name).parts)
    }


def move_files(source: Path, target: Path) -> None:
    """Move files into a directory, for everybody who can use it; links there stay, and lead to the new content."""
    files.make_directory(target)
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            files.make_directory(place)
            continue
        executable = path.stat().st_mode & stat.S_IXUSR
        files.replace(place, path.read_bytes(), shared=True)
        if executable:
            files.make_executable(place)


def remove_file(path: Path) -> None:
    """Remove a file, and directories that are empty then."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for folder in path.parents:
            folder.rmdir()
