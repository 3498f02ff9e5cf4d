"""Checks that run something: the module is loaded, the container is started once, packages are imported in it."""

import json
import os
import re
import subprocess
from collections.abc import Iterator

from easybuild.easyblocks.generic.container.usersoftware import USER_SOFTWARE_VARIABLE

from ebsif.findings import Finding
from ebsif.installed import runtimecommand
from ebsif.installed.health.subject import LONGEST, Subject


def load(one: Subject) -> Iterator[Finding]:
    """Does the modules tool load the module?"""
    try:
        # the module's user software, not that of the caller
        _, environment = runtimecommand.environments(one.installation.module, one.installation.use,
                                                     without=(USER_SOFTWARE_VARIABLE,))
    except runtimecommand.ModuleError as error:
        yield one.error(f"it can't be loaded: {said_by_modules_tool(str(error))}")
        return
    root = environment.get("CONTAINERROOT", "")
    if os.path.realpath(root) == os.path.realpath(one.installation.root):
        one.environment = environment
    else:
        yield one.error(f"`module load {one.installation.module}` loads the installation {root}, not "
                        f"{one.installation.root}: remove one of the two modules, or rename it")


def said_by_modules_tool(text):
    """Return the message of a module, without what Lmod says around it and what we say before it."""
    words = " ".join(text.split()).partition("can't be loaded: ")[2] or text
    return re.sub(r"Lmod has detected the following error: | While processing the following module.*", "", words)


def start(one: Subject) -> Iterator[Finding]:
    """Does the container start?"""
    try:
        result = one.read_image()
    except subprocess.TimeoutExpired:
        yield one.error(f"the container doesn't answer within {LONGEST} seconds: look at the file system of "
                        f"{one.environment.get('SIF')}, and try `module load {one.module}; start-shell`")
        return
    except (OSError, json.JSONDecodeError) as error:
        yield one.error(f"the container can't be started: {error}: install the module again with `eb --rebuild "
                        f"{one.easyconfig}`")
        return
    if "end" not in one.image_facts:
        yield one.error(f"the container doesn't start: {last_line(result.stderr)}. To try it yourself: `module load "
                        f"{one.module}; start-shell`")
    elif not one.python and last_import(result.stderr):
        yield one.error(f"importing {last_import(result.stderr)} ends Python: {last_line(result.stderr)}. Install that "
                        "package again, in a version for this image")
    elif not one.python and (one.image_packages or one.user_packages):
        yield one.error(f"Python doesn't start in the container: {last_line(result.stderr)}. To try it yourself: "
                        f"`module load {one.module}; start-shell -c 'python -V'`; if user software is the "
                        f"cause, install the module again with `eb --rebuild {one.easyconfig}`")


def imports(one: Subject) -> Iterator[Finding]:
    """Can Python import what the record names?"""
    for name, problem in sorted(one.python.get("problems", {}).items()):
        place = "user software" if name in one.user_packages else "the image"
        yield one.error(f"{name} in {place} can't be imported ({problem}): install a version of it for this image")
    missing = one.python.get("missing", [])
    if missing:
        yield one.warning(f"{', '.join(missing)}: installed according to the record, and no longer there: if that is "
                          "wanted, `ebsif freeze` writes an easyconfig of the module as it is now, else install the "
                          "module again with `eb --rebuild`")


def last_line(text):
    """Return the last line of what a program has said that isn't informational."""
    lines = [line.strip() for line in text.splitlines() if not line.startswith(("INFO:", "importing "))]
    lines = list(filter(None, lines))
    return lines[-1] if lines else "it says nothing"


def last_import(text):
    """Return the last module that was to be imported, '' if none."""
    names = [line.split()[-1] for line in text.splitlines() if line.startswith("importing ")]
    return names[-1] if names else ""
