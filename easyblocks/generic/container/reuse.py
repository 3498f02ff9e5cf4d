##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Start an installation from the user software of an earlier one that has the same stages, but fewer requirements.

`ebsif extend` names the earlier installation when it changes an extension. Its SquashFS file is used only if the result
is the same as that of an installation from scratch; otherwise everything is installed again, in the same versions.
"""
import os
from typing import Any, Dict, List, Optional

from . import lockfile
from .install import ebsif_version
from .lockfile import InstalledImage
from .requirements import package_name
from .stages import Stage
from .texts import normal_name
from .usersoftware import SQUASHFS, UserSoftware

# Names the directory of the earlier installation.
REUSE_VARIABLE = 'EBSIF_REUSE'


class Reuse:
    """User software of the earlier installation that the environment names, for a new one with these stages."""

    def __init__(self, stages: List[Stage], pins: Dict[str, str]) -> None:
        """Read the record of the earlier installation; `pins` are the versions that the new one must have, by name."""
        self.installed = InstalledImage(os.environ.get(REUSE_VARIABLE, ''))
        self.record = self.installed.record
        self.squashfs = os.path.join(self.installed.root, SQUASHFS)
        self.artifacts: Dict[str, Any] = self.record.get(lockfile.ARTIFACTS, {})
        self.stages = stages
        self.pins = {normal_name(name): version for name, version in pins.items()}

    @property
    def packages(self) -> Dict[str, str]:
        """Versions of the packages of the earlier installation by normalized name, except for pip."""
        found = dict(line.split('==', 1) for line in self.record.get(lockfile.VENV_PACKAGES, []))
        return {normal_name(name): version for name, version in found.items() if name != 'pip'}

    @property
    def missing(self) -> List[Stage]:
        """The stages that the earlier installation doesn't have, or not with these requirements."""
        return [stage for stage in self.stages if stage.record not in self.record[lockfile.STAGES]]

    def is_possible(self, image: str, venv_name: str) -> bool:
        """Return whether a new installation with this image and this venv can start from the earlier user software."""
        record, user_software = self.record, UserSoftware(self.installed.root)
        return (self.installed.uses(image) and self.installed.is_unchanged
                and record.get(lockfile.VENV_NAME) == venv_name
                and record.get(lockfile.VERSIONS, {}).get('ebsif') == ebsif_version()
                and not record.get(lockfile.LOCAL_FILES)
                and list(user_software.installed) == [SQUASHFS] and not user_software.changed
                and all(self.pins.get(name) == version for name, version in self.packages.items())
                and self.has_same_stages())

    def has_same_stages(self) -> bool:
        """
        Return whether the stages are those of the earlier installation, perhaps with more requirements or more stages.

        pip marks packages that are asked for, so requirements for packages that were dependencies are not the same.
        """
        before = {stage['name']: stage for stage in self.record[lockfile.STAGES]}
        if [stage.name for stage in self.stages if stage.name in before] != list(before) or \
                any(stage.allow_replace for stage in self.stages):
            return False
        for stage in self.stages:
            added = added_lines(before.get(stage.name), stage)
            if added is None or any(package_name(line) in self.packages for line in added):
                return False
        return True


def added_lines(before: Optional[Dict[str, Any]], stage: Stage) -> Optional[List[str]]:
    """Return the lines that a stage has in addition to a recorded one, if any; None if anything else is different."""
    if before is None:
        return stage.requirement_list
    if stage.record == before:
        return []
    lines, asked = before.get('requirements', '').splitlines(), stage.requirements.splitlines()
    is_plain = set(before) | set(stage.record) == {'name', 'requirements'}
    if not is_plain or asked[:len(lines)] != lines or '--hash' in stage.requirements:
        return None
    return [line for line in stage.requirement_list if line not in lines]
