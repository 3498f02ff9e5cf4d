"""Checks that run something: the module is loaded, the container is started once, packages are imported in it."""

import json
import subprocess
from collections.abc import Iterator

from ebsif.findings import Finding
from ebsif.installed import runtimecommand
from ebsif.installed.health.subject import LONGEST, Subject


def load(one: Subject) -> Iterator[Finding]:
    """Does the modules tool load the module?"""
    try:
        _, one.environment = runtimecommand.environments(one.installation.module, one.installation.use)
    except runtimecommand.ModuleError as error:
        yield one.error(" ".join(str(error).split()))


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
