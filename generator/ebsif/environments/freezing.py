"""Write an easyconfig of the current state of an installation: exact versions, including packages added by hand."""

import ast
import re
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container import lockfile

from ebsif.environments.extending import check_names, free_dates
from ebsif.errors import EbsifError
from ebsif.installed import current
from ebsif.installed.places import Installation
from ebsif.render.easyconfig import literal

HEADER = "# Written by `ebsif lock --format eb`: yours to change."


class FreezingError(EbsifError):
    """No easyconfig can be written for an installation; the message says why and what to do."""


def freeze(installation: Installation, name: Optional[str], date: Optional[str]) -> tuple[str, str, list[str]]:
    """
    Return file name and text of an easyconfig of the current state of an installation, and what it can't express.

    Parameters
    ----------
    installation
        The installation, which keeps a copy of its easyconfig.
    name
        Part of the version suffix; by default that of the module.
    date
        Part of the version suffix; by default today, see `free_dates`.

    Raises
    ------
    FreezingError
        If the installation has no packages, no easyconfig or no name.
    """
    record, path, packages = installation.record, installation.easyconfig, current.packages_of(installation)
    if packages is None:
        raise FreezingError(f"{installation.module} has no packages of its own, only those of the image: there is "
                            "nothing to freeze")
    if not path:
        raise FreezingError(installation.lack)
    module = record[lockfile.MODULE]
    base = module["versionsuffix"]
    if installation.extension:
        base = base[: -len(f"-{'-'.join(installation.extension)}")]
        name = name or installation.extension[0]
    if not name:
        raise FreezingError(f"{installation.module} has no name of an extension: choose one with --name")
    date = date or next(free_dates(f"{module['name']}/{module['version']}{base}", name))
    check_names(name, date)
    suffix = f"{base}-{name}-{date}"
    stages = current.pinned_stages(record, packages)
    # all versions are in the requirements
    values: dict[str, Any] = {"versionsuffix": suffix, "requirements": as_parameter(stages), "constraints": None}
    if not re.search(r"^checksums\s*=", path.read_text(encoding="utf-8"), re.MULTILINE):
        values["checksums"] = [record[lockfile.IMAGE]["sha256"]]
    said = [f"{package.name} {package.version}: {package.said}" for package in packages.values() if package.said]
    text = with_values(path, values)
    return f"{module['name']}-{module['version']}{suffix}.eb", text, said


def as_parameter(stages):
    """Return stages as the easyconfig parameter 'requirements': a text for a single stage without options."""
    if len(stages) == 1 and not set(stages[0]) - current.PLAIN:
        return f"\n{stages[0]['requirements']}"
    return [{**stage, "requirements": stage.get("requirements", "").splitlines()} for stage in stages]


def with_values(path: Path, values: dict[str, Any]) -> str:
    """Return the text of an easyconfig with new values of some parameters, otherwise unchanged; None removes one."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    found = {node.targets[0].id: node for node in ast.parse(text).body
             if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    wanted = {name: "" if value is None else f"{name} = {literal(value, used=len(name) + 3)}\n"
              for name, value in values.items()}
    for name, node in sorted(found.items(), key=lambda item: -item[1].lineno):
        if name in wanted:
            lines[node.lineno - 1 : node.end_lineno] = [wanted.pop(name)]
    if text.startswith(("# Rendered by ebsif", "# Written by `ebsif")):
        del lines[0]
    return "".join([f"{HEADER}\n", *lines, *(f"\n{line}" for line in wanted.values() if line)])
