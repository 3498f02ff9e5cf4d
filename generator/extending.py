"""Extending a container with packages of one's own: an easyconfig with a suffix of its own, and looking ahead."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ebsif import inspection, output, requirements
from ebsif.catalogue import Stage
from ebsif.errors import EbsifError
from packaging.utils import canonicalize_name
from pydantic import ValidationError


class ExtendingError(EbsifError):
    """A container can't be extended; the message says why and what to do."""


@dataclass
class Plan:
    """What pip would do in the image."""

    added: list
    there: list
    size: int


def extend(container, wanted, name, date):
    """
    Return a container (Container) with packages on top, whose module can't replace that of the plain one.

    Parameters
    ----------
    container : Container
        What is extended.
    wanted : list of dict or of str
        Stages, or lines of a requirements.txt.
    name, date : str
        For the version suffix.

    Raises
    ------
    ExtendingError
        If the container can't have packages on top, or the name can't be part of a suffix.
    """
    if not container.venv:
        raise ExtendingError(f"{container.module} has no user software (no 'venv' in the catalogue), so nothing can be "
                             "put on top of it")
    for text in (name, date):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.]*", text):
            raise ExtendingError(f"'{text}' can't be part of a version suffix (letters, digits, _ and . only)")
    lines = list(wanted)
    if wanted and isinstance(wanted[0], dict):
        try:
            lines = [Stage.model_validate(stage) for stage in wanted]
        except ValidationError as error:
            first = error.errors()[0]
            raise ExtendingError(f"a stage is not as it should be: {'.'.join(map(str, first['loc']))}: {first['msg']} "
                                 "(docs/easyconfigs.md lists its properties)") from None
    description = container.fill(container.description or container.name).strip()
    # what the image is called does not change with the module
    return container.but(
        file=container.file_name, suffix=f"{container.versionsuffix}-{name}-{date}", requirements=lines,
        description=f"{description}\nWith packages of one's own.")


def image_of(container, named=None):
    """
    Return the path of the image of a container on this machine (Path).

    Raises
    ------
    ExtendingError
        If it is not there.
    """
    if named:
        return Path(named)
    places = [path for _, path in container.image_places]
    for path in places:
        if path.is_file():
            return path
    looked = ", ".join(str(path) for path in places) or "no directory is known for the site"
    raise ExtendingError(f"the image of {container.module} is not here ({looked}): name it with --image FILE")


def check(image, wanted):
    """
    Return what pip would do in an image, without installing anything (Plan).

    Parameters
    ----------
    image : Path
        The image.
    wanted : list
        Stages, or lines.

    Raises
    ------
    ExtendingError
        If pip finds no solution: a package of the image would have to be replaced, for instance.
    """
    found = inspection.inspect(image, checksum=False)
    if not found.python:
        raise ExtendingError(f"{image} has no Python")
    from easybuild.easyblocks.generic.containerlint import package_name
    from easybuild.easyblocks.generic.containerpackages import constraint_lines

    installed = {canonicalize_name(name): version for name, version in found.python["packages"].items()}
    parts = [stage if isinstance(stage, dict) else {"requirements": [stage]} for stage in wanted]
    lines = list(dict.fromkeys(line for part in parts for line in part["requirements"]))
    isolated = not any(part.get("no_build_isolation") for part in parts)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
        constraints = constraint_lines((name, version) for name, version in found.python["packages"].items()
                                       if canonicalize_name(name) not in ("pip", "setuptools", "wheel"))
        (place / "constraints.txt").write_text("".join(f"{line}\n" for line in constraints))
        command = [found.python["executable"], "-m", "pip", "install", "--dry-run", "--no-input",
                   "--report", f"{place}/report.json",
                   "--disable-pip-version-check",
                   "-c", f"{place}/constraints.txt", "-r", f"{place}/requirements.txt"]
        if not isolated:
            command.append("--no-build-isolation")
        result = run_pip(image, found, command, place)
        if result.returncode:
            raise ExtendingError(explain(result.stdout + result.stderr, installed))
        report = json.loads((place / "report.json").read_text())
    added = [(item["metadata"]["name"], item["metadata"]["version"]) for item in report["install"]]
    names = {canonicalize_name(name) for name, _ in added}
    asked = [package_name(line) for line in lines if not line.startswith("-")]
    there = [(name, installed[name]) for name in asked if name in installed and name not in names]
    size = sum(item["download_info"].get("archive_info", {}).get("size", 0) or 0 for item in report["install"])
    return Plan(sorted(added), sorted(there), size)


def run_pip(image, found, command, place):
    """Run pip in the image with what it needs of this machine; return the CompletedProcess."""
    runtime = shutil.which("apptainer") or shutil.which("singularity")
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("APPTAINER", "SINGULARITY", "PYTHON", "CONDA", "VIRTUAL_ENV"))}
    environment["APPTAINERENV_PYTHONNOUSERSITE"] = environment["SINGULARITYENV_PYTHONNOUSERSITE"] = "1"
    binds = [str(place), *([os.environ["EBSIF_INSTALL_BIND"]] if os.environ.get("EBSIF_INSTALL_BIND") else [])]
    words = [runtime, "--silent", "exec", "--no-home", "--pwd", "/",
             *[word for bind in binds for word in ("--bind", bind)], found.resolved, *command]
    output.command(words)
    return subprocess.run(
        words, capture_output=True, text=True, env=environment, check=False,
        stdin=subprocess.DEVNULL)


def explain(said, installed):
    """Return what pip's failure means (str)."""
    lines = [line for line in said.strip().splitlines() if line.strip()]
    if "no such option: --dry-run" in said or "no such option: --report" in said:
        return "the pip of the image is too old to look ahead (22.2 is needed): leave out --check"
    named = re.search(r"(?:constraint\)?|requested \(constraint\)) ([A-Za-z0-9_.-]+)==", said)
    if named and canonicalize_name(named.group(1)) in installed:
        package = named.group(1)
        return (f"the image has {package} {installed[canonicalize_name(package)]}, which stays as it is, and the "
                "requirements want another one: change the requirement\n" + "\n".join(lines[-8:]))
    return "pip finds no solution:\n" + "\n".join(lines[-12:])


def size_of_download(plan):
    """Return the size of what would be downloaded, as far as the index says it (str)."""
    return f"{plan.size / 1e6:.1f} MB" if plan.size else "not said by the index"


def stages_from(path, per_stage):
    """Return the stages (list) of one file, or of several with names: [(name, path)]."""
    if path:
        wanted = requirements.read(requirements.path_of(path))
        return requirements.stages(wanted.lines), wanted.impossible
    stages, impossible = [], []
    for name, file in per_stage:
        wanted = requirements.read(requirements.path_of(file))
        impossible += wanted.impossible
        stage = {"name": name, "requirements": wanted.lines}
        made = requirements.stages(wanted.lines)
        if isinstance(made[0], dict):
            stage["no_build_isolation"] = True
        stages.append(stage)
    return stages, impossible
