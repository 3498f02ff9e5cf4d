"""Checks that run something: the module is loaded, the container is started once, packages are imported in it."""

import json
import os
import re
from collections.abc import Iterator

from easybuild.easyblocks.generic.container.packages import InstalledPackages
from easybuild.easyblocks.generic.container.record.lockfile import replacement, versions_in
from easybuild.easyblocks.generic.container.smoketest import remedy
from easybuild.easyblocks.generic.container.values import USER_SOFTWARE_VARIABLE, normal_name

from ebsif.installed import places, runtimecommand
from ebsif.installed.health.subject import Subject
from ebsif.processes import NoAnswerError
from ebsif.remedies import completed
from ebsif.report.findings import Finding
from ebsif.servers import open_packages


def load(one: Subject) -> Iterator[Finding]:
    """Does the modules tool load the module?"""
    try:
        # the module's user software, not that of the caller
        _, environment = runtimecommand.environments(
            one.installation.module, one.installation.use, without=(USER_SOFTWARE_VARIABLE,)
        )
    except runtimecommand.ModuleError as error:
        yield one.error(f"it can't be loaded: {said_by_modules_tool(str(error))}")
        return
    root = environment.get("CONTAINERROOT", "")
    if os.path.realpath(root) == os.path.realpath(one.installation.root):
        one.environment = environment
    else:
        yield one.error(
            f"`{one.load}` loads the installation {root or 'of nothing'}, not {one.installation.root}: "
            "remove one of the two modules, or rename it"
        )


def said_by_modules_tool(text: str) -> str:
    """Return the message of a module, without what Lmod says around it and what we say before it."""
    words = " ".join(text.split()).partition("can't be loaded: ")[2] or text
    return re.sub(r"Lmod has detected the following error: | While processing the following module.*", "", words)


def start(one: Subject) -> Iterator[Finding]:
    """Does the container start?"""
    try:
        result = one.read_image()
    except NoAnswerError as error:
        yield one.error(
            f"{error}: look at the file system of {one.environment.get('SIF')}. To try it yourself: "
            f"`{one.load} && start-shell`"
        )
        return
    except (OSError, json.JSONDecodeError) as error:
        yield one.error(f"the container can't be started: {error}: install the module again with `{one.rebuild}`")
        return
    if "end" not in one.image_facts:
        yield one.error(
            f"the container doesn't start: {last_line(result.stderr)}. To try it yourself: `{one.load} && start-shell`"
        )
    elif not one.python and (one.image_packages or one.user_packages):
        yield one.error(
            f"Python doesn't start in the container: {last_line(result.stderr)}. To try it yourself: "
            f"`{one.load} && start-shell -c 'python -V'`. If user software is the cause, install the "
            f"module again with `{one.rebuild}`"
        )


def imports(one: Subject) -> Iterator[Finding]:
    """Can Python import what the record names?"""

    def where(name: str) -> str:
        return f"{name} in {'user software' if name in one.user_packages else 'the image'}"

    # matplotlib-inline, of every Jupyter kernel, is for programs with matplotlib, but doesn't require it
    for name, module in sorted(one.python.get("without", {}).items()):
        yield one.note(
            f"{where(name)} can only be imported together with {module}, which it doesn't require and which "
            f"isn't installed: add {module} if you need it"
        )
    for problem in one.python.get("problems", []):
        names = ", ".join(map(where, problem["names"]))
        if one.gpu in problem["gpu"] and not one.machine.gpu:
            yield one.note(
                f"{names} can only be imported on a node with a GPU ({problem['error']}), so it was not checked here"
            )
        else:
            why = f"; {problem['why']}" if problem["why"] else ""
            way = completed(remedy(problem), [*places.changing(one.installation)[1:]])
            yield one.error(f"{names} can't be imported ({problem['error']}{why}). {' '.join(way.split())}")
    if slow := one.python.get("slow"):
        yield one.warning(f"importing takes too long, so these were not checked: {', '.join(slow)}")
    missing = one.python.get("missing", [])
    if missing:
        name = "" if one.installation.extension else " --name mine"
        yield one.warning(
            f"{', '.join(missing)}: in the record of the installation, but no longer there. Install the "
            f"module again with `{one.rebuild}`, or, if this is what you want, write an easyconfig of "
            f"the module as it is now with `ebsif lock {one.module} --format eb{name}`"
        )


def replaced(one: Subject) -> Iterator[Finding]:
    """Which packages of the image are hidden by others, perhaps installed by hand, and what do these break?"""
    if "listing" not in one.python:
        return
    image = InstalledPackages(
        (normal_name(name), (name, version, "")) for name, version in versions_in(one.record.image_packages).items()
    )
    for found in InstalledPackages.from_listing(one.python["listing"]).replaced_in(image):
        finding = one.warning if found["breaks"] else one.note
        yield finding(replacement(**found))


def servers(one: Subject) -> Iterator[Finding]:
    """Could others use what `ebsif job` starts with packages of the module? (Y-02)"""
    for reason in open_packages({**one.image_packages, **one.user_packages}):
        yield one.note(
            f"{reason}, so `ebsif job` starts it only on nodes that the job doesn't share, or with --insecure. Add a "
            "newer one with `ebsif extend`"
        )


def last_line(text: str) -> str:
    """Return the last line of the output of a program that isn't informational."""
    lines = [line.strip() for line in text.splitlines() if not line.startswith("INFO:")]
    lines = list(filter(None, lines))
    return lines[-1] if lines else "no output"
