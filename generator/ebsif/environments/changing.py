"""Change an installed extension: add, remove or replace packages, while all others keep their exact versions."""

import os
from pathlib import Path

from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue.container import Container
from ebsif.catalogue.selection import did_you_mean
from ebsif.environments import extending
from ebsif.environments.extension import Environment, add_lines, who_needs
from ebsif.errors import EbsifError
from ebsif.installed.places import Installation
from ebsif.packages.formats import requirementstxt
from ebsif.packages.requirements import lines_of, name_in, parsed

BUILD_TOOLS = "build tools"


class ChangingError(EbsifError):
    """An extension can't be changed as requested; the message says why and what to do."""


def add(environment: Environment, lines: list[str], name: str) -> None:
    """Add packages, except those that are there already."""
    new = []
    for line in lines:
        package, inside = environment.packages.get(name_in(line)), environment.image.get(name_in(line))
        asked = set(map(name_in, environment.lines))
        there = package.version if package else inside
        wanted = parsed(line)
        if there and wanted and not wanted.url and wanted.specifier.contains(there, prereleases=True) and (
                not package or name_in(line) in asked) and not wanted.extras:
            where = f"in {environment.module}" if package else "in the image"
            environment.said.append(f"{name_in(line)} {there} is {where} already")
        else:
            new.append(line)
    if new:
        add_lines(environment, new, name)


def replace(environment: Environment, wanted: list, name: str) -> None:
    """Replace the packages of the extension with others: stages, or lines of a requirements.txt."""
    environment.stages = extending.append(environment.stages[: environment.inherited], wanted, name)


def parse(texts: list[str]) -> list[str]:
    """
    Return packages of the command line as lines of a requirements.txt, with absolute paths.

    Raises
    ------
    ChangingError, RequirementsError
        If one is no requirement, or a file doesn't exist.
    """
    lines = [line for text in texts for line in requirementstxt.lines_for(text, "--add", Path(), ())]
    for line in lines:
        if "/" not in line and not parsed(line):
            raise ChangingError(f"--add '{line}' is not a requirement: write a name, with or without versions, such as "
                                "'einops>=0.8', or the path of a wheel")
    return lines


def pinned(container: Container, environment: Environment) -> Container:
    """Return a container in which the packages of an environment keep their versions."""
    return container.replace(parameters={**container.parameters, "constraints": environment.pins})


def start_from(installation: Installation) -> None:
    """Let eb start with the packages of an installation, where that leads to the same result."""
    from easybuild.easyblocks.generic.container.venv import REUSE_VARIABLE

    os.environ[REUSE_VARIABLE] = str(installation.root)


def simplest(stages: list[dict]) -> list:
    """Return stages as lines if there is only one, with nothing but requirements."""
    only, *others = stages
    return only["requirements"] if not others and only == {
        "name": "requirements", "requirements": only.get("requirements")} else stages


def remove(environment: Environment, names: list[str]) -> None:
    """
    Remove packages, and the stages that were there for them.

    Raises
    ------
    ChangingError
        If a package is not one of the extension's own; the message says whose it is.
    """
    for text in names:
        name = normal_name(text)
        found = [stage for stage in environment.own if name in map(name_in, stage["requirements"])]
        if not found:
            raise ChangingError(why_not_removable(environment, name, text))
        for stage in found:
            stage["requirements"] = [line for line in stage["requirements"] if name_in(line) != name]
    own = [stage for stage in environment.own if lines_of(stage)]
    if not any(stage.get("no_build_isolation") for stage in own):
        own = [stage for stage in own if not stage["name"].startswith(BUILD_TOOLS)]
    if not own:
        raise ChangingError(f"nothing would be left of {environment.module}: remove it (ebsif remove "
                            f"{environment.module})")
    environment.stages[environment.inherited :] = own
    report_removal(environment, [normal_name(name) for name in names])


def report_removal(environment, names):
    """Say which packages go with the removed ones, and which removed ones stay because others need them."""
    gone = environment.unneeded
    more = [f"{package.name} {package.version}" for name, package in sorted(gone.items()) if name not in names]
    if more:
        environment.said.append(f"also removed, because nothing else needs them: {', '.join(more)}")
    for name in names:
        if name not in environment.packages and name in environment.image:
            environment.said.append(f"{name} stays, because it is in the image")
        elif name not in gone:
            environment.said.append(f"{name} stays, because {who_needs(environment, name)} it")


def why_not_removable(environment, name, text):
    """Return why a package can't be removed from an extension."""
    inherited = [stage for stage in environment.stages[: environment.inherited]
                 if name in map(name_in, stage["requirements"])]
    if inherited:
        return f"{text} belongs to the module that {environment.module} extends: remove it there"
    if name in environment.packages:
        return f"{text} can't be removed alone: {who_needs(environment, name)} it"
    if name in environment.image:
        return f"{text} {environment.image[name]} is in the image, from which nothing can be removed"
    asked = [name_in(line) for stage in environment.own for line in lines_of(stage) if name_in(line)]
    return (f"{environment.module} has no package {text}{did_you_mean(name, asked)} (it was made with: "
            f"{', '.join(asked)})")
