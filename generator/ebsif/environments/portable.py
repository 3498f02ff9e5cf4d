"""What others need to have the environment of a module: its record, bill of materials, easyconfig, user software."""

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.credentials import REMEDY, Credentials
from easybuild.easyblocks.generic.container.record.lockfile import RECORD, Record
from easybuild.easyblocks.generic.container.values import SQUASHFS
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from ebsif.eb import framework
from ebsif.errors import EbsifError
from ebsif.images.checksum import sha256
from ebsif.installed import current, lock
from ebsif.installed.names import shown
from ebsif.installed.places import Installation
from ebsif.installed.sbom import BILL_OF_MATERIALS, bill_of_materials

LOCK = "lock.json"
LICENSES = "org.opencontainers.image.licenses"


@dataclass(frozen=True)
class Portable:
    """
    The environment of a module, for others.

    `record` has the packages as they are now; `texts` are the texts of the files by name; `squashfs` is the file with
    user software, None if there is none or it isn't needed; `license` is an expression of SPDX, None if it isn't known.
    """

    module: str
    record: Record
    texts: dict[str, str]
    squashfs: Optional[Path]
    installed: datetime.datetime
    license: Optional[str]


def of(installation: Installation, license_name: Optional[str] = None, with_user_software: bool = True) -> Portable:
    """Return the environment of an installation, for others; raise EbsifError if it can't be given to them."""
    if license_name and not as_spdx(license_name):
        raise EbsifError(
            f"--license {license_name}: should be in SPDX's list of licenses (MIT, CC0-1.0), or an "
            "expression of SPDX ('Apache-2.0 AND MIT'): https://spdx.org/licenses"
        )
    squashfs = packed(installation) if with_user_software else None
    record = current.record_of(installation)
    if squashfs:
        record = record.replace(user_software={SQUASHFS: sha256(squashfs, "user software")})
    moment = (installation.root / RECORD).stat().st_mtime
    texts = {LOCK: lock.for_others(record), BILL_OF_MATERIALS: bill_of_materials(record, moment)}
    path = installation.easyconfig
    if path:
        texts[path.name] = path.read_text(encoding="utf-8")
    place = place_of_credential(record, path)
    if place:
        raise EbsifError(
            f"{place} has a credential that would be given to others: take it out of the easyconfig "
            f"and install {shown(installation)} again. {REMEDY}"
        )
    return Portable(
        shown(installation),
        record,
        texts,
        squashfs,
        datetime.datetime.fromtimestamp(int(moment), datetime.timezone.utc),
        as_spdx(license_name or str(record.image.labels.get(LICENSES) or "")),
    )


def as_spdx(name: str) -> Optional[str]:
    """Return a license as SPDX writes it; None if it is neither in its list nor an expression of such licenses."""
    try:
        return canonicalize_license_expression(name)
    except InvalidLicenseExpression:
        return None


def packed(installation: Installation) -> Optional[Path]:
    """Return the SquashFS file with the user software of an installation, None if it has no packages."""
    path = current.user_software(installation)
    if not installation.record.has_user_software or not path:
        return None
    if path.is_dir():
        raise EbsifError(
            f"the user software of {shown(installation)} is a directory, {path}, which can change "
            f"at any time: pack it first ({installation.load}; make-squashfs)"
        )
    return path


def place_of_credential(record: Record, path: Optional[Path]) -> Optional[str]:
    """Return where a record, or the easyconfig at a path, has a credential; None if neither has one."""
    for name, value in json.loads(record.text).items():
        if Credentials.find(value, name):
            return f"'{name}' in the record"
    if path:
        easyconfig = framework.read(path)
        # what is written also has the variables of the easyconfig
        for name, value in {**framework.written_values(path), **easyconfig.asdict()}.items():
            if Credentials.find(value, name):
                return f"'{name}' in {path}"
        if Credentials.find(easyconfig.rawtxt):
            return str(path)
    return None
