"""The Python interpreter of an installation that needs no loaded module, and files that start it."""

import hashlib
import os
import re
import shlex
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container import newest
from easybuild.easyblocks.generic.container.install import INTERPRETER
from easybuild.easyblocks.generic.container.record.lockfile import RECORD

from ebsif import files
from ebsif.errors import EbsifError
from ebsif.files import is_there
from ebsif.installed.places import Installation

# The last part of the first comment in a file that this writes, and how 0.3 called the command. share/ebsif/common.bash
# reads it, too.
WRITTEN = ("written by `ebsif interpreter`.", "written by `ebsif python`.")
# the line after that, with the SHA256 of those below
SEAL = "# to see whether it was edited: "

LARGEST = 100_000  # characters; any larger file is none of ours


class InterpreterError(EbsifError):
    """There is no interpreter, or a file that starts it can't be written; the message says why and what to do."""


def of(installation: Installation) -> Path:
    """Return the interpreter of an installation; raise InterpreterError if it has none."""
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
    raise InterpreterError(f"{installation.module} has no interpreter: it {reason}")


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


def write(installation: Installation, path: Path, newest: Optional[str] = None) -> None:
    """
    Write a file that starts the interpreter as it is used here; raise InterpreterError if there is another file.

    `newest` is the name of an extension without its date, if the file should always start the newest one.
    """
    interpreter = of(installation)
    if is_there(path):
        require_replaceable(path)
    if path.is_symlink():
        # otherwise its target would be replaced
        path.unlink()
    own = os.environ.get("EBSIF_USER_SOFTWARE")
    variables = {"EBSIF_USER_SOFTWARE": own and os.path.abspath(own), "EBSIF_VENV": environment_on(installation)}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items() if value]
    start = (
        starting_newest(without_date(installation.root)) if newest else f'exec {shlex.quote(str(interpreter))} "$@"\n'
    )
    write_commands(path, newest or installation.module, "".join(lines) + start)


def starting_newest(undated: Path) -> str:
    """Return the commands that start the interpreter of the newest extension of a name; see `extensions` (V-07)."""
    return (
        newest.find_newest(shlex.quote(str(undated)), RECORD)
        + f'exec "${{ebsif_newest:?the module was removed}}/{INTERPRETER}" "$@"\n'
    )


def write_commands(path: Path, module: str, text: str) -> None:
    """Write a file with commands that start the interpreter of a module."""
    files.replace(path, f"#!/bin/bash -p\n# Python of {module}; {WRITTEN[0]}\n{SEAL}{digest(text)}\n{text}")
    files.make_executable(path)


def require_replaceable(path: Path) -> None:
    """Raise InterpreterError unless a file is as `write` has written it (C-04)."""
    if path.is_dir():
        raise InterpreterError(f"{path} is a directory: choose a file in it, such as python")
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = file.read(LARGEST).split("\n", 3)
    is_ours = len(lines) == 4 and lines[1].endswith(WRITTEN)
    if not is_ours or lines[2] != f"{SEAL}{digest(lines[3])}":
        what = (
            "was edited since `ebsif interpreter` wrote it"
            if is_ours
            else "exists, and was not created by `ebsif interpreter`"
        )
        raise InterpreterError(f"{path} {what}: choose another name, or remove it")


def digest(text: str) -> str:
    """Return the SHA256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
