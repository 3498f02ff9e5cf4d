"""Change an installed extension: add, remove or replace packages, while all others keep their exact versions."""

import contextlib
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.requirements import requirement_text, stages_of
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif import output
from ebsif.catalogue.container import Container
from ebsif.catalogue.families import as_parameter
from ebsif.catalogue.selection import did_you_mean
from ebsif.catalogue.site import Site
from ebsif.errors import EbsifError
from ebsif.installed import current, lock
from ebsif.installed.names import Names
from ebsif.installed.places import Installation
from ebsif.user import bases, environments, extending, requirements
from ebsif.user.environments import Package
from ebsif.user.formats import requirementstxt
from ebsif.user.formats.wanted import Image

BUILD_TOOLS = "build tools"


class ChangingError(EbsifError):
    """An extension can't be changed as requested; the message says why and what to do."""


@dataclass
class Environment:
    """
    The packages on top of an image, and what was asked for to get them.

    Attributes
    ----------
    module
        Name of the module.
    stages
        What the user asked for, including packages added by hand: the stages of the base, then those of the extension.
    inherited
        How many of the stages are those of the base.
    packages
        The packages in user software by normalized name.
    image
        Versions of the packages in the image by normalized name.
    python
        Version of the image's Python, if it is known.
    changed_by_hand
        Whether packages were added, changed or removed by hand since the installation.
    needed_before
        Normalized names of the packages that the stages needed before they were changed.
    said
        What the user should know.
    """

    module: str
    stages: list[dict]
    inherited: int
    packages: dict[str, Package]
    image: dict[str, str]
    python: Optional[str] = None
    changed_by_hand: bool = False
    needed_before: frozenset[str] = frozenset()
    said: list[str] = field(default_factory=list)

    @property
    def own(self) -> list[dict]:
        """The stages of the extension itself."""
        return self.stages[self.inherited :]

    @property
    def lines(self) -> list[str]:
        """All requirement lines."""
        return [line for stage in self.stages for line in lines_of(stage)]

    @property
    def asked(self) -> list[tuple]:
        """What was asked for, to compare: the stages without comments."""
        return [(stage.get("name"), lines_of(stage)) for stage in self.stages]

    @property
    def pins(self) -> list[str]:
        """
        The packages that keep their version, as requirements: all that are still needed.

        A package for which another version is asked for may change, and so may those that it needs.
        """
        changing = {*self.needed_by(line for line in self.lines if not self.suits(line)), *self.unneeded}
        return [f"{package.name}=={package.version}" for name, package in sorted(self.packages.items())
                if name not in changing and "/" not in (package.line or "")]

    def suits(self, line: str) -> bool:
        """Return whether the installed version of a package satisfies a requirement line."""
        package, wanted = self.packages.get(name_in(line)), parsed(line)
        return not (package and wanted) or wanted.specifier.contains(package.version, prereleases=True)

    def needed_by(self, lines: Iterable[str]) -> dict[str, Package]:
        """Return the packages that requirement lines name, and all that these need, by normalized name."""
        found: dict[str, Package] = {}
        done = set()
        left = [(name_in(line), frozenset(extras_in(line))) for line in lines]
        while left:
            name, extras = left.pop()
            if (name, extras) in done or name not in self.packages:
                continue
            done.add((name, extras))
            found[name] = self.packages[name]
            needs = filter(None, map(parsed, self.packages[name].requires))
            left += [(normal_name(one.name), frozenset(one.extras)) for one in needs if self.applies(one, extras)]
        return found

    def applies(self, wanted: Any, extras: Iterable[str]) -> bool:
        """Return whether a package with these extras has a requirement (packaging's Requirement) in the image."""
        return not wanted.marker or any(
            wanted.marker.evaluate({**values, "extra": extra})
            for values in Image(self.python).marker_environments for extra in (*extras, ""))

    @property
    def unneeded(self) -> dict[str, Package]:
        """
        The packages that the stages no longer need, by normalized name.

        Some are needed by packages of the image with an extra, whose metadata isn't here. So only those count that the
        stages needed before.
        """
        needed = self.needed_by(self.lines)
        return {name: package for name, package in self.packages.items()
                if name not in needed and name in self.needed_before}


def base_of(installation: Installation, names: Names, site: Site) -> Optional[Container]:
    """Return the container that an extension extends: of the catalogue or installed; None if it's gone."""
    with contextlib.suppress(EbsifError):
        # not another module whose name begins with that of the base
        found = names.find(installation.base, careful=True)
        return bases.of_installation(found, site) if isinstance(found, Installation) else found
    return None


def environment_of(installation: Installation, container: Container, base: Optional[Container]) -> Environment:
    """
    Return the current packages of an installation, and what was asked for, with the changes made by hand.

    Parameters
    ----------
    installation
        The installation.
    container
        The same as a container: from its easyconfig.
    base
        The container that it extends, if known.
    """
    record = installation.record
    recorded = lock.pins(record.get(lockfile.VENV_PACKAGES, []))
    packages = current.packages_of(installation)
    if packages is None:
        packages = {normal_name(name): Package(name, version, f"{name}=={version}", None)
                    for name, version in recorded.items()}
    for name in environments.TOOLS:
        packages.pop(name, None)
    image = {normal_name(name): version for name, version in lock.pins(record.get(lockfile.IMAGE_PACKAGES, [])).items()}
    stages = stages_of(as_parameter(container.requirements))
    inherited = shared_stages(stages, stages_of(as_parameter(base.requirements)) if base else [])
    found = Environment(installation.module, stages, inherited, packages, image,
                        record.get(lockfile.VERSIONS, {}).get("python"))
    before = {normal_name(name): version for name, version in recorded.items()}
    add_changes_by_hand(found, before)
    found.needed_before = frozenset(found.needed_by(found.lines))
    return found


def add_changes_by_hand(environment, before):
    """Adapt stages to the packages that were added, changed or removed by hand since the installation."""
    packages = environment.packages
    changed = {name for name, package in packages.items() if before.get(name, package.version) != package.version}
    environment.changed_by_hand = before.keys() - environments.TOOLS != packages.keys() or bool(changed)
    stages = []
    for stage in environment.stages:
        lines = [line for text in requirement_text(stage.get("requirements")).splitlines()
                 for line in line_now(text, packages, changed, environment, before)]
        stages.append({**stage, "requirements": lines})
    environment.stages = stages
    added = {name: package for name, package in packages.items() if name not in before}
    lines = lines_for(added)
    if lines:
        environment.said.append(f"{environment.module} has packages that were added by hand, which are taken along: "
                                f"{', '.join(lines)}")
        add_lines(environment, lines, "by hand")
    environment.said += [f"{package.name} {package.version}: {package.said}" for package in added.values()
                         if package.said]


def lines_for(added):
    """Return the requirements for packages (dict by name) without those that others of them need (list of str)."""
    needed = {normal_name(parsed(text).name) for package in added.values() for text in package.requires if parsed(text)}
    return [package.line for name, package in sorted(added.items()) if name not in needed and package.line]


def report_left_behind(installation: Installation, name: str) -> None:
    """
    Say which packages were added by hand to an installation, for a new extension that doesn't have them.

    Parameters
    ----------
    installation
        An installation of the container that is extended.
    name
        Name of the new extension.
    """
    before = {normal_name(one) for one in lock.pins(installation.record.get(lockfile.VENV_PACKAGES, []))}
    lines = lines_for({one: package for one, package in (current.packages_of(installation) or {}).items()
                       if one not in before | environments.TOOLS})
    if lines:
        output.note(f"{installation.module} has packages that were added by hand, which are not taken along: "
                    f"{', '.join(lines)} (to have them, too: ebsif extend {name} --add {shlex.join(lines)} --install)")


def line_now(text, packages, changed, environment, before):
    """Return a requirement line as it has to be to get the current packages: a list of one line or none."""
    name = name_in(text)
    package = packages.get(name)
    if not name or (package and name not in changed and " @ " not in (package.line or "")):
        return [text] if text.strip() else []
    if name in before and not package and name not in environment.image:
        environment.said.append(f"{name} was removed by hand, so it is left out")
        return []
    return current.pinned(text, dict(packages), set(environment.image)) if package else [text]


def shared_stages(stages, inherited):
    """Return how many stages (int) at the beginning are also those of another container."""
    number = 0
    for one, other in zip(stages, inherited):
        if one.get("name") != other.get("name") or lines_of(one) != lines_of(other):
            break
        number += 1
    # a single list of requirements is all of the extension's unless the base has the same
    return number


def add_lines(environment: Environment, lines: list[str], name: str) -> None:
    """
    Add requirement lines to the stages of the extension: each replaces the one for the same package.

    Parameters
    ----------
    environment
        The environment to change.
    lines
        The lines of a requirements.txt.
    name
        Name for a new stage, if one is necessary.
    """
    left, unhashed = [], []
    for line in lines:
        places = [(stage, number) for stage in environment.own for number, one in enumerate(stage["requirements"])
                  if name_in(one) and name_in(one) == name_in(line)]
        for stage, number in places:
            before = stage["requirements"][number]
            now = with_extras(line, extras_in(before))
            if "--hash" in before and "--hash" not in line:
                stage["requirements"][number] = ""
                unhashed.append(now)
            else:
                stage["requirements"][number] = now
        left += [] if places else [line]
    if unhashed:
        add_before_hashes(environment, list(dict.fromkeys(unhashed)), name)
    if not left:
        return
    made = stages_of(requirements.split_into_stages(left))
    last = environment.own[-1:] if len(made) == 1 else []
    # with the hash of one package, pip requires hashes of all
    if last and not set(last[0]) - current.PLAIN and not any("--hash" in line for line in last[0]["requirements"]):
        last[0]["requirements"] += left
        return
    environment.stages = [{**stage, "requirements": list(stage["requirements"])}
                          for stage in extending.append(environment.stages, made, name)]


def add_before_hashes(environment, lines, name):
    """
    Add requirement lines without hashes, for packages that had one, in a stage before those with hashes.

    In one call of pip, either all packages have a hash or none. Packages that need these find them installed.
    """
    stages = [{**stage, "requirements": list(filter(None, stage["requirements"]))} for stage in environment.stages]
    first = next(number for number, stage in enumerate(environment.stages) if "" in stage["requirements"])
    made = extending.append(stages, stages_of(requirements.split_into_stages(lines)), f"{name} without hashes")
    environment.stages = [stage for stage in [*stages[:first], *made[len(stages):], *stages[first:]]
                          if lines_of(stage) or set(stage) - current.PLAIN]
    environment.said.append(
        f"installed without checking a hash, because none is given: {', '.join(lines)} (with one: --add "
        "'NAME==VERSION --hash=sha256:...')")


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
    from easybuild.easyblocks.generic.container.reuse import REUSE_VARIABLE

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


def who_needs(environment, name):
    """Return the names of the packages that need a package, with a verb (str)."""
    needed = environment.needed_by(environment.lines)
    users = [package.name for one, package in sorted(needed.items()) if one != name and any(
        normal_name(wanted.name) == name and environment.applies(wanted, ())
        for wanted in map(parsed, package.requires) if wanted)]
    return f"{' and '.join(users) or 'another package'} need{'' if len(users) > 1 else 's'}"


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


def lines_of(stage):
    """Return the requirement lines of a stage (list of str), without comments and options."""
    lines = (line.strip() for line in requirement_text(stage.get("requirements")).splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-"))]


def name_in(line):
    """Return the normalized package name of a requirement line (str); empty for comments and options."""
    from easybuild.easyblocks.generic.container.lint import package_name

    line = line.partition(" #")[0].strip()
    return "" if not line or line.startswith(("#", "-")) else package_name(line)


def parsed(line):
    """Return a requirement line (packaging.requirements.Requirement), None if it has another form."""
    from packaging.requirements import InvalidRequirement, Requirement

    with contextlib.suppress(InvalidRequirement):
        return Requirement(re.split(r"\s(?:#|--)", line)[0].strip())
    return None


def extras_in(line):
    """Return the extras in a requirement line (set of str)."""
    wanted = parsed(line)
    return wanted.extras if wanted else set()


def with_extras(line, extras):
    """Return a requirement line for another version of a package, with the extras that were asked for before."""
    wanted = parsed(line)
    if not extras or not wanted or wanted.extras:
        return line
    return f"{wanted.name}[{','.join(sorted(extras))}]{line.strip()[len(wanted.name):]}"
