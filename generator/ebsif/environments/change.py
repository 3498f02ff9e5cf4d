"""Change an installed extension: add, remove or replace packages, while all others keep their exact versions."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.container import Container
from ebsif.catalog.stages import Stage, append, lines_of
from ebsif.environments import bases, system
from ebsif.environments.baseimage import BaseImage
from ebsif.errors import EbsifError
from ebsif.installed import current, ownfiles, places
from ebsif.installed.names import Names
from ebsif.installed.places import Installation
from ebsif.packages import requirements, venv
from ebsif.packages.lines import extras_in, has_hash, name_in, names_in, parsed, with_extras
from ebsif.packages.venv import VenvPackage
from ebsif.report import output
from ebsif.text import did_you_mean


@dataclass(frozen=True)
class Environment:
    """
    The packages on top of an image, and what was asked for to get them.

    `module` is the word for its module. `own` are the stages of the extension itself, with packages added by hand;
    those of its base come before, as far as they are the same: `inherited`. The `base` is None if it's gone. `packages`
    are in user software, by normalized name; `by_hand` are the lines of those that were added by hand, and
    `changed_by_hand` says whether any were added, changed or removed. `container` has packages of the image's
    distribution, too. `before` is the environment as it was before a command changed it, and `problem` why it can't be
    installed, as far as it is known.
    """

    module: str
    container: Container
    image: BaseImage
    packages: Mapping[str, VenvPackage]
    inherited: tuple[Stage, ...] = ()
    own: tuple[Stage, ...] = ()
    base: Optional[Container] = None
    by_hand: Sequence[str] = ()
    changed_by_hand: bool = False
    before: Optional["Environment"] = None
    problem: str = ""

    def replace(self, **changes: Any) -> "Environment":
        """Return the environment as a command changes it."""
        return replace(self, **{"before": self.before or self, **changes})

    def with_own(self, stages: Iterable[Stage], more: Sequence[Stage] = (), name: str = "") -> "Environment":
        """Return it with other stages of its own, followed by more, whose names are made unique by another name."""
        return self.replace(own=tuple(append([*self.inherited, *stages], more, name)[len(self.inherited) :]))

    @property
    def stages(self) -> list[Stage]:
        """All stages."""
        return [*self.inherited, *self.own]

    @property
    def lines(self) -> list[str]:
        """All requirement lines."""
        return lines_of(self.stages)

    @property
    def is_changed(self) -> bool:
        """Whether anything else is asked for than at the installation, besides comments."""
        before = self.before or self
        return (
            self.changed_by_hand
            or self.container.system != before.container.system
            or [stage.replace(requirements=stage.lines) for stage in self.stages]
            != [stage.replace(requirements=stage.lines) for stage in before.stages]
        )

    @property
    def has_system(self) -> bool:
        """Whether it has packages of the image's distribution that its base lacks."""
        return bool(system.own(self.container, self.base))

    @property
    def pins(self) -> list[str]:
        """The packages to keep, as requirements: not those that change, what these need, and what nothing needs."""
        changing = {*self.needed_by(line for line in self.lines if not self.suits(line)), *self.unneeded}
        return [
            f"{package.name}=={package.version}"
            for name, package in sorted(self.packages.items())
            if name not in changing and "/" not in (package.line or "")
        ]

    @property
    def pinned(self) -> Container:
        """The container, in which its packages keep their versions."""
        return self.container.replace(parameters={**self.container.parameters, "constraints": self.pins})

    def suits(self, line: str) -> bool:
        """Return whether the installed version of a package satisfies a requirement line; not another URL or path."""
        package, wanted = self.packages.get(name_in(line)), parsed(line)
        if not (wanted and not wanted.url) and line not in (self.before or self).lines:
            return not package
        return not (package and wanted) or wanted.specifier.contains(package.version, prereleases=True)

    def name_of(self, line: str) -> str:
        """Return the normalized name of the package of a requirement line, also of one that has only a path or URL."""
        name = name_in(line)
        found = current.taken(line, dict(self.packages)) if "/" in line and name not in self.packages else None
        return normal_name(found.name) if found else name

    @cached_property
    def needed(self) -> dict[str, VenvPackage]:
        """The packages that its stages need, by normalized name."""
        return self.needed_by(self.lines)

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
                if one and self.image.known.needs(one, extras)
            ]
        return needed

    @property
    def unneeded(self) -> dict[str, VenvPackage]:
        """
        The packages that the stages no longer need, by normalized name.

        Some are needed by packages of the image with an extra, whose metadata isn't here. So only those count that the
        stages needed before.
        """
        needed, before = self.needed, (self.before or self).needed
        return {name: package for name, package in self.packages.items() if name not in needed and name in before}

    def who_needs(self, name: str) -> str:
        """Return the names of the packages that need a package, with a verb."""
        users = [
            package.name
            for other, package in sorted(self.needed.items())
            if other != name
            and any(
                normal_name(wanted.name) == name and self.image.known.needs(wanted)
                for wanted in map(parsed, package.requires)
                if wanted
            )
        ]
        return f"{' and '.join(users) or 'another package'} need{'' if len(users) > 1 else 's'}"


# --- what an installed extension has now


def environment_of(installation: Installation, names: Names, given: Optional[Path] = None) -> Environment:
    """
    Return the current packages of an installation, and what was asked for, adapted to what was changed by hand.

    `given` is the image on the command line.
    """
    word, container = places.word(installation), bases.of_installation(installation, names.site)
    base = bases.base_of(installation, names)
    shared = number_shared(container.stages, base.stages if base else ())
    packages, before = current.packages_or_recorded(installation), installation.record.venv_versions
    image = BaseImage.of(container, installation, packages, given, names)
    changed = {name for name, package in packages.items() if before.get(name, package.version) != package.version}
    added = {name: package for name, package in packages.items() if name not in before}
    gone = before.keys() - packages.keys() - venv.TOOLS
    had = installation.record.local_files
    stages = current.stages_now(container.stages, packages, changed, gone, image.known.packages, had)
    by_hand = current.lines_for(added)
    environment = Environment(
        word,
        container,
        image,
        packages,
        tuple(stages[:shared]),
        tuple(stages[shared:]),
        base,
        by_hand,
        bool(changed or added or gone),
    )
    return with_by_hand(environment, added.values()) if added else environment


def environment_on(
    container: Container,
    installation: Optional[Installation],
    names: Names,
    given: Optional[Path],
    with_packages: bool,
) -> Environment:
    """
    Return what a new extension of a container starts with, which may be installed.

    `given` is the image on the command line. Its packages are read only if they are needed.
    """
    hidden = names_in(lines_of(container.stages)).union(installation.record.venv_versions if installation else ())
    return Environment(
        container.module,
        container,
        BaseImage.of(container, installation, hidden, given, names),
        current.packages_or_recorded(installation) if installation and with_packages else {},
        tuple(container.stages),
        base=container,
    )


def number_shared(stages: Sequence[Stage], inherited: Sequence[Stage]) -> int:
    """Return how many stages at the beginning are also those of another container."""
    number = 0
    for one, other in zip(stages, inherited):
        if one.name != other.name or one.lines != other.lines:
            break
        number += 1
    return number


def with_by_hand(environment: Environment, added: Iterable[VenvPackage]) -> Environment:
    """Return an environment with the packages that were added by hand; say so."""
    lines = environment.by_hand
    if lines:
        output.note(
            f"{environment.module} has packages that were added by hand, which are taken along: {', '.join(lines)}"
        )
    for package in added:
        if package.said:
            output.note(f"{package.name} {package.version}: {package.said}")
    return replace(with_lines(environment, lines, "by hand"), before=None)


def report_left_behind(installation: Installation, name: str, wanted: Sequence[Stage]) -> None:
    """Name what was added by hand to an installation that a new extension of a name, with what is wanted, lacks."""
    before = set(installation.record.venv_versions)
    added = {
        one: package
        for one, package in (current.packages_of(installation) or {}).items()
        if one not in before | venv.TOOLS
    }
    asked = names_in(lines_of(wanted))
    lines = [line for line in current.lines_for(added) if name_in(line) not in asked]
    if lines:
        output.note(
            f"{places.word(installation)} has packages that were added by hand, which are not taken along: "
            f"{', '.join(lines)} (to add them once it is installed: ebsif extend {name} --add "
            f"{shlex.join(lines)})"
        )
    ownfiles.report_left_behind(installation)


# --- changes


def with_system(
    environment: Environment, add: Sequence[str], allowed: Sequence[str], remove: Sequence[str] = ()
) -> Environment:
    """Return an environment with more, and without other packages of the image's distribution; see `system`."""
    container = environment.container
    if remove:
        container = system.removed(container, remove, environment.module, environment.base)
    return environment.replace(container=system.added(container, add, allowed))


def add(environment: Environment, lines: Iterable[str], name: str) -> Environment:
    """Return an environment with more packages, except those that are there already; a new stage has the name."""
    asked = set(map(name_in, environment.lines))
    new = []
    for line in lines:
        package, inside = environment.packages.get(name_in(line)), environment.image.known.packages.get(name_in(line))
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
    return with_lines(environment, new, name)


def with_lines(environment: Environment, lines: Iterable[str], name: str) -> Environment:
    """
    Return an environment with requirement lines in its own stages: each replaces the one for the same package.

    If a new stage is necessary, it has the name. Raise EbsifError if a locked package would lose its hash: in one
    call of pip, all packages have one or none.
    """
    own, left = list(environment.own), []
    for line in lines:
        if name_in(line) in names_in(lines_of(own)):
            own = [stage.replace(requirements=[in_place_of(one, line) for one in stage.written]) for stage in own]
        else:
            left.append(line)
    made = requirements.split_into_stages(left)
    last = own[-1] if own else None
    if last and len(made) == 1 and last.has_only("allow_replace") and not any(map(has_hash, last.written)):
        own[-1] = last.replace(requirements=[*last.written, *left])
        made = []
    return environment.with_own(own, made, name)


def in_place_of(before: str, line: str) -> str:
    """Return what a requirement line becomes by a new one: that, if it is for the same package; see `with_lines`."""
    if name_in(before) != name_in(line):
        return before
    if has_hash(before) and not has_hash(line):
        raise EbsifError(
            f"{name_in(line)} was installed from a lock file, with a hash: give the new one, too (--add "
            f"'{name_in(line)}==VERSION --hash=sha256:...'), or lock it again and use -r"
        )
    return with_extras(line, extras_in(before))


def with_all(environment: Environment, wanted: Sequence[Stage], name: str) -> Environment:
    """
    Return an environment with stages in place of what was asked for.

    Packages added by hand stay (E-08), and so do stages of commands only, which came with system packages.
    """
    commands = [stage for stage in environment.own if not stage.lines]
    asked = names_in(lines_of(wanted))
    return with_lines(
        environment.with_own(commands, wanted, name),
        [line for line in environment.by_hand if name_in(line) not in asked],
        "by hand",
    )


def remove(environment: Environment, names: Sequence[str]) -> tuple[Environment, list[str]]:
    """
    Return an environment without packages, and the stages that were there for them; and their normalized names.

    Raise EbsifError if one isn't the extension's.
    """
    without_packages = {stage.name for stage in environment.own if not stage.lines}
    own, removed = environment.own, list[str]()
    for text in dict.fromkeys(names):
        name = normal_name(text)
        # a project may have another name than its directory
        lines = [line for stage in own for line in stage.written if name in (name_in(line), environment.name_of(line))]
        if not lines:
            raise EbsifError(why_not_removable(environment, name, text))
        removed += [environment.name_of(line) for line in lines]
        own = tuple(
            stage.replace(
                requirements=[line for line in stage.written if line not in lines],
                allow_replace=[one for one in stage.allow_replace if normal_name(one) != name],
            )
            for stage in own
        )
    own = tuple(stage for stage in own if stage.lines or stage.name in without_packages)
    if not any(stage.no_build_isolation for stage in own):
        own = tuple(stage for stage in own if not (stage.name or "").startswith(requirements.BUILD_TOOLS))
    return environment.with_own(own), list(dict.fromkeys(removed))


def require_rest(environment: Environment) -> None:
    """Raise EbsifError if an extension would have nothing any more that its base lacks."""
    if not lines_of(environment.own) and not environment.has_system:
        raise EbsifError(
            f"nothing would be left of {environment.module}: remove it (ebsif remove {environment.module})"
        )


def report_removal(environment: Environment, names: Sequence[str]) -> None:
    """Say what goes with packages that were removed from an environment, and which stay because others need them."""
    gone = environment.unneeded
    more = [f"{package.name} {package.version}" for name, package in sorted(gone.items()) if name not in names]
    if more:
        output.note(f"also removed, because nothing else needs them: {', '.join(more)}")
    for name in names:
        if name not in environment.packages and name in environment.image.known.packages:
            output.note(f"{name} stays, because it is in the image")
        elif name in environment.packages and name not in gone:
            output.note(f"{name} stays, because {environment.who_needs(name)} it")


def why_not_removable(environment: Environment, name: str, text: str) -> str:
    """Return why a package can't be removed from an extension."""
    if name in names_in(lines_of(environment.inherited)):
        return f"{text} belongs to the module that {environment.module} extends: remove it there"
    if name in environment.packages:
        return f"{text} can't be removed alone: {environment.who_needs(name)} it"
    if name in environment.image.known.packages:
        return f"{text} {environment.image.known.packages[name]} is in the image, from which nothing can be removed"
    # a file may have a package twice, for two Pythons, for example
    asked = list(dict.fromkeys(filter(None, map(name_in, lines_of(environment.own)))))
    return (
        f"{environment.module} has no package {text}{did_you_mean(name, asked)} (it was made with: {', '.join(asked)})"
    )


# --- how the changed extension is installed


def report_projects(environment: Environment) -> None:
    """Name the packages that can't be kept as they were installed: their source is a directory of the person."""
    before = (environment.before or environment).lines
    for line in environment.lines:
        package = environment.packages.get(environment.name_of(line))
        if package and line in before and (folder := venv.directory_of(package)):
            output.note(f"{package.name} {package.version} is built again from {folder}, as that is now")
