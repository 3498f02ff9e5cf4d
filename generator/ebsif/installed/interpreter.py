"""The Python interpreter of an installation that needs no loaded module, and files that start it."""

import os
import re
import shlex
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container import newest
from easybuild.easyblocks.generic.container.kernel import INTERPRETER
from easybuild.easyblocks.generic.container.record.lockfile import RECORD
from easybuild.easyblocks.generic.container.values import USER_SOFTWARE_VARIABLE, VENV_VARIABLE

from ebsif import files
from ebsif.errors import EbsifError
from ebsif.files import is_there
from ebsif.installed.places import Installation

# The last part of the first comment in a file that this writes; share/ebsif/common.bash reads it, too.
WRITTEN = "written by `ebsif interpreter`."


def of(installation: Installation) -> Path:
    """Return the interpreter of an installation; raise EbsifError if it has none."""
    path = Path(os.path.abspath(installation.root / INTERPRETER))
    if is_there(path):
        return path
    # all easyblocks with Python install make-venv
    has_python = is_there(installation.root / "bin/make-venv")
    reason = (
        f"was installed by an earlier version of ebsif: install it again with `{installation.rebuild}`"
        if has_python
        else "was installed without Python (init = 'none')"
    )
    raise EbsifError(f"{installation.module} has no interpreter: it {reason}")


def environment_on(installation: Installation) -> Optional[str]:
    """Return the active environment of `make-venv`, if the module is loaded; None if there is none."""
    active = os.environ.get("VIRTUAL_ENV")
    return active if active and installation.is_loaded and is_there(Path(active, "host-bin")) else None


def without_date(root: Path) -> Path:
    """Return the directory of an extension without its date."""
    return Path(os.path.abspath(root).rpartition("-")[0])


def extensions(undated: Path) -> list[Path]:
    """Return the installations of an extension by their path without the date, the newest one last."""
    start = f"{undated.name}-"
    found = {
        path.name.removeprefix(start): path
        for path in undated.parent.glob("*")
        if path.name.startswith(start) and is_there(path / RECORD)
    }
    return [found[date] for date in sorted(filter(re.compile(newest.DATE).fullmatch, found), key=newest.date_key)]


def starting(installation: Installation, newest: Optional[str] = None) -> str:
    """
    Return the text of a file that starts the interpreter as it is used here; raise EbsifError if there is none.

    `newest` is the name of an extension without its date, if the file should always start the newest one.
    """
    interpreter = of(installation)
    own = os.environ.get(USER_SOFTWARE_VARIABLE)
    variables = {USER_SOFTWARE_VARIABLE: own and os.path.abspath(own), VENV_VARIABLE: environment_on(installation)}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items() if value]
    start = (
        starting_newest(without_date(installation.root)) if newest else f'exec {shlex.quote(str(interpreter))} "$@"\n'
    )
    return script(newest or installation.module, "".join(lines) + start)


def starting_newest(undated: Path) -> str:
    """Return the commands that start the interpreter of the newest extension of a name; see `extensions` (V-07)."""
    return (
        newest.find_newest(shlex.quote(str(undated)), RECORD)
        + f'exec "${{ebsif_newest:?the module was removed}}/{INTERPRETER}" "$@"\n'
    )


def script(module: str, commands: str) -> str:
    """Return the text of a file with commands that start the interpreter of a module."""
    return f"#!/bin/bash -p\n# Python of {module}; {WRITTEN}\n{commands}"


def write(path: Path, text: str, overwrite: bool = False) -> None:
    """Write a file that starts an interpreter; raise EbsifError if another one isn't to be overwritten (C-04)."""
    if overwrite and path.is_symlink():
        # it may lead into an installation
        path.unlink()
    files.write_new({path: text}, overwrite)
    files.make_executable(path)
