"""The user software of an installation: packed or not, changed or not, and the packages in it."""

from dataclasses import dataclass
from typing import Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.installed import lock
from ebsif.installed.places import Installation
from ebsif.user import environments

PACKED, UNPACKED, BOTH, GONE = "packed", "not packed", "packed and not packed", "gone"
STATES = {(True, False): PACKED, (False, True): UNPACKED, (True, True): BOTH, (False, False): GONE}


@dataclass(frozen=True)
class SoftwareState:
    """
    The user software of an installation.

    Attributes
    ----------
    state
        PACKED, UNPACKED, BOTH (the module uses the packed one) or GONE.
    is_changed
        Whether somebody has changed it since the installation; None for an installation by an earlier version that
        didn't record what it was.
    """

    state: str
    is_changed: Optional[bool]


def examine(installation: Installation, verify: bool = False) -> Optional[SoftwareState]:
    """
    Return the state of user software, None for a module without any.

    A SquashFS file with recorded size and time is not read, unless `verify` is true.

    Raises
    ------
    LockError
        If the record can't be read.
    """
    # imports EasyBuild
    from easybuild.easyblocks.generic.container.usersoftware import DIRECTORY, SQUASHFS, UserSoftware

    record, files = installation.record, UserSoftware(str(installation.root))
    there = files.present
    if not there and lockfile.STAGES not in record:
        return None
    state = STATES[SQUASHFS in there, DIRECTORY in there]
    if state == GONE:
        return SoftwareState(state, True)
    if not files.installed:
        return SoftwareState(state, None)
    if there == [SQUASHFS] and files.is_file_as_recorded and not verify:
        return SoftwareState(state, False)
    return SoftwareState(state, bool(files.changed) or set(there) != set(files.installed))


def packages(installation: Installation, state: Optional[SoftwareState]) -> dict[str, str]:
    """
    Return the versions of the packages in user software as it is now, by normalized name.

    Raises
    ------
    RequirementsError
        If it can't be read.
    """
    if not state or state.state == GONE:
        return {}
    if state.is_changed is False:
        recorded = lock.pins(installation.record.get(lockfile.VENV_PACKAGES, []))
        return {normal_name(name): version for name, version in recorded.items()}
    name = "user-software" if state.state == UNPACKED else "user-software.squashfs"
    return {key: one.version for key, one in environments.packages(installation.root / name).items()}
