"""Comparing two containers, installed or in the catalogue: what is in them, and what their modules do."""

import re
from pathlib import Path

from easybuild.easyblocks.generic.container import lockfile, requirements

from ebsif import eb
from ebsif.catalogue import selection
from ebsif.errors import EbsifError
from ebsif.installed import lock
from ebsif.render import easyconfig

BIND_PARAMETERS = ("binds", "optional_binds", "library_binds")
VARIABLE_PARAMETERS = ("container_env", "network_env", "modextravars")


class ComparingError(EbsifError):
    """Something can't be compared; the message says why and what to do."""


def facts(text, containers):
    """
    Return what is known of a container (dict of dict): by kind, then by name.

    Parameters
    ----------
    text : str
        An installation directory, its lock file, an easyconfig, or the name of a container of the catalogue.
    containers : list of Container
        The catalogue.

    Raises
    ------
    ComparingError, LockError, CatalogueError
        If it is none of these.
    """
    path = Path(text)
    if path.suffix == ".eb" and path.is_file():
        return of_parameters(parameters_of(path))
    if path.exists():
        return of_installation(path)
    found = selection.find_one(containers, text)
    known = of_parameters(easyconfig.parameters(found))
    known["component"] = dict(found.components)
    if found.python:
        known["component"]["python"] = found.python
    return known


def of_installation(path):
    """Return what is known of an installation: its lock has image and packages, its easyconfig the rest."""
    record = lock.read(path)
    root = path if path.is_dir() else path.parent.parent.parent
    copies = sorted((root / "easybuild").glob("*.eb"))
    known = of_parameters(parameters_of(copies[0])) if copies else {}
    known["image"] = {key: record[lockfile.IMAGE][key] for key in ("file", "sha256") if key in record[lockfile.IMAGE]}
    # without a venv, earlier versions did not record them
    if lockfile.IMAGE_PACKAGES in record:
        known["image package"] = lock.pins(record[lockfile.IMAGE_PACKAGES])
    known["package"] = lock.pins(record.get(lockfile.VENV_PACKAGES, []))
    # the lock has what they became
    known.pop("requirement", None)
    return known


def of_parameters(values):
    """Return what the parameters of an easyconfig say (dict of dict)."""
    names = eb.source_names(values.get("sources") or [])
    known = {"image": {"file": Path(names[0]).name} if names else {}}
    known["bind"] = {}
    for name in BIND_PARAMETERS:
        for bind in values.get(name) or []:
            known["bind"][bind] = {"binds": "required", "optional_binds": "optional"}.get(name, "library")
    known["variable"] = {name: "unset" if value is None else str(value) for parameter in VARIABLE_PARAMETERS
                         for name, value in (values.get(parameter) or {}).items()}
    known["wrapper"] = dict.fromkeys(values["wrappers"], "yes") if isinstance(values.get("wrappers"), list) else {}
    known["requirement"] = dict.fromkeys(requirements.lines_of(values.get("requirements")), "yes")
    for name in ("init", "gpu", "conda_env"):
        if values.get(name):
            known.setdefault("setting", {})[name] = values[name]
    return known


def parameters_of(path):
    """Return the parameters of an easyconfig (dict), read by EasyBuild."""
    read = eb.read(path)
    names = ("name", "version", "versionsuffix", "sources", "wrappers", "requirements", "init", "gpu", "conda_env",
             *BIND_PARAMETERS, *VARIABLE_PARAMETERS)
    return {name: read[name] for name in names if name in read}


def compare(before, after):
    """Return how two containers differ (list of lock.Change); kinds that only one is known for are left out."""
    changes = []
    for kind in sorted(before.keys() & after.keys()):
        changes += lock.differences(kind, before[kind], after[kind])
    return changes


def extension_of(path):
    """
    Return what `ebsif extend` made an easyconfig of: (requirements, name, date).

    Raises
    ------
    ComparingError
        If it has no requirements, or no name in its suffix.
    """
    values = parameters_of(path)
    if not values.get("requirements"):
        raise ComparingError(f"{path} has no requirements: there is nothing to move")
    if requirements.lock_of(values["requirements"]):
        raise ComparingError(f"{path} repeats an installation exactly, by its lock, which is for its own image only")
    named = re.search(r"-([A-Za-z0-9_.]+)-([A-Za-z0-9_.]+)\Z", values["versionsuffix"])
    if not named:
        raise ComparingError(f"{path}: the version suffix {values['versionsuffix']} does not end in a name and a date: "
                             "use `ebsif extend` on the newer container")
    return requirements.stages_or_lines(values["requirements"]), *named.groups()
