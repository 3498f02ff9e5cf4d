"""Add packages of a user to a container: the container with its own version suffix, and a check with pip."""

import glob
import itertools
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from easybuild.easyblocks.generic.container import lockfile, modulerc, newest
from easybuild.easyblocks.generic.container.requirements import are_stages, stages_of
from pydantic import ValidationError

from ebsif.catalogue import selection
from ebsif.catalogue.container import Container
from ebsif.catalogue.records import Stage, as_parameter
from ebsif.eb import framework
from ebsif.errors import EbsifError, UsageError
from ebsif.installed import lock, places
from ebsif.installed.names import shown
from ebsif.installed.places import Installation
from ebsif.packages.formats.wanted import Image

TODAY = "%Y%m%d"
# Ends the description of an extension.
ADDITION = "\nWith additional packages of the user's choice."
# The name of a stage that installs nothing.
COMMANDS = "commands"


class ExtendingError(EbsifError):
    """A container can't be extended; the message says why and what to do."""


def extend(container: Container, wanted: Union[Sequence, dict], name: str, date: str) -> Container:
    """
    Return a container with packages on top, whose module can't replace that of the plain container.

    `wanted` are stages, lines of a requirements.txt, or the lock of an installation to repeat; name and date become
    part of the version suffix. Raise ExtendingError if the container can't be extended, or a name is not valid there.
    """
    if wanted and not container.venv:
        has_commands_only = [stage.get("name") for stage in stages_of(wanted)] == [COMMANDS]
        what = "can't have --post or --verify" if has_commands_only else "can't be extended"
        raise ExtendingError(f"{container.module} {what}: it has no user software ('venv' in the catalogue, the "
                             "easyblock ContainerVenv in an easyconfig)")
    check_names(name, date)
    lines = wanted
    if are_stages(wanted):
        try:
            lines = [Stage.model_validate(stage) for stage in wanted]
        except ValidationError as error:
            first = error.errors()[0]
            raise ExtendingError(f"invalid stage: {'.'.join(map(str, first['loc']))}: {first['msg']} "
                                 f"(properties of a stage: {', '.join(Stage.model_fields)})") from None
    description = container.fill(container.description or container.name).strip()
    description = f"{description.removesuffix(ADDITION)}{ADDITION}"
    # the name of the image does not change with that of the module, nor where it is if the site has it
    image = container.site.extension_image if container.image_kind != "central" else "central"
    # the user's module is new and visible, whatever has become of its base
    warnings = [*container.warnings, f"its base {container.archive_message}"] if container.archived else \
        container.warnings
    return container.replace(
        file=container.file_name, image=image, suffix=f"{container.versionsuffix}-{name}-{date}", requirements=lines,
        description=description, aliases=[f"{container.full_version}-{name}", name], archived=None, warnings=warnings)


def on_top(container: Container, wanted: list, name: str) -> list:
    """Return the stages of a container followed by new ones, stages or lines, each with a name of its own (E-04)."""
    stages = stages_of(as_parameter(container.requirements))
    return append(stages, wanted, name) if stages else wanted


def append(stages: list[dict], wanted: list, name: str) -> list[dict]:
    """Return stages followed by new ones, which get another name if there is a stage of that name; see `on_top`."""
    joined = list(stages)
    for stage in stages_of(wanted):
        taken = {one.get("name") for one in joined}
        candidates = (f"{stage['name']} ({name}{number})" for number in ("", *(f" {one}" for one in range(2, 100))))
        if stage.get("name") in taken:
            stage["name"] = next(one for one in candidates if one not in taken)
        joined.append(stage)
    return joined


def with_commands(wanted: list, properties: dict[str, Any]) -> list:
    """
    Return stages or lines with properties of stages.

    Packages of all stages are built without isolation; commands run after the last one, after those that it has.
    Without Python packages (--apt alone), the commands have a stage of their own. Raise UsageError if there is nothing
    to build.
    """
    stages = stages_of(wanted)
    if not properties:
        return wanted
    if not stages and "no_build_isolation" in properties:
        raise UsageError("--no-build-isolation is for Python packages: add some with --add or -r, or leave it out")
    stages = stages or [{"name": COMMANDS}]
    for stage in stages if "no_build_isolation" in properties else ():
        stage["no_build_isolation"] = True
    for name in properties.keys() - {"no_build_isolation"}:
        before = stages[-1].get(name) or []
        stages[-1][name] = [*before, *(command for command in properties[name] if command not in before)]
    return stages


def of_name(module: str, name: str) -> dict[str, Installation]:
    """Return the installed extensions of a module with a name, by date, the newest one last."""
    extensions = {one.extension[1]: one for one in places.everything()
                  if one.base == module and one.extension and one.extension[0] == name}
    return dict(sorted(extensions.items(), key=lambda item: newest.date_key(item[0])))


def times_of_records(module: str, name: str) -> dict[str, int]:
    """Return when the extensions of a module with a name were installed, by directory, also those that others have."""
    return {os.path.realpath(one.root): modulerc.time_of(str(one.root)) for one in places.everything()
            if one.base == module and one.extension and one.extension[0] == name}


def of_today(module: str, name: str) -> dict[str, Installation]:
    """Return the installed extensions of a module with a name and today's date, perhaps with a number."""
    today = rf"{time.strftime(TODAY)}(\.\d+)?"
    return {date: one for date, one in of_name(module, name).items() if re.fullmatch(today, date)}


def free_dates(module: str, name: str) -> Iterator[str]:
    """Yield today's date with the numbers after those of the extensions that are installed; the first has none."""
    today, earlier = time.strftime(TODAY), list(of_today(module, name))
    last = int(earlier[-1].partition(".")[2] or 1) if earlier else 0
    for number in itertools.count(last + 1):
        yield today if number == 1 else f"{today}.{number}"


def check_names(name: str, date: Optional[str] = None) -> None:
    """Raise ExtendingError unless the name and the date of an extension are valid in a version suffix."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.]*", name):
        raise ExtendingError(f"--name '{name}': use only letters, digits, _ and .")
    if date is not None and not re.fullmatch(f"(?!_){newest.DATE}", date):
        raise ExtendingError(f"--date '{date}': use only letters, digits, _ and . before a number "
                             f"({time.strftime(TODAY)}.2)")


def sources(container: Container) -> str:
    """Return eb's option for the directories that may have the image: EasyBuild's, the site's, of installations."""
    stable = [path for stability, path in container.image_places if container.moving or stability != "moving"]
    loaded = [Path(os.environ["SIF"])] if os.environ.get("SIF") else []
    installed = [Path(path) for one in places.everything()
                 if (one.recorded_name or shown(one)).startswith(f"{container.name}/")
                 for path in [lockfile.InstalledImage(str(one.root)).path] if path]
    # also of recipes that were written by hand
    installed += sorted((framework.prefix()[0] / container.name).glob(f"*/{glob.escape(container.file_name)}"))
    folders = [path.parent for path in (*stable, *loaded, *installed)
               if path.name == container.file_name and path.is_file()]
    return "--sourcepath=" + ":".join(dict.fromkeys(map(str, [*framework.source_paths(), *folders])))


def no_image(container: Container) -> ExtendingError:
    """Return the error that the image of a container isn't found."""
    places = [str(path.parent) for _, path in container.image_places]
    return ExtendingError(
        f"the image of {container.module} is not found ({container.file_name} is neither in EasyBuild's source "
        f"paths nor in {', '.join(places) or 'a directory of the site'}): give its path with --image FILE")


def known_image(container: Container) -> Image:
    """Return what the catalogue, or the record of an installation, says about the image of a container."""
    packages = selection.components_of(container)
    python = packages.pop("python", None)
    digest = container.sha256
    modules = places.known(places.directories_of_modules(), container.module)
    roots = [getattr(container, "root", None), *(one.root for one in modules)]
    for root in roots:
        if root and (root / lockfile.RECORD).is_file():
            record = lock.read(root)
            digest = record.image.sha256 or digest
            python = record.versions.get("python", python)
            packages.update(record.image_versions)
            break
    # the catalogue may say just 3
    return Image(python if re.fullmatch(r"\d+(\.\d+)+", python or "") else None, packages, digest)
