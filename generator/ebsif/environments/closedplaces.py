"""Directories in which an installation has to write, and what to do if this account can't."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

# Where EasyBuild installs by default, below the home directory.
DEFAULT = ".local/easybuild"


def closed_part(directory: Path) -> Optional[Path]:
    """Return the part of a path, or all of it, that keeps this account from writing there; None if it can."""
    there = directory.absolute()
    while not os.path.exists(there):  # noqa: PTH110 exists() fails below a closed directory
        there = there.parent
    return None if there.is_dir() and os.access(there, os.W_OK | os.X_OK) else there


def closed_place(directories: Iterable[Path], others: Mapping[str, Path], how: str) -> Optional[str]:
    """
    Return why an installation can't write where it has to, and what to do; None if it can.

    Parameters
    ----------
    directories
        EasyBuild's directories of installations and of modules.
    others
        Other directories by the option of eb that names them.
    how
        What comes before an option of eb.
    """
    for directory in directories:
        if closed := closed_part(directory):
            home = os.environ.get("HOME")
            own = f"$HOME/{DEFAULT}" if home and not closed_part(Path(home, DEFAULT)) else "DIRECTORY"
            return (f"nothing can be installed in {directory}, EasyBuild's directory here, because you can't write to "
                    f"{closed}: choose one of your own (export EASYBUILD_PREFIX={own}, or {how}--prefix=DIRECTORY)")
    for option, directory in others.items():
        if closed := closed_part(directory):
            variable = f"EASYBUILD_{option.upper().replace('-', '_')}"
            return (f"EasyBuild can't write to {directory}, its {option}, because you can't write to {closed}: choose "
                    f"a directory of your own (export {variable}=DIRECTORY, or {how}--{option}=DIRECTORY)")
    return None
