"""Look into images that are accessible here, and compare their content with the records (`ebsif check --deep`)."""

from collections.abc import Callable, Iterator
from pathlib import Path

from easybuild.easyblocks.generic.container.packages import is_version
from easybuild.easyblocks.generic.container.sitevalues import CONDA_ROOT, INIT_CONDA, INIT_NONE
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.container import Container
from ebsif.catalog.guess.programs import missing_programs
from ebsif.catalog.guess.versionguess import packages_of
from ebsif.catalog.selection import SNAPSHOT
from ebsif.check.records import Creator
from ebsif.files import is_there
from ebsif.images import inspection
from ebsif.images.inspection import Inspection, InspectionError
from ebsif.render import easyconfig
from ebsif.report.findings import ERROR, WARNING
from ebsif.report.steps import Steps

# Returns the inspection of an image.
Inspector = Callable[[Path], Inspection]


def inspect(path: Path) -> Inspection:
    """Inspect an image without reading all of it, and show that this takes a while."""
    with Steps() as steps:
        steps.begin(f"looking into {path.name}", important=False)
        return inspection.inspect(path, checksum=False)


def check_contents(container: Container, finding: Creator, inspector: Inspector) -> Iterator:
    """Yield findings on the content of an accessible image: Python, its environment, packages, components, programs."""
    path = next((path for _, path in container.image_places if is_there(path)), None)
    if not path:
        return
    try:
        content = inspector(path)
        for level, problems in (
            (ERROR, environment_problems),
            (ERROR, wrong_packages),
            (WARNING, wrong_components),
            (ERROR, program_problems),
        ):
            yield from (
                finding(level, f"{path} has {text}: correct the record, or put the right image there")
                for text in problems(container, content)
            )
    except InspectionError as error:
        yield finding(ERROR, str(error))


def environment_problems(container: Container, found: Inspection) -> Iterator[str]:
    """Yield how the Python environment of an image differs from the record."""
    python = found.python and found.python.version
    if container.init in INIT_CONDA:
        prefix = f"{container.conda_root or CONDA_ROOT}/envs/{container.conda_env or container.name.lower()}"
        there = {one.prefix: one.python for one in found.conda}
        if found.conda_root and found.python:
            # the one that the image says how to activate
            there[f"{found.conda_root}/envs/{found.conda_env}"] = found.python.version
        if prefix not in there:
            yield f"no Conda environment {prefix} (it has: {', '.join(sorted(there)) or 'none'})"
            return
        python = there[prefix]
    elif container.init != INIT_NONE and not found.python:
        yield f"no Python, but 'init' is '{container.init}'"
        return
    if container.python and python and not is_version(python, container.python):
        yield f"Python {python}, not {container.python}"


def wrong_packages(container: Container, found: Inspection) -> Iterator[str]:
    """Yield the Python packages whose versions differ from the record, as the installation would."""
    there = packages_of(found)
    for name, version in easyconfig.image_packages(container).items():
        inside = there.get(normal_name(name))
        if not inside:
            yield f"no {name}, but the record has {name} {version}"
        elif not is_version(inside, version):
            yield f"{name} {inside}, not {version}"


def wrong_components(container: Container, found: Inspection) -> Iterator[str]:
    """Yield the other components whose versions differ from the record."""
    checked = {normal_name(name) for name in easyconfig.image_packages(container)}
    if container.package:
        # a package with the name of the software is another one
        checked.add(normal_name(container.name))
    # requirements may add packages, or replace those of the image
    there = {**({} if container.requirements else packages_of(found)), **found.components}
    for name, recorded in container.versions.items():
        version = there.get(name)
        if version and name not in checked and not SNAPSHOT.fullmatch(recorded) and not is_version(version, recorded):
            yield f"{name} {version}, not {recorded}"


def program_problems(container: Container, found: Inspection) -> Iterator[str]:
    """Yield which programs of the record an image lacks."""
    missing = missing_programs(container, lambda names: inspection.programs(found, names))
    if missing:
        yield f"no program {', '.join(sorted(missing))}, which 'wrappers' names"
    if container.entry_point and not inspection.programs(found, [container.entry_point]):
        yield f"no program {container.entry_point}, which is the 'entry_point'"
