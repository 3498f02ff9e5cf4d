"""An overview of a user's installed container modules."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from easybuild.easyblocks.generic.container import lockfile

from ebsif.catalogue import selection
from ebsif.catalogue.container import Container
from ebsif.installed import imagestate, lock, places, usage
from ebsif.installed.names import catalogue_name
from ebsif.installed.places import shown
from ebsif.report.steps import working


@dataclass(frozen=True)
class Row:
    """
    An installed module.

    Its name, the module it extends, size in bytes (an image that several share counts for the oldest), date, state,
    directory, and the command that loads it.
    """

    module: str
    base: Optional[str]
    size: int
    date: str
    state: list[str]
    root: str
    load: str


def mine(containers: Sequence[Container], names: Sequence[str] = ()) -> list[Row]:
    """Return the container modules of this account, newest first; if parts of names are given, only matching ones."""
    oldest_first = sorted((one for one in places.everything() if one.root.stat().st_uid == os.getuid()),
                          key=lambda one: (one.root / lockfile.RECORD).stat().st_mtime)
    catalogue = {container.module_or_version: container for container in containers}
    with working("adding up sizes"):
        # what several share counts for the oldest
        sizes = usage.sizes_for(os.getuid(), [one.root for one in oldest_first])
    rows = [Row(shown(one), one.base, size, one.date.isoformat(), state_of(one, catalogue), str(one.root), one.load)
            for one, size in zip(oldest_first, sizes)
            if not names or any(selection.matching(name, [(one.module, one)]) for name in names)]
    return rows[::-1]


def state_of(installation: places.Installation, catalogue: dict[str, Container]) -> list[str]:
    """Return noteworthy facts about an installation, each in a few words."""
    state = ["loaded"] if installation.is_loaded else []
    if not installation.file:
        state.append("no module file")
    try:
        if not imagestate.path_of(installation):
            state.append("image gone")
    except lock.LockError:
        state.append("record damaged")
    container = catalogue.get(catalogue_name(installation))
    if container and container.archived:
        instead = getattr(container.archived, "replacement", None)
        what = "base archived" if installation.base else "archived"
        state.append(what + (f" (use {instead})" if instead else ""))
    return state
