"""What others need to have the environment of a module: lock, bill of materials, easyconfig, user software."""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.credentials import MASK, Credentials
from easybuild.easyblocks.generic.container.sbom import BILL_OF_MATERIALS, bill_of_materials
from easybuild.easyblocks.generic.container.usersoftware import SQUASHFS

from ebsif import output
from ebsif.errors import EbsifError
from ebsif.image.checksum import sha256
from ebsif.installed import current, lock
from ebsif.installed.names import shown
from ebsif.installed.places import Installation

LOCK = "lock.json"
LICENSES = "org.opencontainers.image.licenses"


class PortableError(EbsifError):
    """The environment of a module can't be given to others; the message says why and what to do."""


@dataclass(frozen=True)
class Portable:
    """
    The environment of a module, for others.

    Attributes
    ----------
    module
        Name of the module.
    record
        The lock, with the packages as they are now, and without credentials.
    texts
        The texts of files by name: the lock, the bill of materials, the easyconfig if there is one.
    squashfs
        The SquashFS file with user software; None if there is none, or it isn't needed.
    installed
        When the module was installed.
    license
        The licence, as the person has named it or the labels of the image; None if it isn't known.
    """

    module: str
    record: dict[str, Any]
    texts: dict[str, str]
    squashfs: Optional[Path]
    installed: datetime.datetime
    license: Optional[str]

    @property
    def easyconfig(self) -> Optional[str]:
        """Name of the easyconfig, None if there is none."""
        return next((name for name in self.texts if name.endswith(".eb")), None)

    @property
    def image(self) -> dict[str, Any]:
        """The image in the record."""
        return self.record[lockfile.IMAGE]

    @property
    def packages(self) -> list[str]:
        """The packages on top of the image, as name==version."""
        return self.record.get(lockfile.VENV_PACKAGES, [])


def of(installation: Installation, license_name: Optional[str] = None, with_user_software: bool = True) -> Portable:
    """
    Return the environment of an installation, for others.

    Parameters
    ----------
    installation
        The installation; its user software has to be packed.
    license_name
        The licence, by its name in SPDX's list.
    with_user_software
        Whether its user software is needed.

    Raises
    ------
    PortableError
        If user software is needed, and is a directory.
    """
    squashfs = packed(installation) if with_user_software else None
    record = current.record_of(installation)
    if squashfs:
        record = {**record, lockfile.USER_SOFTWARE: {SQUASHFS: sha256(squashfs, "user software")}}
    shared = masked(record)
    moment = (installation.root / lockfile.RECORD).stat().st_mtime
    texts = {LOCK: lock.as_text(shared), BILL_OF_MATERIALS: bill_of_materials(shared, moment)}
    path = installation.easyconfig
    if path:
        text = path.read_text(encoding="utf-8")
        texts[path.name] = Credentials.mask(text)
    if shared != record or (path and texts[path.name] != text):
        output.note(f"credentials in the record of {shown(installation)} are replaced by {MASK}")
    license_name = license_name or record[lockfile.IMAGE].get("labels", {}).get(LICENSES)
    return Portable(shown(installation), shared, texts, squashfs,
                    datetime.datetime.fromtimestamp(int(moment), datetime.timezone.utc), license_name)


def packed(installation):
    """Return the SquashFS file with the user software of an installation (Path), None if it has no packages."""
    path = current.user_software(installation)
    if lockfile.STAGES not in installation.record or not path:
        return None
    if path.is_dir():
        raise PortableError(f"the user software of {shown(installation)} is a directory, {path}, which can change "
                            f"at any time: pack it first ({installation.load}; make-squashfs)")
    return path


def masked(value: Any) -> Any:
    """Return a value of a record in which credentials are masked, those in texts and those by their name."""
    if isinstance(value, dict):
        return {key: MASK if isinstance(one, str) and Credentials.find({key: one}) and Credentials.mask(one) == one
                else masked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [masked(one) for one in value]
    return Credentials.mask(value) if isinstance(value, str) else value
