"""What a command asks for: what is to be done with a module, and whether that can be written where it has to be."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ebsif import files
from ebsif.eb import framework
from ebsif.environments.extension import ExtendingError
from ebsif.installed.names import Names
from ebsif.modulestool import DEFAULT_PREFIX

# Options of eb to install a module again.
FORCING = frozenset(("--rebuild", "--force", "-f"))


@dataclass(frozen=True)
class Request:
    """
    What is to be done with a module: the options of a command, which was typed with `words`.

    `repeated` is a command of `ebsif extend` that asks for the same, to which remedies add options; empty if there is
    none. `names` are those that are taken. `output` is the directory for the easyconfig, by default that of this
    account. The module is installed, unless the request `writes` only its easyconfig, is a `dry_run` that prints it, or
    a `check`, which takes an `image` if eb doesn't find it. `yes`: nobody is asked. `json`: the result is for
    programs. `more` are options of eb.
    """

    command: str
    words: Sequence[str] = ()
    repeated: Sequence[str] = ()
    date: Optional[str] = None
    output: Optional[Path] = None
    image: Optional[Path] = None
    dry_run: bool = False
    check: bool = False
    writes: bool = False
    rebuild: bool = False
    yes: bool = False
    json: bool = False
    names: Names = field(default_factory=Names)
    more: Sequence[str] = ()

    @property
    def installs(self) -> bool:
        """Whether the module is installed."""
        return not (self.dry_run or self.check or self.writes)

    @property
    def fills_stdout(self) -> bool:
        """Whether standard output is an easyconfig or JSON, so that nothing else is printed there."""
        return self.dry_run or self.json

    @property
    def folder(self) -> Path:
        """The directory for the easyconfig."""
        return self.output or own_folder()

    @property
    def again(self) -> bool:
        """Whether a module is to be installed again if it is there."""
        return self.rebuild or not FORCING.isdisjoint(self.more)

    def command_with(self, option: str) -> str:
        """Return the command with one more option, before those of eb."""
        return command_with(self.words, option)


def own_folder() -> Path:
    """Return the directory with the easyconfigs that this account installs, below its data directory."""
    return files.data_folder() / "easyconfigs"


def install_command(arguments: Sequence[str], again: bool = False) -> str:
    """Return the command that installs what one with --check has checked, perhaps in place of a module."""
    words = [word for word in arguments if word != "--check"]
    return command_with(words, *(["--rebuild"] if again else []))


def command_with(arguments: Sequence[str], *options: str) -> str:
    """Return a command of ebsif with more options, before those of eb."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return shlex.join(["ebsif", *arguments[:end], *options, *arguments[end:]])


# --- directories in which an installation has to write


def require_places(request: Request) -> None:
    """Raise ExtendingError if a request installs, and can't write where it has to."""
    wrong = closed_place(request) if request.installs else None
    if wrong:
        raise ExtendingError(wrong)


def closed_place(request: Request) -> Optional[str]:
    """Return why an installation can't write where it has to, and what to do; None if it can."""
    folder = request.folder
    if closed := files.closed_part(folder):
        return (
            f"the easyconfig can't be written to {folder.resolve()}, because you can't write to {closed}: choose a "
            "directory of your own (-o DIRECTORY)"
        )
    for directory in framework.prefix():
        if closed := files.closed_part(directory):
            home = os.environ.get("HOME")
            own = (
                f"$HOME/{DEFAULT_PREFIX}" if home and not files.closed_part(Path(home, DEFAULT_PREFIX)) else "DIRECTORY"
            )
            return (
                f"nothing can be installed in {directory}, EasyBuild's directory here, because you can't write to "
                f"{closed}: choose one of your own (export EASYBUILD_PREFIX={own}, or at the end of the command: "
                "-- --prefix=DIRECTORY)"
            )
    return None
