"""The current packages of an installation, including those that users have added with pip and make-squashfs."""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.record.lockfile import Record, versions_in
from easybuild.easyblocks.generic.container.requirements import local_path, without_comment
from easybuild.easyblocks.generic.container.values import DIRECTORY, SQUASHFS, normal_name

from ebsif.catalog.stages import Stage, stages_of
from ebsif.files import is_there
from ebsif.installed.places import Installation
from ebsif.packages import requirements, venv
from ebsif.packages.lines import name_in, parsed
from ebsif.packages.venv import VenvPackage
from ebsif.report import output


def user_software(installation: Installation) -> Optional[Path]:
    """Return the user software that the module mounts: the user's own, else the file, else the directory."""
    mounted = os.environ.get("EBSIF_MOUNTED_USER_SOFTWARE") if installation.is_loaded else None
    paths = [Path(mounted)] if mounted else []
    paths += [installation.root / name for name in (SQUASHFS, DIRECTORY)]
    return next((path for path in paths if path.exists()), None)


def packages_of(installation: Installation) -> Optional[dict[str, VenvPackage]]:
    """Return the packages in user software by normalized name; None if there is none or it can't be read."""
    place = user_software(installation)
    if not place or not installation.record.has_user_software:
        return None
    try:
        return venv.packages(place)
    except requirements.RequirementsError as error:
        output.note(f"{error}; packages are listed as they were installed")
        return None


def packages_or_recorded(installation: Installation) -> dict[str, VenvPackage]:
    """Return the packages in user software but for pip's own, or the recorded ones if it can't be read."""
    packages = packages_of(installation)
    if packages is None:
        packages = {
            normal_name(name): VenvPackage(name, version, f"{name}=={version}", None)
            for name, version in versions_in(installation.record.venv_packages).items()
        }
    return {name: package for name, package in packages.items() if name not in venv.TOOLS}


def stages_now(
    stages: Sequence[Stage],
    packages: Mapping[str, VenvPackage],
    changed: Collection[str],
    gone: Collection[str],
    in_image: Collection[str],
    had: Collection[str] = (),
) -> list[Stage]:
    """
    Return stages whose lines lead to the current packages: other lines stay as they were written.

    `changed` are the names of packages in another version, `gone` of those that were removed by hand. `had` are the
    files of this machine that lines named at the installation. It is said what becomes of a line without its file.
    """
    from_gone = {str(package.gone): package for package in packages.values() if package.gone}

    def now(text: str) -> list[str]:
        path = local_path(text)
        # what was never on this machine may be in the image
        if path in had and not is_there(Path(path)):
            if re.match("-c|--constraint", text):
                output.note(f"{path} no longer exists, so its constraints are left out: what is installed stays")
                return []
            if path in from_gone:
                output.note(f"{from_gone[path].name} {from_gone[path].version}: {from_gone[path].said}")
                return [from_gone[path].line or text]
        name = name_in(text)
        package = packages.get(name)
        if name in gone and name not in in_image:
            output.note(f"{name} was removed by hand, so it is left out")
            return []
        if not package or (name not in changed and " @ " not in (package.line or "")):
            return [text]
        return pinned(text, dict(packages), set(in_image))

    return [stage.replace(requirements=[line for text in stage.written for line in now(text)]) for stage in stages]


def lines_for(added: Mapping[str, VenvPackage]) -> list[str]:
    """Return the requirements for packages, by normalized name, without those that others of them need."""
    needed = {normal_name(one.name) for package in added.values() for one in map(parsed, package.requires) if one}
    return [package.line for name, package in sorted(added.items()) if name not in needed and package.line]


def record_of(installation: Installation) -> Record:
    """Return the record with the current packages; if they have changed, its stages have exact versions."""
    record, packages = installation.record, packages_of(installation)
    if packages is None:
        return record
    before = record.venv_versions
    if before == {name: package.version for name, package in packages.items()}:
        return record
    return record.replace(
        artifacts={
            name: value
            for name, value in record.artifacts.items()
            if name in packages and packages[name].version == before.get(name)
        },
        stages=[stage.properties for stage in pinned_stages(record, packages)],
        venv_packages=[f"{packages[name].name}=={packages[name].version}" for name in sorted(packages)],
    )


def pinned_stages(record: Record, packages: dict[str, VenvPackage]) -> list[Stage]:
    """Return stages that install the current packages; those of the record keep their options."""
    left = {name: package for name, package in packages.items() if name not in venv.TOOLS}
    in_image = set(record.image_versions)
    stages = []
    for stage in stages_of(record.stages):
        lines = [line for text in stage.written for line in pinned(text, left, in_image)]
        if lines or not stage.has_only():
            stages.append(stage.replace(requirements=as_lines(lines)))
    more = [package.line for _, package in sorted(left.items()) if package.line]
    if not more:
        return stages
    made = requirements.split_into_stages(more)
    if len(made) > 1:
        # build tools, other packages, and packages built against torch
        return [
            *stages,
            *(stage.replace(name=f"{stage.name} (pinned)", requirements=as_lines(stage.written)) for stage in made),
        ]
    if stages and stages[0].has_only() and not any(" --hash=" in line for line in stages[0].written):
        first, *others = stages
        return [first.replace(requirements=as_lines([*first.written, *more])), *others]
    return [Stage(name="pinned", requirements=as_lines(more)), *stages]


def as_lines(lines: Iterable[str]) -> str:
    """Return lines as one text."""
    return "".join(f"{line}\n" for line in lines)


def pinned(text: str, left: dict[str, VenvPackage], in_image: set[str]) -> list[str]:
    """
    Return a requirement line with the exact version: a list of one line, or none if its package has been removed.

    The package of the line is taken out of `left`; `in_image` are the names of the packages of the image.
    """
    line = without_comment(text)
    if not line or line.startswith("-"):
        return [line] if line else []
    match = re.fullmatch(
        r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?P<extras>\[[^\]]*\])?\s*(?:[=<>!~(][^;@]*)?"
        r"(?P<marker>;.*)?",
        line,
    )
    name = normal_name(match.group("name")) if match else name_in(line)
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


def taken(line: str, left: dict[str, VenvPackage]) -> Optional[VenvPackage]:
    """Return the package that was installed from the URL or path in a line, and take it out of the others."""
    where = re.sub(r"[@#].*", "", line.rpartition(" @ ")[2].removeprefix("git+")) or line
    name = next(
        (name for name, package in left.items() if package.line and "/" in package.line and where in package.line), None
    )
    return left.pop(name) if name else None
