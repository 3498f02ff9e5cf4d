"""Let eb install an easyconfig, and say what was installed, or that it is there already."""

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Optional

from ebsif import files
from ebsif.eb import running
from ebsif.eb.framework import ModulePlace
from ebsif.environments import plan
from ebsif.environments.extension import ExtendingError
from ebsif.environments.request import Request
from ebsif.installed import places
from ebsif.installed.names import shown
from ebsif.installed.places import Installation
from ebsif.report import output
from ebsif.report.steps import format_time

# Options of eb to install in other places.
ELSEWHERE = ("--prefix", "--installpath", "--configfiles")
# EasyBuild's message if another eb installs the same module, or if its lock stayed.
LOCKED = re.compile(r"Lock (.*) already exists, aborting!")


class InUseError(ExtendingError):
    """Another eb installs the module, perhaps from the files that this attempt has written."""


def install(
    place: ModulePlace,
    request: Request,
    sources: str,
    variables: Optional[Mapping[str, str]] = None,
    otherwise: str = ", or choose another --name or --date",
    explained: Callable[[str], str] = plan.as_typed,
) -> None:
    """
    Install an easyconfig as it was requested, and say how to load the module.

    `sources` is eb's option for the directories that may have the image, `variables` are more of them for eb.
    `explained` puts eb's error in the words of the command.
    """
    path = place.easyconfig
    if place.file.exists() and not request.again and not place.is_current:
        raise ExtendingError(
            f"{place.module} is installed already, from a different version of {path}: use --rebuild to install it "
            f"again{otherwise}"
        )
    start, is_new = time.monotonic(), not files.is_there(place.installation)
    options = [*(["--rebuild"] if request.rebuild else []), *request.more, sources]
    try:
        done = running.install([path.resolve(), *options], **(variables or {}))
    except KeyboardInterrupt:
        print(f"ebsif: interrupted; the easyconfig is {path}", file=sys.stderr)
        raise
    if done.status:
        if not done.is_explained:
            done.print_program()
        lock = LOCKED.fullmatch(done.reason)
        raise (
            InUseError(places.locked(place.module, Path(lock[1]))) if lock else ExtendingError(explained(done.message))
        )
    there = made_in(place)
    if place.file.exists():
        word = places.word(there)
        if not done.skipped:
            name = shown(there) if word == shown(there) else f"{word} ({shown(there)})"
            say = output.note if done.warned else output.done
            say(f"installed {name} in {format_time(time.monotonic() - start)}{plan.SEE_WARNING if done.warned else ''}")
        if done.imported:
            # imports say nothing about what packages do
            own = (
                ""
                if "'verify':" in path.read_text(encoding="utf-8")
                else "; to add a test of your own: --verify COMMAND"
            )
            output.hint(f"tested: import of {output.format_count(done.imported, 'package')}{own}")
        is_elsewhere = any(option.startswith(ELSEWHERE) for option in request.more)
        if is_new and not done.skipped and not is_elsewhere and places.is_found(there):
            output.hint(f"undo: ebsif remove {word}")
        output.hint(f"load it with: {there.load}")
    if request.json:
        print_result(there, is_new=True)


def made_in(place: ModulePlace) -> Installation:
    """Return the installation of a module whose place is known."""
    return Installation(place.installation, place.module, place.file, place.use)


def print_result(installation: Installation, is_new: bool) -> None:
    """Print an installation as JSON, in one line."""
    print(
        json.dumps(
            {
                "module": shown(installation),
                "name": places.word(installation),
                "load": installation.load,
                "root": str(installation.root),
                "new": is_new,
            }
        )
    )


def nothing_to_do(installation: Installation, state: str = "has these packages already", as_json: bool = False) -> int:
    """Say that a module is installed already, and how to load it; return the exit status."""
    if as_json:
        print_result(installation, is_new=False)
    output.done(f"{places.word(installation)} {state}: nothing to do (--rebuild installs it again)")
    output.hint(f"load it with: {installation.load}")
    return 0
