##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The record of an installation, share/ebsif/lock.json, and its use for repeating an installation exactly.
"""
import os
import stat
from typing import Dict, List, Optional

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum
from easybuild.tools.version import VERSION as EASYBUILD_VERSION

from ..imageprograms import ebsif_version
from ..permissions import write_whole
from ..runtime import existing_sources
from ..usersoftware import UserSoftware
from ..written import escape, is_module
from . import lockfile


class InstallRecord(lockfile.Record):
    """The record of an installation that is made or repeated."""

    @classmethod
    def from_file(cls, path: str) -> 'InstallRecord':
        """Read a record; raise EasyBuildError if the file can't be read or isn't the record of an installation."""
        try:
            return cls.read(path)
        except OSError as err:
            raise EasyBuildError("Can't read the lock file %s: %s", path, err)
        except lockfile.RecordError as err:
            raise EasyBuildError("%s is not the lock of a container module (%s of an installation): %s", path,
                                 lockfile.RECORD, err)

    @classmethod
    def read_repeatable(cls, path: str) -> 'InstallRecord':
        """Read the record of an installation to repeat; raise EasyBuildError also if it has no user software."""
        record = cls.from_file(path)
        if not all(map(record.has, ('stages', 'image_packages', 'venv_packages'))):
            raise EasyBuildError("%s is the lock of a container module without user software: there is nothing to "
                                 "repeat", path)
        for stage in record.stages:
            wrong = [name for name in stage.get('modules') or [] if not is_module(str(name))]
            if wrong:
                raise EasyBuildError("%s can't be repeated: it loads '%s', which is not the name of a module",
                                     path, escape(wrong[0]))
        return record

    def write(self, path: str) -> None:
        """Write the record atomically."""
        write_whole(path, self.text)

    def write_installed(self, installdir: str) -> None:
        """Write the record of an installation, with fingerprints that show later whether somebody has changed it."""
        files = UserSoftware(installdir, self)
        status = files.file_status()
        # the SquashFS file may be large: unless commands of the easyconfig have changed it, it is read once
        known = status and self.user_software_file == status
        self.user_software = files.fingerprints(self.user_software if known else {})
        self.scripts, self.user_software_file = files.scripts(), status
        self.write(os.path.join(installdir, lockfile.RECORD))

    def correct(self, path: str) -> None:
        """Write the record to the file that it was read from; its permissions and its time of installation stay."""
        before = os.stat(path)
        self.write(path)
        os.chmod(path, stat.S_IMODE(before.st_mode))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    @property
    def pins(self) -> Dict[str, str]:
        """
        The versions of the packages in user software, by recorded name.

        Also pip's, which may be the image's: a stage with 'upgrade_pip' would install a newer one.
        """
        versions = {name: version for name, version in self.versions.items() if name == 'pip'}
        return dict(versions, **lockfile.versions_in(self.venv_packages))

    def check_repeatable(self, image_packages: List[str], with_files: bool = True) -> None:
        """
        Raise EasyBuildError, which names the differences, unless image and local files allow an exact repeat.

        `image_packages` are the packages of the image as requirement lines; local files may not be needed.
        """
        problems = describe_differences(self.image_packages, image_packages)
        if problems:
            raise EasyBuildError("The installation can't be repeated with this image, its packages differ: %s",
                                 '; '.join(problems))
        for path, sha256 in sorted(self.local_files.items() if with_files else []):
            if not os.path.isfile(path):
                raise EasyBuildError("The installation can't be repeated: the local file %s no longer exists", path)
            if compute_checksum(path, CHECKSUM_TYPE_SHA256) != sha256:
                raise EasyBuildError("The installation can't be repeated: the local file %s has another SHA256 than in "
                                     "the lock", path)

    def check_repeated(self, lock: 'InstallRecord') -> None:
        """
        Raise EasyBuildError, which names the differences, unless a new installation is an exact repeat of this one.

        `lock` is the record of the new installation. A venv may have a pip of its own or not.
        """
        packages = [[line for line in record.venv_packages if not line.startswith('pip==')] for record in (self, lock)]
        problems = describe_differences(*packages) + other_files(self, lock.artifacts)
        if self.image.sha256 != lock.image.sha256:
            problems.append('the image has another SHA256')
        if problems:
            raise EasyBuildError("The installation is not an exact repeat of the lock: %s", '; '.join(problems))


def other_files(record: lockfile.Record, artifacts: Dict[str, Dict[str, str]]) -> List[str]:
    """Describe the files that pip installs, as they are recorded, with another SHA256 than in a record."""
    recorded = record.artifacts
    # only compare files with the same name: a wheel that was built here is not the recorded source
    return ['%s has another SHA256 than in the lock' % artifact['file'] for name, artifact in sorted(artifacts.items())
            if artifact['file'] == recorded.get(name, artifact)['file'] and artifact != recorded.get(name, artifact)]


def describe_differences(before: List[str], after: List[str]) -> List[str]:
    """Describe the requirement lines that are in only one of two lists."""
    return ['missing: %s' % line for line in before if line not in after] + \
        ['in addition: %s' % line for line in after if line not in before]


def correct_binds(path: str, optional_binds: List[str]) -> Optional[str]:
    """
    Record which optional binds exist now, where `ebsif doctor` looks them up after a module is written again.

    `path` is the path of the record, which may not exist; `optional_binds` are its own, without those of the host.
    Return a warning if the record can't be written, because another account has installed.
    """
    if not os.path.exists(path):
        return None
    record = InstallRecord.from_file(path)
    sources = existing_sources(optional_binds + record.binds_of_host)
    if record.optional_binds != sources:
        record.optional_binds = sources
        try:
            record.correct(path)
        except (EasyBuildError, OSError) as err:
            return "Can't write %s: `ebsif doctor --installed` will expect the earlier binds (%s)" % (path, err)
    return None


def versions_used(runtime: str) -> Dict[str, str]:
    """Return the versions of the software that installs; `runtime` is the version of the container runtime."""
    return {'easybuild': str(EASYBUILD_VERSION), 'ebsif': ebsif_version(), 'runtime': runtime}
