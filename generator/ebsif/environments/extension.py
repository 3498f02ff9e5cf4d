"""An extension to change: its packages, what was asked for to get them, and adding to that."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Optional

from easybuild.easyblocks.generic.container.requirements import stages_of
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.environments import extending
from ebsif.installed import current
from ebsif.packages import requirements
from ebsif.packages.formats.wanted import Image
from ebsif.packages.requirements import extras_in, lines_of, name_in, parsed, with_extras
from ebsif.packages.venv import Package


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


def who_needs(environment, name):
    """Return the names of the packages that need a package, with a verb (str)."""
    needed = environment.needed_by(environment.lines)
    users = [package.name for one, package in sorted(needed.items()) if one != name and any(
        normal_name(wanted.name) == name and environment.applies(wanted, ())
        for wanted in map(parsed, package.requires) if wanted)]
    return f"{' and '.join(users) or 'another package'} need{'' if len(users) > 1 else 's'}"
