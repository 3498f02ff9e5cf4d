##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What the steps of an installation hand on, and what they leave in the build directory.
"""
import os
from typing import Dict, List, Optional

from easybuild.tools.build_log import EasyBuildError, print_msg

from .framework import RunShellCmdError
from .image.identity import OpenImage
from .image.installed import InstalledImage
from .record.lockfile import LAYER
from .masks import Masks
from .packages import InstalledPackages
from .pip import PIP_CACHE, STAGES, Pip
from .probe import ImageProbe
from .reinstallation import remove_replaced
from .runtime import FOLDERS, InstallContainer
from .system.packages import SystemRequest
from .usersoftware import UserSoftware
from .values import DIRECTORY, SQUASHFS
from .venv import Venv


class Build:
    """The parts of an installation of an image; each is made by a step, before those that need it."""

    # None with --skip and --module-only
    image_file: Optional[OpenImage] = None
    # the installation that `ebsif extend` changes; its record is read once
    changed: Optional[InstalledImage] = None
    # the installation that is extended by a new one
    base: Optional[InstalledImage] = None
    masks: Masks
    system: SystemRequest
    container: InstallContainer
    probe: ImageProbe
    # programs that 'all' in 'wrappers' stands for, once they were looked for
    programs: Optional[List[str]] = None

    def adopt(self, before: UserSoftware, now: UserSoftware) -> bool:
        """Return whether user software of another easyblock's installation was moved to this one: there is none."""
        return False


class VenvBuild(Build):
    """The parts of an installation with user software."""

    venv: Venv
    pip: Pip
    packages: InstalledPackages
    # the SquashFS file of the installation to repeat
    squashfs: Optional[str] = None

    def __init__(self) -> None:
        """Begin without packages."""
        # versions of the packages of an earlier installation that were taken as they are, by normalized name
        self.kept_packages: Dict[str, str] = {}
        # programs of the packages that were asked for
        self.asked_programs: List[str] = []

    def adopt(self, before: UserSoftware, now: UserSoftware) -> bool:
        """
        Move user software of another easyblock's installation to this one if it works here; return whether it does.

        It does if its venv is where the module expects it, with the same Python, and sees all packages that the new one
        sees. A directory gets what we add to a venv; a SquashFS file stays as it is.
        """
        venv = self.venv
        path = next(before.path(name) for name in (SQUASHFS, DIRECTORY) if name in before.present())
        try:
            packages = Venv(venv.container, path, venv.path, venv.environment).packages()
        except (EasyBuildError, RunShellCmdError):
            # another path of the venv, or its Python is not in this image
            return False
        if not packages or packages.purelib != self.packages.purelib or not set(self.packages) <= set(packages):
            return False
        now.take_over(before)
        if DIRECTORY in now.present():
            venv.folder = now.path(DIRECTORY)
            venv.add_hints(packages)
            venv.add_pip()
            venv.add_programs()
        return True


def clean(builddir: str, is_installing: bool, is_check: bool) -> None:
    """
    Remove the user software in the build directory, and what programs in the container have left there.

    What pip has printed stays, and so does user software that is complete, but wasn't packed (S002-50).
    """
    user_software = os.path.join(builddir, DIRECTORY)
    names = [PIP_CACHE, LAYER, *FOLDERS]
    if os.path.isdir(user_software) and is_installing:
        print_msg("user software is complete, but not installed; it stays in %s until you remove it or install again",
                  user_software)
    elif os.path.isdir(user_software):
        names.append(DIRECTORY)
        # nothing stays of a check
        if not is_check:
            print_msg("the user software of this attempt is removed; what pip has printed is in %s",
                      os.path.join(builddir, STAGES))
    for name in names:
        remove_replaced(os.path.join(builddir, name))
