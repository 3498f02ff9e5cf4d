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

If there are only additional requirements, all of its user software is taken. Otherwise, the files of packages that stay
as they are, by pip's records of them, are copied into a new venv, and pip installs the others.
"""
import ast
import base64
import csv
import glob
import hashlib
import os
import re

from easybuild.tools.filetools import mkdir

from . import lockfile
from .requirements import package_name
from .runtime import run_program
from .scripts import ebsif_version, read_program
from .lockfile import InstalledImage
from .stages import Stage
from .texts import normal_name
from .usersoftware import SQUASHFS, UserSoftware, pin_in

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

    @property
    def packages(self):
        """Versions of the packages of the earlier installation by normalized name, except for pip (dict of str)."""
        found = dict(line.split('==', 1) for line in self.record.get(lockfile.VENV_PACKAGES, []))
        return {normal_name(name): version for name, version in found.items() if name != 'pip'}

    @property
    def is_possible(self):
        """
        Whether a new installation that `is_similar` can start from all of the earlier one's user software.

        It can if all packages keep their versions, and the stages only have additional packages.
        """
        return self.keeps_versions() and self.has_same_stages()

    def is_similar(self, image, venv_name):
        """
        Return whether packages of the earlier installation would have the same files in the new one.

        They would if the image, the path of the venv and the version of ebsif are the same, and nobody has changed user
        software by hand.

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
                and list(UserSoftware(self.installed.root).installed) == [SQUASHFS]
                and not UserSoftware(self.installed.root).changed)

    def keeps_versions(self):
        """Return whether every package of the earlier installation, except for pip, must have the same version."""
        return all(self.pins.get(name) == version for name, version in self.packages.items())

    def has_same_stages(self):
        """
        Return whether the stages are those of the earlier installation, perhaps with more requirements or more stages.

        pip marks packages that are asked for, so requirements for packages that were dependencies are not the same.
        """
        before = self.record.get(lockfile.STAGES, [])
        pairs = list(zip(before, self.stages))
        new = [line for stage in self.stages[len(before):] for line in stage.requirement_list]
        for one, stage in pairs:
            new += added_lines(one, stage) or []
        return (len(pairs) == len(before) and not any(stage.allow_replace for stage in self.stages)
                and all(added_lines(*pair) is not None for pair in pairs)
                and not any(package_name(line) in self.packages for line in new))

    def keep(self, venv, packages, folder):
        """
        Put the packages that stay as they are into a new venv.

        Parameters
        ----------
        venv : Venv
            The new venv.
        packages : Packages
            What its Python sees.
        folder : str
            A directory that doesn't exist yet, for the earlier user software.

        Returns
        -------
        dict
            The files from which they were installed (see lockfile), by name; empty if nothing could be copied.
        """
        names = self.unchanged - set(packages.select(packages.in_user_software))
        names &= set(self.needed(venv)) if names else set()
        if not names:
            return {}
        run_program(['unsquashfs', '-no-xattrs', '-no-progress', '-dest', folder, self.squashfs], hidden=True)
        site = os.path.join(folder, os.path.relpath(venv.site_packages(packages), venv.folder))
        found = {}
        for path in glob.glob(os.path.join(glob.escape(site), '*.dist-info', 'METADATA')):
            name = normal_name((pin_in(path) or '').split('==')[0])
            if name in names:
                found[name] = recorded_files(site, os.path.dirname(path), os.path.join(folder, 'venv'))
        # without its own files, pip couldn't see that a package is there; of others, nothing may be mixed in
        if set(found) != names or None in found.values():
            return {}
        for path in sorted(set().union(*found.values())):
            target = os.path.join(venv.folder, os.path.relpath(path, folder))
            mkdir(os.path.dirname(target), parents=True)
            os.replace(path, target)
        return {name: self.artifacts[name] for name in names}

    @property
    def unchanged(self):
        """
        Normalized names of the packages that would be installed from the same file, and asked for as before (set).

        None of them if the stages have more than plain requirements, which may change what is installed, or how.
        """
        before = Stage.from_parameter(self.record.get(lockfile.STAGES, []))
        asked, now = lines_by_name(before), lines_by_name(self.stages)
        if any(set(stage.record) - {'name', 'requirements'} for stage in before + self.stages) or \
                options_of(before) != options_of(self.stages) or asked is None or now is None:
            return set()
        names = set()
        for name, version in self.packages.items():
            (first, earlier), (second, text) = asked.get(name, (None, '')), now.get(name, (None, ''))
            digest = self.artifacts.get(name, {}).get('sha256')
            # pip marks what a stage asks for, unless an earlier stage has installed it
            marked = first == second and [one.record for one in before[:first or 0]] == [
                one.record for one in self.stages[:first or 0]]
            if (self.pins.get(name) == version and digest and marked and not re.search('[/@]', earlier + text)
                    and ('--hash' not in text or '--hash=sha256:' + digest in text)):
                names.add(name)
        return names

    def needed(self, venv):
        """Return the packages that the new stages need (list of str); empty if the image's pip is too old to say."""
        lines = [line.split(' --')[0] for _, line in lines_by_name(self.stages).values()]
        result = venv.run([venv.python, '-'] + lines, user_software=self.squashfs, split_stderr=True, hidden=True,
                          fail_on_error=False, stdin=read_program('needed-packages.py'))
        return ast.literal_eval(result.output) if result.exit_code == 0 else []


def options_of(stages):
    """Return the lines of stages that are options of pip (list of str)."""
    return [line.strip() for stage in stages for line in stage.requirements.splitlines()
            if line.strip().startswith('-')]


def lines_by_name(stages):
    """Return number of the stage and requirement line by normalized name (dict), None if a package has several."""
    found = [(package_name(line), (number, line)) for number, stage in enumerate(stages)
             for line in stage.requirement_list]
    return dict(found) if len(dict(found)) == len(found) else None


def recorded_files(site, info, top):
    """
    Return the files of a package, whose contents are as pip has recorded them (set of str), except for bytecode.

    Parameters
    ----------
    site : str
        Directory of packages.
    info : str
        Directory with the metadata of the package.
    top : str
        Directory that contains all files of user software.

    Returns
    -------
    set of str or None
        None if that is not so: another package may have overwritten a file.
    """
    found = set()
    with open(os.path.join(info, 'RECORD'), newline='') as rows:
        for name, recorded, _ in csv.reader(rows):
            path = os.path.normpath(os.path.join(site, name))
            if path.endswith('.pyc'):
                continue
            inside = path.startswith(top + os.sep) and os.path.isfile(path)
            if not inside or (path != os.path.join(info, 'RECORD') and recorded != digest_of(path)):
                return None
            found.add(path)
    return found


def digest_of(path):
    """Return the SHA256 of a file in the form of pip's records (str)."""
    with open(path, 'rb') as content:
        digest = hashlib.sha256(content.read()).digest()
    return 'sha256=' + base64.urlsafe_b64encode(digest).decode().rstrip('=')


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
