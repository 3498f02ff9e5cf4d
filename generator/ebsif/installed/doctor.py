"""Check that this machine has everything that is needed to install container modules."""

import contextlib
import dataclasses
import importlib.util
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic import container
from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif import processes
from ebsif.catalog.container import Container
from ebsif.catalog.site import Site
from ebsif.eb import framework, running
from ebsif.files import home, is_there
from ebsif.installed import places
from ebsif.installed.health import machine
from ebsif.report import output
from ebsif.report.findings import ERROR, NOTE, OK, WARNING, Finding

LONGEST = 60  # seconds for a program to print its version
VERSION_FILE = "container/files/VERSION"
VERSION = Path(container.__file__).parents[1].joinpath(VERSION_FILE).read_text(encoding="utf-8").strip()
# What the easyconfig prints before the path of the easyblock.
FOUND_AT = "ebsif-doctor: "
# An easyconfig for nothing but asking eb whether it finds the easyblocks, and where.
EASYCONFIG = f"""\
easyblock = 'ContainerVenv'
name = 'ebsif-doctor'
version = '1'
homepage = ''
description = ''
toolchain = SYSTEM
try:
    from os.path import realpath as local_realpath
    from easybuild.easyblocks.generic import containervenv as local_module
    print('{FOUND_AT}' + local_realpath(local_module.__file__))
except ImportError:
    pass
"""


def examine(modules: Sequence[str]) -> list[Finding]:
    """Return the findings on each part; `modules` are those that the site's users load to have EasyBuild."""
    easybuild, modules_tool = find_easybuild(modules), find_modules_tool()
    return [
        easybuild,
        # without these two, eb stops before it searches
        *(find_easyblocks() if ERROR not in (easybuild.level, modules_tool.level) else []),
        *machine.starting(),
        find_program("mksquashfs", ["mksquashfs"], "install squashfs-tools", version_option="-version"),
        find_program(
            "unsquashfs", ["unsquashfs"], "install squashfs-tools", version_option="-version", statuses=(0, 1)
        ),
        modules_tool,
        *find_removed_module(),
        *find_user_packages(),
    ]


def examine_site(profile: Site, containers: list[Container]) -> list[Finding]:
    """Return the findings on the catalog of a site and on each of its image directories."""
    images = profile.images
    findings = [Finding(OK, "site", f"{profile.name}: {output.format_count(len(containers), 'container')}")]
    for directory in images.directories:
        place = images.current_root / directory.path
        there = "" if is_there(place) else ": not on this machine"
        # a path with placeholders is different for each container
        if "{" not in directory.path:
            findings.append(Finding(NOTE if there else OK, "images", f"{place}, {directory.stability}{there}"))
    return findings


def find_easybuild(modules: Sequence[str]) -> Finding:
    """Return a Finding on eb: is it installed, and does it run? Wrappers of a loaded module may hide its Python."""
    # as ebsif finds it, which runs it with its own Python
    own = Path(sys.executable).with_name("eb")
    remedy = (
        f"run `module load {' '.join(modules)}`"
        if modules
        else "load the site's EasyBuild module, or install it with pip"
    )
    found = find_program(
        "EasyBuild",
        ["eb", str(own)],
        remedy,
        environment=None if shutil.which("eb") else {**os.environ, "EB_PYTHON": sys.executable},
    )
    version = re.match(r"EasyBuild (\d+)\.(\d+)", found.text)
    if version and tuple(map(int, version.groups())) < framework.OLDEST:
        return Finding(
            ERROR,
            found.subject,
            f"{found.text}, is too old: load or install EasyBuild {'.'.join(map(str, framework.OLDEST))} or newer",
        )
    if found.level == OK and not importlib.util.find_spec("easybuild.tools"):
        return Finding(
            ERROR,
            found.subject,
            f"{found.text}, but {sys.executable}, which runs ebsif, can't import it: "
            "add its Python packages to PYTHONPATH",
        )
    loaded = running.container_modules(os.environ)
    if found.level == OK or not loaded:
        return found
    return dataclasses.replace(
        found,
        text=f"{found.text}; the commands of {', '.join(loaded)} hide the machine's "
        "own: unload the module before you run eb yourself",
    )


def find_program(
    part: str,
    names: Sequence[str],
    remedy: str,
    version_option: str = "--version",
    statuses: Sequence[int] = (0,),
    environment: Optional[dict[str, str]] = None,
) -> Finding:
    """Return a Finding on the first of some programs on PATH: does it print its version, with one of the statuses?"""
    for name in names:
        path = shutil.which(name)
        if path:
            try:
                answer = processes.run([path, version_option], LONGEST, environment=environment)
            except processes.NoAnswerError as error:
                return Finding(ERROR, part, f"{error}: is its file system slow, or gone?")
            said = (answer.stdout + answer.stderr).strip().splitlines()[:1]
            if said and answer.returncode in statuses:
                return Finding(OK, part, f"{said[0].removeprefix('This is ').rstrip('.')}, {path}")
            told = "".join(f": {line}" for line in said)
            return Finding(ERROR, part, f"{path} doesn't run (exit status {answer.returncode}){told}")
    return Finding(ERROR, part, f"{' or '.join(names)} not on PATH: {remedy}")


def remedy_for(text: str) -> str:
    """Return what to do about a failure of eb, from its output, beyond what that says."""
    if "root privileges" in text:
        return "Run this as the user who installs software"
    if "Failed to import easyblock" in text or "glob pattern" in text:
        # EasyBuild names the directory of its links
        with contextlib.suppress(framework.EbError), contextlib.redirect_stderr(io.StringIO()):
            framework.session()
        return (
            f"Correct include-easyblocks ({', '.join(framework.INCLUDED)}), or the file there; beside container*.py"
            f" there has to be the directory easyblocks/generic/container of ebsif {VERSION}"
        )
    is_refused = "modules tool can not be used" in text or "configuration options" in text
    return "Correct EasyBuild's configuration" if is_refused else "Install ebsif in the Python environment of that eb"


def find_easyblocks() -> list[Finding]:
    """Return the findings on whether eb, perhaps of another Python, finds our easyblocks and easyconfigs."""
    part = "easyblocks"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ebsif-doctor-1.eb")
        path.write_text(EASYCONFIG, encoding="utf-8")
        answer = running.run([path, "--dry-run"])
    if answer.returncode == 0:
        return [compare_versions(part, answer.stdout), find_easyconfigs()]
    options = running.finding_easyblocks() if "Failed to obtain class" in answer.stdout else []
    if options:
        return [
            Finding(NOTE, part, f"eb finds them with {shlex.join(options)}, which ebsif adds when it runs eb"),
            find_easyconfigs(),
        ]
    errors = [line for line in answer.stdout.splitlines() if line.startswith("ERROR")] or [answer.stdout.strip()]
    # some messages of EasyBuild end without a full stop
    return [Finding(ERROR, part, f"eb --dry-run fails: {' '.join(errors).rstrip('.')}. {remedy_for(answer.stdout)}")]


def compare_versions(part: str, text: str) -> Finding:
    """Return a Finding on whether the easyblocks that eb has found, as it said, are those of this version of ebsif."""
    path = re.search(rf"^{FOUND_AT}(.*)/", text, re.MULTILINE)
    if not path:
        return Finding(OK, part, "eb finds them")
    file = Path(path[1], VERSION_FILE)
    # 0.1 had no such file
    version = file.read_text(encoding="utf-8").strip() if is_there(file) else "0.1"
    if version == VERSION:
        return Finding(OK, part, "eb finds them")
    return Finding(
        ERROR,
        part,
        f"eb finds easyblocks of ebsif {version} in {path[1]}, but this is ebsif {VERSION}: "
        "replace container and container*.py there with its easyblocks/generic",
    )


def find_easyconfigs() -> Finding:
    """Return a Finding on where eb finds easyconfigs by their names, and on those that are installed with ebsif."""
    setting = re.search(r"^robot-paths +\(\w\) = (.*)", running.run(["--show-config"]).stdout, re.MULTILINE)
    places = setting.group(1).split(", ") if setting else []
    text = f"eb finds those in {', '.join(places) or 'no directory'} by name"
    spec = importlib.util.find_spec("easybuild.easyconfigs")
    own = (spec and spec.submodule_search_locations) or []
    others = [place for place in own if os.path.realpath(place) not in map(os.path.realpath, places)]
    if others:
        text += f"; those in {', '.join(others)} need their path"
    return Finding(OK, "easyconfigs", text)


def find_modules_tool() -> Finding:
    """Return a Finding on Lmod or Environment Modules, from the variables that they set and EasyBuild reads."""
    for part, variable in (("Lmod", "LMOD_CMD"), ("Environment Modules", "MODULES_CMD")):
        path = os.environ.get(variable)
        if path and Path(path).exists():
            return Finding(OK, "modules tool", f"{part}, {path}")
    return Finding(
        ERROR,
        "modules tool",
        "neither LMOD_CMD nor MODULES_CMD is set: start a login shell, or source "
        "the init script of Lmod or Environment Modules",
    )


def find_removed_module() -> list[Finding]:
    """Return a Finding if the loaded container module, or its user software, was removed: no container starts then."""
    root, mounted = os.environ.get("CONTAINERROOT"), os.environ.get("EBSIF_MOUNTED_USER_SOFTWARE")
    if not root:
        return []
    module = os.environ.get("EBSIF_LOADED_MODULE") or root
    if not is_there(Path(root)):
        # modules tools can't unload it
        return [Finding(WARNING, "loaded module", f"{module} was removed while it was loaded: open a new shell")]
    if mounted and not is_there(Path(mounted)):
        return [
            Finding(
                WARNING,
                "loaded module",
                f"{mounted} was removed after {module} was loaded, so no container "
                "starts: put it back, or unload the module and load it again to go on without it",
            )
        ]
    return []


def find_user_packages() -> list[Finding]:
    """Return the findings on packages in ~/.local, which images prefer without a module (S002-41)."""
    findings = []
    module = places.loaded()
    image = lockfile.normalized(module.record.image_packages) if module else {}
    for folder in sorted(home().glob(".local/lib/python3*/site-packages")):
        # leftovers of an interrupted pip (~umpy) have no metadata; Python 3.14 returns None for that
        known = [found for found in distributions(path=[str(folder)]) if found.metadata and found.metadata["Name"]]
        packages = {found.metadata["Name"]: found.version for found in known}
        if packages:
            text = f"{folder}: " + ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
            shadows = sorted(name for name in packages if normal_name(name) in image)
            if shadows:
                text += f"; would shadow the image's {', '.join(shadows)}"
            findings.append(Finding(NOTE, "user packages", text + "; modules ignore them"))
    return findings
