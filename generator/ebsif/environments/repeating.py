"""Repeat an installation from its lock, which may come from another account or site."""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue.container import Container
from ebsif.catalogue.records import Stage
from ebsif.catalogue.site import Site
from ebsif.environments import bases, environments, plan
from ebsif.environments.extending import known_image
from ebsif.environments.plan import REASONS, Addition, Plan, names_of
from ebsif.errors import EbsifError
from ebsif.installed import imagestate, lock, places
from ebsif.installed.names import shown


class RepeatingError(EbsifError):
    """An installation can't be repeated; the message says what is missing."""


class MissingImageError(RepeatingError):
    """
    The image of a record is not here; the message names it, and says what to do.

    Attributes
    ----------
    problem : str
        The message without what to do.
    """

    def __init__(self, problem: str):
        """Add what to do."""
        super().__init__(f"{problem}: get that file, and `ebsif add` it to the catalogue; or name the container that "
                         "has it: ebsif extend CONTAINER --from-lock ...")
        self.problem = problem


def read(path: Path) -> dict[str, Any]:
    """
    Return the record in a lock file.

    Raises
    ------
    LockError, RepeatingError
        If it can't be read or repeated.
    """
    return repeatable(lock.read(path), path)


def repeatable(record: dict[str, Any], place: object) -> dict[str, Any]:
    """
    Return a record, which may be somebody else's, if it has all that is needed to repeat the installation.

    Parameters
    ----------
    record
        The record, as `lock.read` and `lock.parse` return it.
    place
        Where it is from.

    Raises
    ------
    RepeatingError
        If it has no packages to install, or something in it is missing or damaged.
    """
    if not record.get(lockfile.STAGES):
        raise RepeatingError(f"{place} is the lock of a module without packages of its own: there is nothing to repeat")
    wrong = next(missing_in(record), None)
    if wrong:
        raise RepeatingError(f"{place} can't be repeated: {wrong}. Get it again: whoever has the module writes it with "
                             "`ebsif lock` or `ebsif push`")
    return record


def missing_in(record):
    """Yield what a record needs to be repeated and lacks; `lock.parse` has checked the types of what is there."""
    image, pins = record[lockfile.IMAGE], record.get(lockfile.VENV_PACKAGES)
    if not re.fullmatch("[0-9a-f]{64}", image.get("sha256") or ""):
        yield "it has no SHA256 of the image"
    if not is_plain(image["file"]):
        yield "its image should be the name of a file, without a directory"
    if pins is None or not all(re.fullmatch(r"\S+==\S+", pin) for pin in pins):
        yield "its packages should be lines like name==version"
    if not is_plain(record.get(lockfile.VENV_NAME, "venv")):
        yield "its virtual environment should be the name of a directory"
    if not all(isinstance(value, str) and value.isprintable() for value in record.get(lockfile.MODULE, {}).values()):
        yield "name, version and suffix of its module should be texts"


def is_plain(name):
    """Return whether a value is the name of a file in a directory."""
    return isinstance(name, str) and name.isprintable() and "/" not in name and name not in ("", ".", "..")


def base_of(record: dict[str, Any], containers: list[Container], site: Site) -> Container:
    """
    Return the container with the image in a record: of the catalogue, else that of an installation.

    Raises
    ------
    MissingImageError
        If there is none.
    """
    image, module = record[lockfile.IMAGE], module_of(record)
    installed = [one for one in places.everything() if has_image(one, image)]
    named = {name for one in installed for name in (shown(one), one.base) if name}
    found = [one for one in containers if one.venv and (image["sha256"] == one.sha256 or one.sha256 is None and (
        one.module_or_version in named or module.startswith(f"{one.module_or_version}-") and
        one.file_name == image["file"]))]
    if found:
        # the one that was extended, if it is there
        return max(found, key=lambda one: module.startswith(one.module_or_version))
    for one in sorted(installed, key=lambda one: one.base is not None):
        with contextlib.suppress(EbsifError):
            container = bases.without_extension(bases.of_installation(one, site), one)
            if container.venv:
                return container
    raise MissingImageError(f"the image {image['file']} of {module} is neither in an installed module nor in the "
                            f"catalogue (its SHA256 is {image['sha256']})")


def has_image(installation, image):
    """Return whether an installation has the image of a record."""
    try:
        mine = installation.record[lockfile.IMAGE]
    except lock.LockError:
        return False
    return mine.get("sha256") == image["sha256"] and imagestate.path_of(installation) is not None


def module_of(record: dict[str, Any]) -> str:
    """Return the name of the module in a record."""
    module = record.get(lockfile.MODULE, {})
    return f"{module.get('name', '?')}/{module.get('version', '')}{module.get('versionsuffix', '')}"


def repeated(container: Container, record: dict[str, Any]) -> Container:
    """Return a container as the base of the recorded environment: with the same image and path of the venv."""
    parameters = {key: value for key, value in container.parameters.items() if key != "constraints"}
    before = parameters.pop("venv_name", container.venv_name) or container.name.lower()
    return container.replace(sha256=record[lockfile.IMAGE]["sha256"], parameters=parameters,
                             venv_name=record.get(lockfile.VENV_NAME, before))


def has_other_image(container: Container, record: dict[str, Any]) -> bool:
    """Return whether a container is known to have another image than a record, as which it can't be repeated."""
    image = known_image(container).sha256
    return image not in (None, record[lockfile.IMAGE]["sha256"])


def adapted(container: Container, record: dict[str, Any]) -> tuple[Container, list[dict[str, Any]]]:
    """
    Return a container with another image than a record, and stages that install the packages of the record on it.

    The packages keep their versions, as far as the image has none of them.
    """
    there = known_image(container).packages
    pins = [f"{name}=={version}" for name, version in lock.pins(record[lockfile.VENV_PACKAGES]).items()
            if normal_name(name) not in there and name not in environments.TOOLS]
    return container.replace(parameters={**container.parameters, "constraints": pins}), record[lockfile.STAGES]


def is_same(easyconfig: Path, record: dict[str, Any]) -> bool:
    """Return whether an easyconfig, of an installation or with a lock beside it, repeats what is in a record."""
    places = (easyconfig.parent.parent / lockfile.RECORD, easyconfig.with_suffix(lockfile.COPY_SUFFIX))
    keys = (lockfile.STAGES, lockfile.VENV_PACKAGES, lockfile.ARTIFACTS, lockfile.VENV_NAME)
    return any(found[lockfile.IMAGE].get("sha256") == record[lockfile.IMAGE]["sha256"]
               and all(found.get(key) == record.get(key) for key in keys)
               for found in (lock.read(place) for place in places if place.is_file()))


def check(container: Container, record: dict[str, Any], options: Sequence[str] = (),
          image: Optional[Path] = None) -> Plan:
    """
    Return what pip would do to repeat an installation, and whether it would install the recorded files.

    Parameters
    ----------
    container
        The extension, on the image of the record.
    record
        The record.
    options, image
        See `plan.check`.
    """
    # imports EasyBuild
    from easybuild.easyblocks.generic.container.record import other_files

    stages = [Stage.model_validate(stage) for stage in record[lockfile.STAGES]]
    pinned = container.replace(requirements=stages, parameters={
        **container.parameters, "constraints": record[lockfile.VENV_PACKAGES]})
    planned = plan.check(pinned, options, image)
    planned.problem = planned.problem or "; ".join(other_files(record, planned.artifacts))
    return planned


def recorded_plan(record: dict[str, Any], size: int) -> Plan:
    """Return the plan to take all recorded packages from one file of a certain size."""
    asked, dependency = REASONS
    named = set(names_of(record[lockfile.STAGES]))
    added = [Addition(name, version, None, asked if normal_name(name) in named else dependency)
             for name, version in lock.pins(record[lockfile.VENV_PACKAGES]).items() if name not in environments.TOOLS]
    return Plan(sorted(added, key=lambda one: (REASONS.index(one.why), one.name.lower())), total=size)
