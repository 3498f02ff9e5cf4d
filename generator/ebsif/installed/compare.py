"""Compare two containers, installed or in the catalog: their content, and what their modules do."""

import shlex
from pathlib import Path
from typing import Any

from easybuild.easyblocks.generic.container import newest, requirements
from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.record.lockfile import Record
from easybuild.easyblocks.generic.container.values import normal_name, parse_binds

from ebsif.catalog.stages import Stage, stages_of
from ebsif.eb import framework
from ebsif.errors import EbsifError
from ebsif.installed import current, lock
from ebsif.installed.names import Found
from ebsif.installed.places import Installation
from ebsif.render import easyconfig

# About a container: values by kind, then by name.
Facts = dict[str, dict[str, Any]]

# what is named in each of them
HOST_PARAMETERS = {"host_libraries": "libraries", "host_programs": "programs"}
VARIABLE_PARAMETERS = ("container_env", "network_env", "modextravars")


def facts(found: Found) -> Facts:
    """Return the facts about a container of the catalog, an installation, an easyconfig or a saved lock."""
    if isinstance(found, Installation):
        return facts_of_installation(found)
    if isinstance(found, Path):
        return (
            facts_of_parameters(parameters_of(found))
            if found.suffix == ".eb"
            else facts_of_record(lock.read_record(found))
        )
    known = facts_of_parameters(easyconfig.parameters(found))
    known["component"] = {**found.components, found.package or normal_name(found.name): found.version}
    if found.python:
        known["component"]["python"] = found.python
    return known


def facts_of_installation(installation: Installation) -> Facts:
    """Return the facts about an installation: image and packages as they are now, the rest from its easyconfig."""
    known = facts_of_parameters(parameters_of(installation.easyconfig)) if installation.easyconfig else {}
    known.update(facts_of_record(current.record_of(installation)))
    # the record has the packages that were installed for them
    known.pop("requirement", None)
    return known


def facts_of_record(record: Record) -> Facts:
    """Return the facts in the record of an installation."""
    image = {"file": record.image.file, "sha256": record.image.sha256}
    return {
        "image": {name: value for name, value in image.items() if value},
        "mask": record.masks,
        "local file": record.local_files,
        **lock.packages_by_kind(record),
    }


def facts_of_parameters(values: dict[str, Any]) -> Facts:
    """Return the facts in the parameters of an easyconfig."""
    names = framework.source_names(values.get("sources") or [])
    known: Facts = {"image": {"file": Path(names[0]).name} if names else {}, "bind": {}}
    required, optional = parse_binds(values.get("binds") or [])
    for kind, binds in (("required", required), ("optional", optional)):
        known["bind"].update(dict.fromkeys(binds, kind))
    for name, items in HOST_PARAMETERS.items():
        known[f"{items} of the host"] = dict.fromkeys((values.get(name) or {}).get(items, []), "yes")
    known["variable"] = {
        name: "unset" if value is None else str(value)
        for parameter in VARIABLE_PARAMETERS
        for name, value in (values.get(parameter) or {}).items()
    }
    known["wrapper"] = dict.fromkeys(values["wrappers"], "yes") if isinstance(values.get("wrappers"), list) else {}
    known["requirement"] = dict.fromkeys(requirements.lines_of(values.get("requirements")), "yes")
    for name in ("init", "gpu", "conda_env"):
        if values.get(name):
            known.setdefault("setting", {})[name] = values[name]
    return known


def parameters_of(path: Path) -> dict[str, Any]:
    """Return the parameters of an easyconfig, as read by EasyBuild."""
    read = framework.read(path)
    names = (
        "name",
        "version",
        "versionsuffix",
        "sources",
        "wrappers",
        "requirements",
        "system_packages",
        "init",
        "gpu",
        "conda_env",
        "binds",
        *HOST_PARAMETERS,
        *VARIABLE_PARAMETERS,
    )
    return {name: read[name] for name in names if name in read}


def compare(before: Facts, after: Facts) -> list[lock.LockDifference]:
    """Return the differences between two containers, of the kinds that are known for both."""
    changes = []
    for kind in sorted(before.keys() & after.keys()):
        # only installations know the checksum of the image
        unknown = (before[kind].keys() ^ after[kind].keys()) & {"sha256"} if kind == "image" else set()
        changes += [one for one in lock.differences(kind, before[kind], after[kind]) if one.name not in unknown]
    return changes


def extension_of(path: Path, container: str) -> tuple[list[Stage], str, str]:
    """
    Return stages, name and date of an extension from its easyconfig, to use them on a container of that name.

    Raise EbsifError if that isn't possible.
    """
    values = parameters_of(path)
    if not values.get("requirements") and not values.get("system_packages"):
        raise EbsifError(
            f"{path.name} has no requirements, so there is nothing to upgrade: give an extension, and then its new "
            "container (ebsif upgrade EXTENSION CONTAINER)"
        )
    named = newest.NAMED.search(values["versionsuffix"])
    repeats = requirements.lock_of(values["requirements"])
    if repeats:
        installed_lock = path.parent.parent / lockfile.RECORD
        repeated = installed_lock if installed_lock.is_file() else path.parent / repeats
        name = ["--name", named["name"]] if named else []
        command = shlex.join(["ebsif", "extend", container, "--from-lock", str(repeated), *name])
        raise EbsifError(
            f"{path.name} repeats an installation from its lock. To repeat that on {container}:\n    {command}"
        )
    if not named:
        raise EbsifError(
            f"{path}: the version suffix {values['versionsuffix']} does not end in a name and a date: "
            "use `ebsif extend` on the newer container"
        )
    return stages_of(values["requirements"]), named["name"], named["date"]
