"""Change an installed extension: add, remove or replace packages, while all others keep their exact versions."""

import contextlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from easybuild.easyblocks.generic.container.record.lockfile import versions_in
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.container import Container
from ebsif.catalog.stages import Stage, append, lines_of
from ebsif.environments import bases
from ebsif.errors import EbsifError
from ebsif.installed import current, ownfiles, places
from ebsif.installed.names import Names
from ebsif.installed.places import Installation
from ebsif.packages import requirements, venv
from ebsif.packages.formats import requirementstxt
from ebsif.packages.formats.wanted import KnownImage, collected
from ebsif.packages.lines import extras_in, name_in, names_in, parsed, with_extras
from ebsif.packages.venv import VenvPackage
from ebsif.report import output
from ebsif.text import did_you_mean

if TYPE_CHECKING:
    from packaging.requirements import Requirement

BUILD_TOOLS = "build tools"


@dataclass
class Environment:
    """
    The packages on top of an image, and what was asked for to get them.

    `stages` are what the user asked for, including packages added by hand; the first of them, `inherited` in number,
    are those of the `base`, unless that is gone. `packages` are in user software, by normalized name.
    `by_hand` are the lines of the packages added by hand. `asked_before` and `lines_before` are what was asked for
    before the stages were changed, and `needed_before` the packages that this needed. `has_system`: whether there are
    packages of the image's distribution, too.
    """

    module: str
    stages: list[Stage]
    inherited: int
    packages: dict[str, VenvPackage]
    image: KnownImage
    base: Optional[Container] = None
    changed_by_hand: bool = False
    has_system: bool = False
    by_hand: Sequence[str] = ()
    asked_before: Sequence[Stage] = ()
    lines_before: frozenset[str] = frozenset()
    needed_before: frozenset[str] = frozenset()

    @property
    def own(self) -> list[Stage]:
        """The stages of the extension itself."""
        return self.stages[self.inherited :]

    def set_own(self, stages: Sequence[Stage]) -> None:
        """Replace the stages of the extension itself."""
        self.stages = [*self.stages[: self.inherited], *stages]

    @property
    def lines(self) -> list[str]:
        """All requirement lines."""
        return lines_of(self.stages)

    @property
    def asked(self) -> list[Stage]:
        """What was asked for, to compare: the stages without comments."""
        return [stage.replace(requirements=stage.lines) for stage in self.stages]

    @property
    def is_changed(self) -> bool:
        """Whether anything else is asked for than before."""
        return self.asked != self.asked_before

    @property
    def pins(self) -> list[str]:
        """The packages to keep, as requirements: not those that change, what these need, and what nothing needs."""
        changing = {*self.needed_by(line for line in self.lines if not self.suits(line)), *self.unneeded}
        return [
            f"{package.name}=={package.version}"
            for name, package in sorted(self.packages.items())
            if name not in changing and "/" not in (package.line or "")
        ]

    def suits(self, line: str) -> bool:
        """Return whether the installed version of a package satisfies a requirement line; not another URL or path."""
        package, wanted = self.packages.get(name_in(line)), parsed(line)
        if not (wanted and not wanted.url) and line not in self.lines_before:
            return not package
        return not (package and wanted) or wanted.specifier.contains(package.version, prereleases=True)

    def name_of(self, line: str) -> str:
        """Return the normalized name of the package of a requirement line, also of one that has only a path or URL."""
        name = name_in(line)
        found = current.taken(line, dict(self.packages)) if "/" in line and name not in self.packages else None
        return normal_name(found.name) if found else name

    def needed_by(self, lines: Iterable[str]) -> dict[str, VenvPackage]:
        """Return the packages that requirement lines name, and all that these need, by normalized name."""
        needed: dict[str, VenvPackage] = {}
        done = set()
        left = [(self.name_of(line), frozenset(extras_in(line))) for line in lines]
        while left:
            name, extras = left.pop()
            if (name, extras) in done or name not in self.packages:
                continue
            done.add((name, extras))
            needed[name] = self.packages[name]
            left += [
                (normal_name(one.name), frozenset(one.extras))
                for one in map(parsed, self.packages[name].requires)
                if one and self.applies(one, extras)
            ]
        return needed

    def applies(self, wanted: "Requirement", extras: Iterable[str]) -> bool:
        """Return whether a package with these extras has a requirement in the image."""
        return not wanted.marker or any(
            wanted.marker.evaluate({**values, "extra": extra})
            for values in self.image.marker_environments
            for extra in (*extras, "")
        )

    @property
    def unneeded(self) -> dict[str, VenvPackage]:
        """
        The packages that the stages no longer need, by normalized name.

        Some are needed by packages of the image with an extra, whose metadata isn't here. So only those count that the
        stages needed before.
        """
        needed = self.needed_by(self.lines)
        return {
            name: package
            for name, package in self.packages.items()
            if name not in needed and name in self.needed_before
        }

    def who_needs(self, name: str) -> str:
        """Return the names of the packages that need a package, with a verb."""
        users = [
            package.name
            for other, package in sorted(self.needed_by(self.lines).items())
            if other != name
            and any(
                normal_name(wanted.name) == name and self.applies(wanted, ())
                for wanted in map(parsed, package.requires)
                if wanted
            )
        ]
        return f"{' and '.join(users) or 'another package'} need{'' if len(users) > 1 else 's'}"


# --- what an installed extension has now


def environment_of(installation: Installation, container: Container, names: Names) -> Environment:
    """Return the current packages of an installation with the container of its easyconfig, and what was asked for."""
    packages, base = packages_of(installation), base_of(installation, names)
    stages, inherited = container.stages, base.stages if base else []
    record = installation.record
    image = KnownImage(record.versions.get("python"), record.image_versions, record.image.sha256)
    environment = Environment(
        places.word(installation), stages, number_shared(stages, inherited), packages, image, base
    )
    add_changes_by_hand(environment, record.venv_versions)
    environment.asked_before = environment.asked
    environment.lines_before = frozenset(environment.lines)
    environment.needed_before = frozenset(environment.needed_by(environment.lines))
    return environment


def packages_of(installation: Installation) -> dict[str, VenvPackage]:
    """Return the packages in user software, or the recorded ones if it can't be read, by normalized name."""
    packages = current.packages_of(installation)
    if packages is None:
        packages = {
            normal_name(name): VenvPackage(name, version, f"{name}=={version}", None)
            for name, version in versions_in(installation.record.venv_packages).items()
        }
    return {name: package for name, package in packages.items() if name not in venv.TOOLS}


def base_of(installation: Installation, names: Names) -> Optional[Container]:
    """Return the container that an extension extends: of the catalog or installed; None if it's gone."""
    with contextlib.suppress(EbsifError):
        # not another module whose name begins with that of the base
        found = names.exact(installation.base) if installation.base else None
        return bases.of_installation(found, names.site) if isinstance(found, Installation) else found
    return None


def number_shared(stages: Sequence[Stage], inherited: Sequence[Stage]) -> int:
    """Return how many stages at the beginning are also those of another container."""
    number = 0
    for one, other in zip(stages, inherited):
        if one.name != other.name or one.lines != other.lines:
            break
        number += 1
    return number


def add_changes_by_hand(environment: Environment, before: Mapping[str, str]) -> None:
    """Adapt stages to the packages that were added, changed or removed by hand since the installation."""
    packages = environment.packages
    changed = {name for name, package in packages.items() if before.get(name, package.version) != package.version}
    environment.changed_by_hand = before.keys() - venv.TOOLS != packages.keys() or bool(changed)
    environment.stages = [
        stage.replace(
            requirements=[line for text in stage.written for line in line_now(text, environment, changed, before)]
        )
        for stage in environment.stages
    ]
    added = {name: package for name, package in packages.items() if name not in before}
    environment.by_hand = lines = lines_for(added)
    if lines:
        output.note(
            f"{environment.module} has packages that were added by hand, which are taken along: {', '.join(lines)}"
        )
        add_lines(environment, lines, "by hand")
    for package in added.values():
        if package.said:
            output.note(f"{package.name} {package.version}: {package.said}")


def line_now(text: str, environment: Environment, changed: set[str], before: Mapping[str, str]) -> list[str]:
    """Return a requirement line as it has to be to get the current packages: one line or none."""
    name = name_in(text)
    package = environment.packages.get(name)
    if not name or (package and name not in changed and " @ " not in (package.line or "")):
        return [text]
    if name in before and not package and name not in environment.image.packages:
        output.note(f"{name} was removed by hand, so it is left out")
        return []
    return current.pinned(text, dict(environment.packages), set(environment.image.packages)) if package else [text]


def lines_for(added: Mapping[str, VenvPackage]) -> list[str]:
    """Return the requirements for packages, by normalized name, without those that others of them need."""
    needed = {normal_name(one.name) for package in added.values() for one in map(parsed, package.requires) if one}
    return [package.line for name, package in sorted(added.items()) if name not in needed and package.line]


def report_left_behind(installation: Installation, name: str, wanted: Sequence[Stage]) -> None:
    """Name what was added by hand to an installation that a new extension of a name, with what is wanted, lacks."""
    before = set(installation.record.venv_versions)
    added = {
        one: package
        for one, package in (current.packages_of(installation) or {}).items()
        if one not in before | venv.TOOLS
    }
    asked = names_in(lines_of(wanted))
    lines = [line for line in lines_for(added) if name_in(line) not in asked]
    if lines:
        output.note(
            f"{places.word(installation)} has packages that were added by hand, which are not taken along: "
            f"{', '.join(lines)} (to add them once it is installed: ebsif extend {name} --add "
            f"{shlex.join(lines)})"
        )
    ownfiles.report_left_behind(installation)


# --- changes


def parse(texts: Iterable[str], option: str = "--add") -> list[str]:
    """
    Return packages of the command line, which an option has, as lines of a requirements.txt, with absolute paths.

    Each package has one line, which replaces that of the extension.
    """

    def lines_in(text: str) -> list[str]:
        if Path(text).suffix in (".txt", ".toml", ".lock", ".yml", ".yaml") and Path(text).is_file():
            raise EbsifError(
                f"{option} '{text}' is a file: to add the packages that are in it, use -r {shlex.quote(text)}"
            )
        if (
            ("/" in text or text in (".", ".."))
            and Path(text).is_dir()
            and not any(Path(text, name).exists() for name in ("pyproject.toml", "setup.py"))
        ):
            raise EbsifError(
                f"{option} '{text}' is a directory, and no Python project: it has neither pyproject.toml nor setup.py"
            )
        return requirementstxt.lines_for(text, option, Path(), ())

    lines = list(dict.fromkeys(collected(texts, lines_in)))
    named: dict[str, str] = {}
    for line in lines:
        name = name_in(line)
        if name in named:
            raise EbsifError(
                f"{option} has {name} twice ('{named[name]}' and '{line}'): write all that you want of "
                "it in one requirement, such as 'einops>=0.8,<1'"
            )
        named.update({name: line} if name else {})
    if not lines:
        raise EbsifError(f"{option} names no package: write a name, such as einops")
    return lines


def joined(lines: Sequence[str], more: Iterable[str]) -> list[str]:
    """
    Return requirement lines with more of them, each in place of those for the same package.

    Raise EbsifError if they are locked: in one call of pip, all packages have a hash or none.
    """
    found: list[str] = list(lines)
    for line in more:
        name = name_in(line)
        places = [number for number, one in enumerate(found) if name and name_in(one) == name]
        if "--hash" not in line and any("--hash" in one for one in lines):
            raise EbsifError(
                f"'{line}' can't be added to packages that are locked with hashes: lock it with them, "
                "or add it in an extension of its own, on top of theirs"
            )
        line = with_extras(line, {extra for number in places for extra in extras_in(found[number])})
        found = [one for number, one in enumerate(found) if number not in places[1:]]
        found[places[0] if places else len(found) : places[0] + 1 if places else len(found)] = [line]
    return found


def add(environment: Environment, lines: Iterable[str], name: str) -> None:
    """Add packages, except those that are there already."""
    asked = set(map(name_in, environment.lines))
    new = []
    for line in lines:
        package, inside = environment.packages.get(name_in(line)), environment.image.packages.get(name_in(line))
        there, wanted = package.version if package else inside, parsed(line)
        if (
            there
            and wanted
            and not wanted.url
            and wanted.specifier.contains(there, prereleases=True)
            and (not package or name_in(line) in asked)
            and not wanted.extras
        ):
            output.note(f"{name_in(line)} {there} is in {environment.module if package else 'the image'} already")
        else:
            new.append(line)
    add_lines(environment, new, name)


def add_lines(environment: Environment, lines: Iterable[str], name: str) -> None:
    """
    Add requirement lines to the stages of the extension: each replaces the one for the same package.

    If a new stage is necessary, it has the name. Raise EbsifError if a locked package would lose its hash: in one
    call of pip, all packages have one or none.
    """
    left = []
    for line in lines:
        if name_in(line) in names_in(lines_of(environment.own)):
            environment.set_own(
                [
                    stage.replace(requirements=[in_place_of(one, line) for one in stage.written])
                    for stage in environment.own
                ]
            )
        else:
            left.append(line)
    if not left:
        return
    made = requirements.split_into_stages(left)
    last = environment.own[-1] if environment.own else None
    if last and len(made) == 1 and last.has_only("allow_replace") and not any("--hash" in one for one in last.written):
        environment.stages[-1] = last.replace(requirements=[*last.written, *left])
    else:
        environment.stages = append(environment.stages, made, name)


def in_place_of(before: str, line: str) -> str:
    """Return what a requirement line becomes by a new one: that, if it is for the same package; see `add_lines`."""
    if name_in(before) != name_in(line):
        return before
    if "--hash" in before and "--hash" not in line:
        raise EbsifError(
            f"{name_in(line)} was installed from a lock file, with a hash: give the new one, too (--add "
            f"'{name_in(line)}==VERSION --hash=sha256:...'), or lock it again and use -r"
        )
    return with_extras(line, extras_in(before))


def replace(environment: Environment, wanted: Sequence[Stage], name: str) -> None:
    """
    Replace what was asked for with stages.

    Packages added by hand stay (E-08), and so do stages of commands only, which came with system packages.
    """
    commands = [stage for stage in environment.own if not stage.lines]
    environment.stages = append([*environment.stages[: environment.inherited], *commands], wanted, name)
    asked = names_in(lines_of(wanted))
    add_lines(environment, [line for line in environment.by_hand if name_in(line) not in asked], "by hand")


def remove(environment: Environment, names: Sequence[str]) -> None:
    """Remove packages, and the stages that were there for them; raise EbsifError if one isn't the extension's."""
    without_packages = {stage.name for stage in environment.own if not stage.lines}
    removed: list[str] = []
    for text in dict.fromkeys(names):
        name = normal_name(text)
        # a project may have another name than its directory
        lines = [
            line
            for stage in environment.own
            for line in stage.written
            if name in (name_in(line), environment.name_of(line))
        ]
        if not lines:
            raise EbsifError(why_not_removable(environment, name, text))
        removed += [environment.name_of(line) for line in lines]
        environment.set_own(
            [
                stage.replace(
                    requirements=[line for line in stage.written if line not in lines],
                    allow_replace=[one for one in stage.allow_replace if normal_name(one) != name],
                )
                for stage in environment.own
            ]
        )
    own = [stage for stage in environment.own if stage.lines or stage.name in without_packages]
    if not any(stage.no_build_isolation for stage in own):
        own = [stage for stage in own if not (stage.name or "").startswith(BUILD_TOOLS)]
    if not lines_of(own) and not environment.has_system:
        raise nothing_left(environment.module)
    environment.set_own(own)
    report_removal(environment, list(dict.fromkeys(removed)))


def nothing_left(module: str) -> EbsifError:
    """Return the error for an extension from which everything would be removed."""
    return EbsifError(f"nothing would be left of {module}: remove it (ebsif remove {module})")


def report_removal(environment: Environment, names: Sequence[str]) -> None:
    """Say which packages go with the removed ones, and which removed ones stay because others need them."""
    gone = environment.unneeded
    more = [f"{package.name} {package.version}" for name, package in sorted(gone.items()) if name not in names]
    if more:
        output.note(f"also removed, because nothing else needs them: {', '.join(more)}")
    for name in names:
        if name not in environment.packages and name in environment.image.packages:
            output.note(f"{name} stays, because it is in the image")
        elif name in environment.packages and name not in gone:
            output.note(f"{name} stays, because {environment.who_needs(name)} it")


def why_not_removable(environment: Environment, name: str, text: str) -> str:
    """Return why a package can't be removed from an extension."""
    if name in names_in(lines_of(environment.stages[: environment.inherited])):
        return f"{text} belongs to the module that {environment.module} extends: remove it there"
    if name in environment.packages:
        return f"{text} can't be removed alone: {environment.who_needs(name)} it"
    if name in environment.image.packages:
        return f"{text} {environment.image.packages[name]} is in the image, from which nothing can be removed"
    # a file may have a package twice, for two Pythons, for example
    asked = list(dict.fromkeys(filter(None, map(name_in, lines_of(environment.own)))))
    return (
        f"{environment.module} has no package {text}{did_you_mean(name, asked)} (it was made with: {', '.join(asked)})"
    )


# --- how the changed extension is installed


def report_projects(environment: Environment) -> None:
    """Name the packages that can't be kept as they were installed: their source is a directory of the person."""
    for line in environment.lines:
        package = environment.packages.get(environment.name_of(line))
        if package and line in environment.lines_before and (folder := venv.directory_of(package)):
            output.note(f"{package.name} {package.version} is built again from {folder}, as that is now")


def pinned(container: Container, environment: Environment) -> Container:
    """Return a container in which the packages of an environment keep their versions."""
    return container.replace(parameters={**container.parameters, "constraints": environment.pins})
