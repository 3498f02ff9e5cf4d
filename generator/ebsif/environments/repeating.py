"""Repeat an installation from its lock, which may come from another account or site."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container import newest
from easybuild.easyblocks.generic.container.record.lockfile import COPY_SUFFIX, RECORD, ImageRecord, Record, versions_in
from easybuild.easyblocks.generic.container.requirements import package_lines
from easybuild.easyblocks.generic.container.values import normal_name
from easybuild.easyblocks.generic.container.written import escape, is_file_name, is_module, is_package
from pydantic import ValidationError

from ebsif.catalog.container import Container
from ebsif.catalog.records import SystemPackages
from ebsif.catalog.stages import Stage, stages_of
from ebsif.environments import bases, making, plan, system, trust, writing
from ebsif.environments.baseimage import BaseImage
from ebsif.environments.extension import Companion, Extension
from ebsif.environments.plan import REASONS, Addition, Plan
from ebsif.environments.request import Request
from ebsif.errors import FOUND, EbsifError, UsageError
from ebsif.installed import imagestate, lock, places
from ebsif.installed.names import Names, shown
from ebsif.installed.places import Installation
from ebsif.packages import venv
from ebsif.packages.lines import names_in
from ebsif.packages.wanted import KnownImage
from ebsif.report import output


class MissingImageError(EbsifError):
    """The image of a record is not here; the message names it and says what to do, `problem` only names it."""

    def __init__(self, problem: str):
        """Add what to do."""
        super().__init__(
            f"{problem}: get that file, and `ebsif add` it to the catalog; or give the container that "
            "has it: ebsif extend CONTAINER --from-lock ..."
        )
        self.problem = problem


def repeat(request: Request, path: Path, module: Optional[str], name: Optional[str]) -> int:
    """Install what a lock says, on a module if one is named; return the exit status."""
    record, names = read(path), request.names
    name = name or name_in(record)
    base = bases.whole(names.find(module)) if module else base_of(record, names)
    if isinstance(base, Installation):
        container, installed = bases.without_extension(bases.of_installation(base, names.site), base), [base]
    else:
        container = bases.container_of(base, names)
        installed = places.called(container.module)
    stages = stages_of(record.stages)
    # --check runs commands, too: it tries the installation
    if not trust.is_agreed(request, path, stages, request.check or request.installs):
        return FOUND
    image = BaseImage.of(container, next(iter(installed), None)).known
    if not has_other_image(image, record):
        # of an installation, what is only true here is left out
        text = lock.for_others(record) if path.is_dir() else path.read_text(encoding="utf-8")
        extension = repetition(container, record, stages, name, text)
        planned = partial(check, record=record, stages=stages, request=request)
        return making.make(request, extension, planned)
    output.note(
        f"{container.module} has another image than {path}: the packages in {path} are installed in the "
        "same versions, except those that the image already has"
    )
    return making.make(request, Extension(adapted(container, image, record), name, stages))


def repetition(
    container: Container,
    record: Record,
    stages: Sequence[Stage],
    name: str,
    text: str,
    more: Optional[Mapping[str, Companion]] = None,
) -> Extension:
    """Return the extension of a container that repeats a record, the text of its lock, with more files beside it."""
    return Extension(
        repeated(container, record),
        name,
        stages,
        is_same=partial(is_same, record),
        companions={**(more or {}), "lock": writing.lock_beside(text)},
    )


def read(path: Path) -> Record:
    """Return the record in a lock file. Raise EbsifError if it can't be read or repeated."""
    return repeatable(lock.read_record(path), path)


def repeatable(record: Record, place: object) -> Record:
    """Return a record of that place, which may be somebody else's; raise EbsifError unless it can be repeated."""
    if not record.stages and record.system_layer.requested:
        raise EbsifError(
            f"{place} is the lock of a module that only adds packages of the image's system: ebsif "
            f"extend CONTAINER --apt {' '.join(record.system_layer.requested)}"
        )
    if not record.stages:
        raise EbsifError(f"{place} is the lock of a module without packages of its own: there is nothing to repeat")
    wrong = next(missing_in(record), None)
    if wrong:
        raise EbsifError(f"{place} can't be repeated: {wrong}; {lock.AGAIN}")
    return record


def missing_in(record: Record) -> Iterator[str]:
    """Yield what a record needs to be repeated and lacks; the types of its values are right."""
    if not re.fullmatch("[0-9a-f]{64}", record.image.sha256 or ""):
        yield "it has no SHA256 of the image"
    if not is_file_name(record.image.file):
        yield "its image should be the name of a file, without a directory"
    if not (record.has("venv_packages") and all(is_pin(line) for line in record.venv_packages)):
        yield "its packages should be lines like name==version"
    if not is_file_name(record.venv_name or "venv"):
        yield "its virtual environment should be the name of a directory"
    for stage in record.stages:
        try:
            modules = Stage.model_validate(stage).modules
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            yield f"in the stage '{escape(stage['name'])}', '{escape(first['loc'][0])}' is unknown or wrong"
            continue
        for name in modules:
            if not is_module(name):
                yield f"in the stage '{escape(stage['name'])}', '{escape(name)}' is not the name of a module"
    if not all(value.isprintable() for value in record.module.values()):
        yield "name, version and suffix of its module should be printable"


def is_pin(line: str) -> bool:
    """Return whether a line is a package and its version; pip would also read options in such lines."""
    name, _, version = line.partition("==")
    return is_package(name, version)


def base_of(record: Record, names: Names) -> Container:
    """Return the container with the image in a record: of the catalog, else installed. Raise MissingImageError."""
    image, module = record.image, module_of(record)
    installed = [one for one in names.everything if has_image(one, image)]
    named = {name for one in installed for name in (shown(one), one.base) if name}
    known = [
        one
        for one in names.containers
        if one.venv
        and (
            image.sha256 == one.sha256
            or (
                one.sha256 is None
                and (
                    one.module_or_version in named
                    or (module.startswith(f"{one.module_or_version}-") and one.file_name == image.file)
                )
            )
        )
    ]
    if known:
        # the one that was extended, if it is there
        return max(known, key=lambda one: module.startswith(one.module_or_version))
    for one in sorted(installed, key=lambda one: one.base is not None):
        with contextlib.suppress(EbsifError):
            container = bases.without_extension(bases.of_installation(one, names.site), one)
            if container.venv:
                return container
    raise MissingImageError(
        f"the image {image.file} of {module} is neither in an installed module nor in the "
        f"catalog (its SHA256 is {image.sha256})"
    )


def has_image(installation: Installation, image: ImageRecord) -> bool:
    """Return whether an installation has an image that a record names."""
    return (
        not installation.damage
        and installation.record.image.sha256 == image.sha256
        and imagestate.path_of(installation) is not None
    )


def module_of(record: Record) -> str:
    """Return the name of the module in a record."""
    return record.module_name or f"?/{record.full_version}"


def name_in(record: Record) -> str:
    """Return the name of the extension in a record; raise UsageError if there is none."""
    named = newest.NAMED.search(record.module_name or "")
    if not named:
        raise UsageError(f"{module_of(record)} has no name of an extension: choose one with --name")
    return named.group("name")


def repeated(container: Container, record: Record) -> Container:
    """Return a container as the base of the recorded environment: with the same image and path of the venv."""
    parameters = {key: value for key, value in container.parameters.items() if key != "constraints"}
    before = parameters.pop("venv_name", container.venv_name) or container.name.lower()
    layer = record.system_layer
    return system.replaced(container, layer.requested, layer.allow_upgrade).replace(
        sha256=record.image.sha256, parameters=parameters, venv_name=record.venv_name or before
    )


def has_other_image(image: KnownImage, record: Record) -> bool:
    """Return whether an image is known to be another one than that of a record, which can't be repeated then."""
    return image.sha256 not in (None, record.image.sha256)


def adapted(container: Container, image: KnownImage, record: Record) -> Container:
    """Return a container with another image than a record as a base for the versions that the image lacks."""
    pins = [
        f"{name}=={version}"
        for name, version in versions_in(record.venv_packages).items()
        if normal_name(name) not in image.packages and name not in venv.TOOLS
    ]
    layer = record.system_layer
    more = SystemPackages.model_construct(packages=layer.requested, allow_upgrade=layer.allow_upgrade)
    return system.joined(container.replace(parameters={**container.parameters, "constraints": pins}), more)


def is_same(record: Record, easyconfig: Path) -> bool:
    """Return whether an easyconfig, of an installation or with a lock beside it, repeats what is in a record."""

    def identity(one: Record) -> tuple:
        return one.image.sha256, one.stages, one.venv_packages, one.artifacts, one.venv_name, one.system_layer.requested

    places = (easyconfig.parent.parent / RECORD, easyconfig.with_suffix(COPY_SUFFIX))
    return any(identity(lock.read_record(place)) == identity(record) for place in places if place.is_file())


def check(container: Container, record: Record, stages: Sequence[Stage], request: Request) -> Plan:
    """Return what pip would do to repeat an installation, and whether it would install the recorded files."""
    # imports EasyBuild
    from easybuild.easyblocks.generic.container.record.installation import other_files

    pinned = container.replace(
        requirements=stages,
        parameters={**container.parameters, "constraints": record.venv_packages},
    )
    planned = plan.check(pinned, request)
    planned.problem = planned.problem or "; ".join(other_files(record, planned.artifacts))
    return planned


def recorded_plan(record: Record) -> Plan:
    """Return the plan to take all recorded packages from one file."""
    asked, dependency = REASONS
    named = names_in(package_lines(record.stages))
    added = [
        Addition(name, version, asked if normal_name(name) in named else dependency)
        for name, version in versions_in(record.venv_packages).items()
        if name not in venv.TOOLS
    ]
    return Plan(sorted(added, key=lambda one: (REASONS.index(one.why), one.name.lower())))
