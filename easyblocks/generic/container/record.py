##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The record of an installation, share/ebsif/lock.json, and its use to repeat one exactly.
"""
import json
import os

from easybuild.easyblocks.generic.container import lockfile
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, write_file


class InstallRecord(dict):
    """
    The record, with the keys of ``lockfile``.
    """

    @classmethod
    def from_file(cls, path):
        """
        Read a record.

        Parameters
        ----------
        path : str

        Returns
        -------
        InstallRecord

        Raises
        ------
        EasyBuildError
            If there is none, or it is no record of an installation.
        """
        try:
            with open(path) as text:
                record = json.load(text)
        except (OSError, ValueError) as err:
            raise EasyBuildError("The lock %s can't be read: %s", path, err)
        if not isinstance(record, dict) or not isinstance(record.get(lockfile.IMAGE), dict):
            raise EasyBuildError("%s is not the lock of a container module (%s of an installation)", path,
                                 lockfile.RECORD)
        return cls(record)

    @classmethod
    def to_repeat(cls, path):
        """
        Read the record of an installation that should be repeated; as ``from_file``.

        Raises
        ------
        EasyBuildError
            Also if it has no user software.
        """
        record = cls.from_file(path)
        needed = (lockfile.STAGES, lockfile.IMAGE_PACKAGES, lockfile.VENV_PACKAGES)
        if not all(isinstance(record.get(key), list) for key in needed):
            raise EasyBuildError("%s is not the lock of a container module with user software, there is nothing to "
                                 "repeat", path)
        return record

    def write(self, path):
        """Write the record, the same text for the same content; there is a whole one or none, also after a kill."""
        write_file(path + '.partial', json.dumps(self, indent=2, sort_keys=True) + '\n', forced=True)
        os.rename(path + '.partial', path)

    @property
    def pins(self):
        """The packages of user software with their versions, by name as recorded (dict)."""
        return dict(line.split('==', 1) for line in self[lockfile.VENV_PACKAGES])

    def check_before(self, image_packages):
        """
        Stop if an exact repeat is not possible with this image and these local files.

        Parameters
        ----------
        image_packages : list of str
            The packages of the image, as requirement lines.

        Raises
        ------
        EasyBuildError
            Naming what is different.
        """
        problems = differences(self[lockfile.IMAGE_PACKAGES], image_packages)
        if problems:
            raise EasyBuildError("The image is not the one of the lock that should be repeated, its packages differ: "
                                 "%s", '; '.join(problems))
        for path, sha256 in sorted(self.get(lockfile.LOCAL_FILES, {}).items()):
            if not os.path.isfile(path):
                raise EasyBuildError("The lock that should be repeated names a local file that is gone: %s", path)
            if compute_checksum(path, CHECKSUM_TYPE_SHA256) != sha256:
                raise EasyBuildError("The local file %s is not the one of the lock that should be repeated (its SHA256 "
                                     "is another)", path)

    def check_after(self, lock):
        """
        Stop if what was installed is not what this record says.

        Parameters
        ----------
        lock : InstallRecord
            The record of the new installation.

        Raises
        ------
        EasyBuildError
            Naming what is different.
        """
        problems = differences(self[lockfile.VENV_PACKAGES], lock[lockfile.VENV_PACKAGES])
        recorded = self.get(lockfile.ARTIFACTS, {})
        for name, artifact in sorted(lock.get(lockfile.ARTIFACTS, {}).items()):
            # a wheel built here from the same source is another file, and has another name than the source
            if artifact['file'] == recorded.get(name, artifact)['file'] and artifact != recorded.get(name, artifact):
                problems.append('%s has another SHA256' % artifact['file'])
        if self[lockfile.IMAGE]['sha256'] != lock[lockfile.IMAGE]['sha256']:
            problems.append('the image has another SHA256')
        if problems:
            raise EasyBuildError("The installation is no exact repeat of the lock: %s", '; '.join(problems))


def differences(before, after):
    """Return what is in one list of requirement lines only, as texts."""
    return ['missing: %s' % line for line in before if line not in after] + \
        ['in addition: %s' % line for line in after if line not in before]
