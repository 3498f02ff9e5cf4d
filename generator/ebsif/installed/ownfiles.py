"""What a person has put into an installation besides packages, which no extension takes along: data, scripts, edits."""

import contextlib
import csv
import datetime
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from easybuild.easyblocks.generic.container.usersoftware import FILE_TIME, UserSoftware
from easybuild.easyblocks.generic.container.values import SQUASHFS, USER_SOFTWARE

from ebsif.installed import current
from ebsif.installed.places import Installation, shown
from ebsif.packages import venv
from ebsif.packages.wanted import RequirementsError
from ebsif.report import output

# a file or link in the list of unsquashfs
LISTED = re.compile(r"[-l]\S+ \S+ +\d+ (?P<time>\S+ \S+) squashfs-root/(?P<path>.*?)(?: -> .*)?")
MOST = 8  # that are named


def report_left_behind(installation: Installation) -> None:
    """Name what a new extension doesn't take along of an installation."""
    found = of(installation)
    if found:
        more = f" and {len(found) - MOST} more" if found[MOST:] else ""
        output.note(
            f"{shown(installation)} has files that were added or changed by hand, which are not taken along: "
            f"{', '.join(found[:MOST])}{more}"
        )


def of(installation: Installation) -> list[str]:
    """
    Return what was added or changed by hand: paths in the container, and of scripts below the installation.

    Whatever an installation writes has the time FILE_TIME, and pip lists the files of each package that it adds. A
    directory is named instead of all files in it.
    """
    files, place = UserSoftware(str(installation.root)), current.user_software(installation)
    found = (
        [name for name in files.own_files() if not name.endswith(".pyc")] if installation.record.has("scripts") else []
    )
    is_as_installed = place and place == installation.root / SQUASHFS and files.is_file_as_recorded()
    if place and installation.record.has_user_software and not is_as_installed:
        # what reads the packages says why
        with contextlib.suppress(RequirementsError):
            found += [f"{USER_SOFTWARE}/{path}" for path in added_to(place)]
    return found


def added_to(place: Path) -> list[str]:
    """Return what was added to or changed in a directory or SquashFS file; raise RequirementsError if it is neither."""
    with venv.opened(place) as folder:
        times = {path: time for path, time in listed(place) if not path.endswith(".pyc")}
        installed_by_pip = times_of_packages(folder, venv.site_packages(folder, place), times)
    return joined({path for path, time in times.items() if is_by_hand(path, time, installed_by_pip)}, times)


def listed(place: Path) -> Iterator[tuple[str, str]]:
    """Yield the files and links in a directory or SquashFS file, with their times."""
    if place.is_dir():
        for folder, folders, names in os.walk(place):
            for path in (Path(folder, name) for name in folders + names):
                if path.is_symlink() or not path.is_dir():
                    yield str(path.relative_to(place)), time_of(path.lstat().st_mtime)
        return
    done = subprocess.run(
        [str(shutil.which("unsquashfs")), "-lln", place],
        env={**os.environ, "TZ": "UTC"},
        text=True,
        errors="replace",
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    for match in filter(None, map(LISTED.fullmatch, done.stdout.splitlines())):
        yield match.group("path"), match.group("time")


def time_of(seconds: float) -> str:
    """Return a time as unsquashfs writes it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")


def times_of_packages(folder: Path, packages: Path, times: dict[str, str]) -> dict[str, str]:
    """Return the files of the packages in a folder, each with the time at which its package was installed."""
    found = {}
    for info in venv.metadata_in(packages):
        record = info / "RECORD"
        # files that a damaged list doesn't name count as added by hand
        with contextlib.suppress(csv.Error):
            for row in csv.reader(venv.text_of(record).splitlines()):
                path = os.path.normpath(packages.relative_to(folder) / row[0]) if row else ""
                found[path] = times.get(str(record.relative_to(folder)), "")
    return found


def is_by_hand(path: str, time: str, installed_by_pip: dict[str, str]) -> bool:
    """Return whether a file comes neither from the installation nor from pip, or was changed later."""
    if time == time_of(FILE_TIME):
        return False
    if path in installed_by_pip:
        return time > installed_by_pip[path]
    return not any(part.endswith(venv.METADATA) for part in PurePosixPath(path).parts)


def joined(paths: Collection[str], everything: Iterable[str]) -> list[str]:
    """Return paths, with a directory in place of its files if nothing else is in it."""
    mixed = {str(parent) for path in everything if path not in paths for parent in PurePosixPath(path).parents} | {"."}
    return list(
        dict.fromkeys(
            next((str(parent) for parent in reversed(PurePosixPath(path).parents) if str(parent) not in mixed), path)
            for path in sorted(paths)
        )
    )
