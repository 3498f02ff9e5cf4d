"""What others need to have the environment of a module: lock, bill of materials, easyconfig, user software."""

import ast
import datetime
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.credentials import MASK, REMEDY, Credentials
from easybuild.easyblocks.generic.container.usersoftware import SQUASHFS
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from ebsif.errors import EbsifError
from ebsif.images.checksum import sha256
from ebsif.installed import current, lock
from ebsif.installed.names import shown
from ebsif.installed.places import Installation
from ebsif.installed.sbom import BILL_OF_MATERIALS, bill_of_materials
from ebsif.report import output

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
        The license as an expression of SPDX, of the person or in the labels of the image; None if it isn't known.
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
        The license, as an expression of SPDX: a name in its list, or several with AND, OR and WITH.
    with_user_software
        Whether its user software is needed.

    Raises
    ------
    PortableError
        If the license is not an expression of SPDX, if user software is needed, and is a directory, or if the record or
        the easyconfig has a credential that can't be masked.
    """
    license_name = checked_license(license_name)
    squashfs = packed(installation) if with_user_software else None
    record = current.record_of(installation)
    if squashfs:
        record = {**record, lockfile.USER_FILES: {SQUASHFS: sha256(squashfs, "user software")}}
    shared = masked(record)
    moment = (installation.root / lockfile.RECORD).stat().st_mtime
    texts = {LOCK: lock.as_text(shared), BILL_OF_MATERIALS: bill_of_materials(shared, moment)}
    path = installation.easyconfig
    if path:
        text = path.read_text(encoding="utf-8")
        texts[path.name] = Credentials.mask(text)
    where = next(unmasked(shared, path, texts), None)
    if where:
        raise PortableError(f"{where} has a credential that would be given to others: take it out of the easyconfig "
                            f"and install {shown(installation)} again. {REMEDY}")
    if shared != record or (path and texts[path.name] != text):
        output.note(f"credentials in the record of {shown(installation)} are replaced by {MASK}")
    license_name = license_name or license_in(record[lockfile.IMAGE].get("labels") or {})
    return Portable(shown(installation), shared, texts, squashfs,
                    datetime.datetime.fromtimestamp(int(moment), datetime.timezone.utc), license_name)


def checked_license(name: Optional[str]) -> Optional[str]:
    """Return a license that a person has named as SPDX writes it, None if it is None; raise PortableError if wrong."""
    if name is None:
        return None
    try:
        return canonicalize_license_expression(name)
    except InvalidLicenseExpression:
        raise PortableError(f"--license {name}: should be in SPDX's list of licenses (MIT, CC0-1.0), or an expression "
                            "of SPDX ('Apache-2.0 AND MIT'): https://spdx.org/licenses") from None


def license_in(labels: dict[str, Any]) -> Optional[str]:
    """Return the license in the labels of an image; None if there is none, or, with a note, if it isn't one of SPDX."""
    label = labels.get(LICENSES)
    if not label:
        return None
    try:
        return canonicalize_license_expression(str(label))
    except InvalidLicenseExpression:
        output.note(f"the license in the labels of the image, {output.escape(label)}, is none of SPDX's list: it "
                    "counts as not stated (--license names one)")
        return None


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


def unmasked(record: dict[str, Any], path: Optional[Path], texts: dict[str, str]) -> Iterator[str]:
    """Yield where a masked record, and the masked text of an easyconfig at a path, still have credentials."""
    yield from (f"'{key}' in the record" for key, value in record.items() if Credentials.find(value, key))
    if not path:
        return
    try:
        with warnings.catch_warnings():
            # many easyconfigs have backslashes that Python warns about
            warnings.simplefilter("ignore")
            statements = ast.parse(texts[path.name]).body
    except (SyntaxError, ValueError) as error:
        raise PortableError(f"{path} can't be searched for credentials: {error}") from None
    for statement in statements:
        if any(Credentials.find(value) for value in values_in(statement)):
            # of an assignment, the parameter
            name = next((node.id for node in ast.walk(statement) if isinstance(node, ast.Name)), "a statement")
            yield f"'{name}' in line {statement.lineno} of {path}"


def values_in(statement: ast.stmt) -> Iterator[Any]:
    """Yield the values that are written out in a statement, by their name if they have one, also inside of others."""
    def constant(node):
        return getattr(node, "value", None) if isinstance(node, ast.Constant) else None

    for node in ast.walk(statement):
        if isinstance(node, ast.Dict):
            yield {constant(key): constant(value) for key, value in zip(node.keys, node.values)}
        elif isinstance(node, ast.keyword):
            yield {node.arg: constant(node.value)}
        elif isinstance(node, ast.Assign):
            yield from ({getattr(target, "id", None) or constant(getattr(target, "slice", None)): constant(node.value)}
                        for target in node.targets)
        elif isinstance(node, (ast.List, ast.Tuple)):
            yield list(map(constant, node.elts))
        elif isinstance(node, ast.Constant):
            yield node.value
