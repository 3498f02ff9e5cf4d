"""The data of a job: paths that must be there, and where the ranks find them in the container."""

import os
import re
from dataclasses import dataclass
from typing import Optional

from easybuild.easyblocks.generic.container.texts import MOUNT_SQUASHFS, bind_problem, escape_bind

from ebsif.errors import UsageError

# Suffixes of SquashFS files, whose content is mounted; all other files are mounted themselves.
SQUASHFS = (".squashfs", ".sqsh", ".sqfs", ".squash")


@dataclass(frozen=True)
class Data:
    """A file or directory that a job needs, and its path in the container (None: it only has to be there)."""

    source: str
    target: Optional[str] = None

    @property
    def bind(self) -> Optional[str]:
        """The bind for the container runtime, or None."""
        if not self.target:
            return None
        return f"{escape_bind(self.source)}:{self.target}" + (MOUNT_SQUASHFS if self.source.endswith(SQUASHFS) else "")

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return f"{self.source}:{self.target}" if self.target else self.source


def parse(text: str) -> Data:
    """Return the data that PATH or PATH:/TARGET names; raise UsageError if no container can have the target."""
    parts = re.fullmatch(r"(.+):(/[^:]*)", text, re.DOTALL)
    if not parts or os.path.exists(text):  # noqa: PTH110 may be in a directory that can't be searched
        return Data(text)
    # the job may start elsewhere
    source, target = os.path.abspath(parts[1]), os.path.normpath(parts[2])  # noqa: PTH100 links stay
    if target == "/" or not target.isprintable() or bind_problem(target, templates=False):
        raise UsageError(f"--data {text}: {parts[2]} can't be a directory in the container: write FILE:/data")
    try:
        escape_bind(source)
    except ValueError as error:
        raise UsageError(f"--data {text}: {error}") from None
    return Data(source, target)
