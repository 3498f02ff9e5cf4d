"""Which installations share an image, and where the images of installations are."""

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.lockfile import InstalledImage

from ebsif import files
from ebsif.eb import framework
from ebsif.installed import places
from ebsif.installed.places import Installation


@dataclass(frozen=True)
class User:
    """An installation that uses the image of another one: its module and its directory."""

    module: str
    root: Path

    @property
    def owner(self) -> str:
        """The account that owns the installation."""
        return files.owner(self.root.stat().st_uid)

    def __str__(self) -> str:
        """Return module and owner, if that is somebody else."""
        return self.module if self.root.stat().st_uid == os.getuid() else f"{self.module} (of {self.owner})"


def images_of(name: str, file: str) -> list[Path]:
    """
    Return the images of the installations of a software, in EasyBuild's directory and of modules on MODULEPATH.

    Those without a record are found by the file name of the image.
    """
    software = framework.prefix()[0] / name
    roots = [record.parents[2] for record in sorted(software.glob(f"*/{lockfile.RECORD}"))]
    roots += [root for directory in places.directories_of_modules() for path in sorted(directory.glob(f"{name}/*"))
              for root in [places.root_in(path)] if root]
    return [*(Path(path) for root in roots for path in [InstalledImage(str(root)).path] if path),
            *sorted(software.glob(f"*/{glob.escape(file)}"))]


def users_of(image: Path, installations: Optional[Iterable[Installation]] = None) -> list[User]:
    """
    Return the installations that use an image, given by its path or the directory of the module that has it.

    By default those below EasyBuild's prefix and of modules on MODULEPATH are looked at; others' may be elsewhere.
    """
    own = image if image.is_dir() else image.parent
    path = InstalledImage(str(own)).own_path if image.is_dir() else str(image)
    users = []
    for one in places.everything() if installations is None else installations:
        if os.path.realpath(one.root) != os.path.realpath(own) and InstalledImage(str(one.root)).needs(path):
            users.append(User(one.module, one.root))
    return sorted(users, key=lambda user: user.module)
