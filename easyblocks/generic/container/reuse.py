##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Start an installation from the user software of an earlier one, so that only what is new has to be installed.

`ebsif extend` names the earlier installation when it changes an extension. It is used only if the result has the same
files as an installation from scratch; otherwise everything is installed again, in the same versions.
"""
import os

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.lint import package_name
from easybuild.easyblocks.generic.container.scripts import ebsif_version
from easybuild.easyblocks.generic.container.sharedimage import InstalledImage
from easybuild.easyblocks.generic.container.texts import normal_name
from easybuild.easyblocks.generic.container.usersoftware import SQUASHFS, UserSoftware

# Names the directory of the earlier installation.
REUSE_VARIABLE = 'EBSIF_REUSE'


class Reuse:
    """
    User software of an earlier installation, for a new one with other stages.

    Attributes
    ----------
    stages : list of Stage
        The stages of the new installation.
    pins : dict of str
        The versions that packages of the new installation must have, by name.
    """

    def __init__(self, root, stages, pins):
        """
        Read the record of the earlier installation.

        Parameters
        ----------
        root : str
            Its directory; empty if there is none.
        stages, pins
            See the attributes.
        """
        self.installed = InstalledImage(root)
        self.record = self.installed.record
        self.stages = stages
        self.pins = {normal_name(name): version for name, version in pins.items()}

    @property
    def squashfs(self):
        """Path of the SquashFS file with the user software (str)."""
        return os.path.join(self.installed.root, SQUASHFS)

    @property
    def artifacts(self):
        """Files that pip has installed (dict), see lockfile."""
        return dict(self.record.get(lockfile.ARTIFACTS, {}))

    @property
    def missing(self):
        """The stages that the earlier installation doesn't have, or not with these requirements (list of Stage)."""
        return [stage for stage in self.stages if stage.record not in self.record[lockfile.STAGES]]

    def is_possible(self, image, venv_name):
        """
        Return whether the new installation can start from the earlier one.

        It can if the image, the path of the venv and the version of ebsif are the same, nobody has changed user
        software by hand, all packages keep their versions, and the stages only have additional packages.

        Parameters
        ----------
        image : str
            Path of the image of the new installation.
        venv_name : str
        """
        record = self.record
        return (self.installed.uses(image) and self.installed.is_unchanged
                and record.get(lockfile.VENV_NAME) == venv_name
                and record.get(lockfile.VERSIONS, {}).get('ebsif') == ebsif_version()
                and not record.get(lockfile.LOCAL_FILES)
                and self.keeps_versions() and self.has_same_stages()
                and list(UserSoftware(self.installed.root).installed) == [SQUASHFS]
                and not UserSoftware(self.installed.root).changed)

    def keeps_versions(self):
        """Return whether every package of the earlier installation, except for pip, must have the same version."""
        packages = dict(line.split('==', 1) for line in self.record.get(lockfile.VENV_PACKAGES, []))
        return all(self.pins.get(normal_name(name)) == version for name, version in packages.items() if name != 'pip')

    def has_same_stages(self):
        """
        Return whether the stages are those of the earlier installation, perhaps with more requirements or more stages.

        pip marks packages that are asked for, so requirements for packages that were dependencies are not the same.
        """
        before = self.record.get(lockfile.STAGES, [])
        present = {normal_name(line.split('==', 1)[0]) for line in self.record.get(lockfile.VENV_PACKAGES, [])}
        pairs = list(zip(before, self.stages))
        new = [line for stage in self.stages[len(before):] for line in stage.requirement_list]
        for one, stage in pairs:
            new += added_lines(one, stage) or []
        return (len(pairs) == len(before) and not any(stage.allow_replace for stage in self.stages)
                and all(added_lines(*pair) is not None for pair in pairs)
                and not present.intersection(package_name(line) for line in new))


def added_lines(before, stage):
    """
    Return the requirement lines that a stage has in addition to one of an earlier installation.

    Parameters
    ----------
    before : dict
        The recorded stage.
    stage : Stage

    Returns
    -------
    list of str or None
        None if anything else is different, so that the result of the earlier one can't be used.
    """
    if stage.record == before:
        return []
    lines, asked = before.get('requirements', '').splitlines(), stage.requirements.splitlines()
    same_name = before['name'] == stage.name and set(before) | set(stage.record) == {'name', 'requirements'}
    if not same_name or asked[:len(lines)] != lines or '--hash' in stage.requirements:
        return None
    return [line for line in stage.requirement_list if line not in lines]
