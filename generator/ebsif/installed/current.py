"""The current packages of an installation, including those that users have added with pip and make-squashfs."""

import os
import re
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.requirements import package_name
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.installed.places import Installation
from ebsif.packages import requirements, venv
from ebsif.packages.venv import Package
from ebsif.report import output

# Properties of stages that contain only requirements.
PLAIN = {"name", "requirements"}


def user_software(installation: Installation) -> Optional[Path]:
    """Return the user software that the module mounts: the user's own, else the file, else the directory."""
    mounted = os.environ.get("EBSIF_MOUNTED_USER_SOFTWARE") if installation.is_loaded else None
    paths = [Path(mounted)] if mounted else []
    paths += [installation.root / name for name in ("user-software.squashfs", "user-software")]
    return next((path for path in paths if path.exists()), None)


def packages_of(installation: Installation) -> Optional[dict[str, Package]]:
    """Return the packages in user software by normalized name; None if there is none or it can't be read."""
    place = user_software(installation)
    if not place or lockfile.STAGES not in installation.record:
        return None
    try:
        return venv.packages(place)
    except requirements.RequirementsError as error:
        output.note(f"{error}; packages are listed as they were installed")
        return None


def record_of(installation: Installation) -> dict[str, Any]:
    """
    Return the record of an installation with its current packages.

    If they are unchanged, this is the record as written. Otherwise its stages have exact versions, so that repeating it
    installs the current packages.
    """
    record, packages = installation.record, packages_of(installation)
    if packages is None:
        return record
    before = {normal_name(line.split("==", 1)[0]): line.split("==", 1)[1] for line in record[lockfile.VENV_PACKAGES]}
    if before == {name: package.version for name, package in packages.items()}:
        return record
    artifacts = {name: value for name, value in record.get(lockfile.ARTIFACTS, {}).items()
                 if name in packages and packages[name].version == before.get(name)}
    return {**record, lockfile.ARTIFACTS: artifacts, lockfile.STAGES: pinned_stages(record, packages),
            lockfile.VENV_PACKAGES: [f"{packages[name].name}=={packages[name].version}" for name in sorted(packages)]}


def pinned_stages(record: dict[str, Any], packages: dict[str, Package]) -> list[dict[str, Any]]:
    """
    Return stages that install the current versions of packages.

    Parameters
    ----------
    record
        The record of the installation. Its stages keep their options, but not the requirements for removed packages.
    packages
        The packages in user software.
    """
    left = {name: package for name, package in packages.items() if name not in venv.TOOLS}
    in_image = {normal_name(line.split("==", 1)[0]) for line in record.get(lockfile.IMAGE_PACKAGES, [])}
    stages = []
    for stage in record[lockfile.STAGES]:
        lines = [line for text in stage.get("requirements", "").splitlines() for line in pinned(text, left, in_image)]
        if lines or set(stage) - PLAIN:
            stages.append({**stage, "requirements": "".join(f"{line}\n" for line in lines)})
    more = [package.line for _, package in sorted(left.items()) if package.line]
    if not more:
        return stages
    made = requirements.split_into_stages(more)
    if made and isinstance(made[0], dict):
        # build tools, other packages, and packages built against torch
        return [*stages, *({**stage, "name": f"{stage['name']} (pinned)",
                            "requirements": "".join(f"{line}\n" for line in stage["requirements"])} for stage in made)]
    if stages and not set(stages[0]) - PLAIN and " --hash=" not in stages[0]["requirements"]:
        first, *others = stages
        return [{**first, "requirements": first["requirements"] + "".join(f"{line}\n" for line in more)}, *others]
    return [{"name": "pinned", "requirements": "".join(f"{line}\n" for line in more)}, *stages]


def pinned(text, left, in_image):
    """
    Return a requirement line with the exact version, or None if its package has been removed.

    Parameters
    ----------
    text : str
        The line.
    left : dict of Package
        Packages by normalized name; the line's package is removed from it.
    in_image : set of str
        Names of packages in the image.
    """
    line = re.sub(r"(^|\s)#.*", "", text).strip()
    if not line or line.startswith("-"):
        return [line] if line else []
    match = re.fullmatch(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?P<extras>\[[^\]]*\])?\s*(?:[=<>!~(][^;@]*)?"
                         r"(?P<marker>;.*)?", line)
    name = normal_name(match.group("name")) if match else package_name(line)
    what, _, hashes = line.partition(" --hash=")
    if hashes and name in left:
        if normal_name(what) not in (normal_name(left[name].line or ""), normal_name(f"{name}=={left[name].version}")):
            # it has no hash now, so it can't be installed by the same call of pip
            return []
        del left[name]
        return [line]
    package = left.pop(name, None) or taken(line, left)
    if not package:
        return [line] if name in in_image else []
    if not match or " @ " in (package.line or ""):
        return [package.line or line]
    return [f"{match.group('name')}{match.group('extras') or ''}=={package.version}{match.group('marker') or ''}"]


def taken(line, left):
    """Return the package (Package) installed from the URL or path in a line, and remove it from the others."""
    where = re.sub(r"[@#].*", "", line.rpartition(" @ ")[2].removeprefix("git+")) or line
    name = next((name for name, package in left.items()
                 if package.line and "/" in package.line and where in package.line), None)
    return left.pop(name, None)
