"""What was added to the image of an installation: user software, packed or not, changed or not; system packages."""

from dataclasses import dataclass
from typing import Optional

from easybuild.easyblocks.generic.container.record.lockfile import LAYER
from easybuild.easyblocks.generic.container.values import DIRECTORY, SQUASHFS

from ebsif.errors import EbsifError
from ebsif.files import is_there
from ebsif.images.checksum import difference, sha256
from ebsif.installed import lock
from ebsif.installed.places import Installation
from ebsif.packages import venv
from ebsif.report.findings import ERROR, NOTE, Finding

PACKED, UNPACKED, BOTH, GONE = "packed", "not packed", "packed and not packed", "gone"
STATES = {(True, False): PACKED, (False, True): UNPACKED, (True, True): BOTH, (False, False): GONE}


@dataclass(frozen=True)
class SoftwareState:
    """
    The user software of an installation: PACKED, UNPACKED, BOTH (the module uses the packed one) or GONE.

    Whether somebody has changed it is unknown (None) of an installation by an earlier version that didn't record what
    it was. It is damaged if the SquashFS file has the size and time of the installation, but another SHA256.
    """

    state: str
    is_changed: Optional[bool]
    is_damaged: bool = False


def examine(installation: Installation, verify: bool = False) -> Optional[SoftwareState]:
    """Return the state of user software, None if there is none; reads unchanged SquashFS files only to `verify`."""
    # imports EasyBuild
    from easybuild.easyblocks.generic.container.usersoftware import UserSoftware

    record, files = installation.record, UserSoftware(str(installation.root))
    there = files.present()
    if not there and not record.has_user_software:
        return None
    state = STATES[SQUASHFS in there, DIRECTORY in there]
    if state == GONE:
        return SoftwareState(state, True)
    if not files.installed:
        return SoftwareState(state, None)
    is_same_file = SQUASHFS in there and files.is_file_as_recorded()
    if there == [SQUASHFS] and is_same_file and not verify:
        return SoftwareState(state, False)
    changed = files.changed()
    is_changed = bool(changed) or set(there) != set(files.installed)
    return SoftwareState(state, is_changed, is_same_file and SQUASHFS in changed)


def change(installation: Installation, state: Optional[SoftwareState]) -> Optional[Finding]:
    """Return a Finding on what has changed in user software since the installation, None if nothing has."""
    if not state or not state.is_changed or state.state == GONE:
        return None
    if state.is_damaged:
        return Finding(
            ERROR,
            installation.module,
            f"its {SQUASHFS} is damaged: it has the size and time of "
            f"the installation, but not its SHA256: install the module again with `{installation.rebuild}`",
        )
    try:
        differences = lock.differences("package", installation.record.venv_versions, packages(installation, state))
    except EbsifError as error:
        return Finding(
            ERROR,
            installation.module,
            f"its user software can't be read: {error}; install the module again with `{installation.rebuild}`",
        )
    told = f": {', '.join(map(describe, differences))}" if differences else ", but has the same packages"
    return Finding(NOTE, installation.module, f"its user software was changed after the installation{told}")


def layer(installation: Installation, verify: bool = False) -> Optional[Finding]:
    """Return a Finding on the layer with packages of the image's system, if it isn't as it was installed."""
    record, path = installation.record.system_layer, installation.root / LAYER
    if not record.sha256:
        return None
    problem = None
    if not is_there(path):
        problem = "is gone"
    elif difference(path, record.size, record.sha256, sha256 if verify else None):
        problem = "is damaged: it isn't what was installed"
    elif record.image != installation.record.image.sha256:
        problem = "was made for another image"
    return (
        Finding(
            ERROR, installation.module, f"its {LAYER} {problem}: install the module again with `{installation.rebuild}`"
        )
        if problem
        else None
    )


def describe(one: lock.LockDifference) -> str:
    """Return the difference of a package in words."""
    if one.before is None:
        return f"{one.name} {one.after} added"
    if one.after is None:
        return f"{one.name} {one.before} removed"
    return f"{one.name} {one.after} instead of {one.before}"


def packages(installation: Installation, state: Optional[SoftwareState]) -> dict[str, str]:
    """Return the versions in user software as it is now, by normalized name; raise RequirementsError if unreadable."""
    if not state or state.state == GONE:
        return {}
    if state.is_changed is False:
        return installation.record.venv_versions
    name = DIRECTORY if state.state == UNPACKED else SQUASHFS
    return {key: one.version for key, one in venv.packages(installation.root / name).items()}
