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

from easybuild.tools.build_log import print_msg

from .image.identity import OpenImage
from .image.installed import InstalledImage
from .record.lockfile import LAYER
from .masks import Masks
from .packages import Packages
from .pip import PIP_CACHE, STAGES, Pip
from .probe import ImageProbe
from .reinstall import remove_replaced
from .runtime import FOLDERS, Container
from .system.packages import SystemPackages
from .usersoftware import DIRECTORY
from .venv import Venv


class Build:
    """The parts of an installation of an image; each is made by a step, before those that need it."""

    # None with --skip and --module-only
    image_file: Optional[OpenImage] = None
    # the installation that `ebsif extend` changes; its record is read once
    changed: Optional[InstalledImage] = None
    masks: Masks
    system: SystemPackages
    container: Container
    probe: ImageProbe
    # programs that 'all' in 'wrappers' stands for, once they were looked for
    programs: Optional[List[str]] = None


class VenvBuild(Build):
    """The parts of an installation with user software."""

    venv: Venv
    pip: Pip
    packages: Packages
    # the SquashFS file of the installation to repeat
    squashfs: Optional[str] = None

    def __init__(self) -> None:
        """Begin without packages."""
        # versions of the packages of an earlier installation that were taken as they are, by normalized name
        self.kept_packages: Dict[str, str] = {}
        # programs of the packages that were asked for
        self.asked_programs: List[str] = []


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
