"""From what was typed to an Extension: of a container, of an installed module, changed, or repeated from a lock."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import Optional, Union

from easybuild.easyblocks.generic.container import remedies
from easybuild.easyblocks.generic.container.record import lockfile

from ebsif.catalog.container import Container
from ebsif.catalog.records import system_of
from ebsif.catalog.stages import Stage, append, lines_of, stages_of, with_commands
from ebsif.environments import (
    bases,
    change,
    indexes,
    installing,
    making,
    pytorch,
    repeating,
    replacing,
    system,
    trust,
    writing,
)
from ebsif.environments.change import Environment
from ebsif.environments.earlier import Earlier
from ebsif.environments.extension import ExtendingError, Extension
from ebsif.environments.request import Request, require_places
from ebsif.errors import FOUND, UsageError
from ebsif.installed import ownfiles, places
from ebsif.installed.names import shown
from ebsif.installed.places import Installation
from ebsif.packages import requirements, venv
from ebsif.packages.formats.wanted import KnownImage, WantedPackages, WrongLinesError
from ebsif.packages.lines import names_in
from ebsif.packages.venv import VenvPackage
from ebsif.report import output
from ebsif.report.asking import confirmed

# the name of an extension that gets none
NAME = "mine"
# Installs nothing, for somebody who has said no.
DECLINED = None


@dataclass(frozen=True)
class Wish:
    """What `ebsif extend` is asked for: what to extend, the packages, the commands, and what is to be done with it."""

    request: Request
    module: Optional[str] = None
    name: Optional[str] = None
    requirements: Sequence[Path] = ()
    from_venv: Optional[Path] = None
    from_lock: Optional[Path] = None
    extras: Sequence[str] = ()
    groups: Sequence[str] = ()
    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    apt: Sequence[str] = ()
    remove_apt: Sequence[str] = ()
    allow_upgrade: Sequence[str] = ()
    replace: Sequence[str] = ()
    force: bool = False
    # for bash, as they were typed, and whether packages are built without isolation; see `with_commands`
    commands: Stage = field(default_factory=Stage)

    @property
    def changes_system(self) -> bool:
        """Whether packages of the image's distribution are added or removed."""
        return any((self.apt, self.remove_apt, self.allow_upgrade))

    @property
    def names_all(self) -> bool:
        """Whether a file or environment says all that the extension is to have."""
        return bool(self.requirements or self.from_venv)

    @property
    def added(self) -> list[str]:
        """The options with packages that are not meant as all that the extension has."""
        lists = {} if self.names_all else {"--add": self.add, "--apt": self.apt}
        return [word for option, names in lists.items() if names for word in (option, *names)]

    @property
    def lists(self) -> dict[str, Sequence[str]]:
        """The options with lists of packages."""
        return {
            "--add": self.add,
            "--remove": self.remove,
            "--apt": self.apt,
            "--remove-apt": self.remove_apt,
            "--allow-upgrade": self.allow_upgrade,
            "--replace": self.replace,
        }


def make(wish: Wish) -> int:
    """Write the easyconfig of an extension, check or install it, as was typed; return the exit status."""
    check_combinations(wish)
    require_places(wish.request)
    if wish.from_lock:
        return repeat(wish, wish.from_lock)
    found = find_base(wish)
    try:
        extension = on_installed(wish, found) if isinstance(found, Installation) else on_container(wish, found)
    except WrongLinesError as error:
        raise ExtendingError("\n".join(filter(None, [str(error), problem_besides(wish, found, error.lines)]))) from None
    if extension is DECLINED:
        return FOUND
    return (
        installing.nothing_to_do(extension, as_json=wish.request.json)
        if isinstance(extension, Installation)
        else making.make(wish.request, extension)
    )


def check_combinations(wish: Wish) -> None:
    """Raise UsageError for options that contradict each other, or lack another one."""
    if wish.remove and wish.names_all:
        raise UsageError("--remove can't be combined with -r or --from-venv, which name all packages of the extension")
    if wish.from_lock and (wish.add or wish.remove):
        raise UsageError("--from-lock repeats an installation exactly: leave out --add and --remove")
    if wish.replace and wish.from_lock:
        raise UsageError("--from-lock repeats an installation exactly: leave out --replace")
    if wish.force and not wish.replace:
        raise UsageError("--force is for --replace; to install a module again: --rebuild")
    if wish.from_lock and wish.commands.properties:
        raise UsageError(
            "--from-lock installs exactly what is locked: leave out --post, --verify and --no-build-isolation"
        )
    if (wish.extras or wish.groups) and not wish.requirements:
        raise UsageError("--extra and --group need -r")
    if wish.from_lock and wish.changes_system:
        raise UsageError("--from-lock installs what is in the lock: change system packages afterwards")


def find_base(wish: Wish) -> Union[Installation, Container]:
    """Return what is to be extended: the installation of a module, unless it's just a container of the catalog."""
    names = wish.request.names
    for option, words in wish.lists.items():
        # a package may be called like a container, so with a loaded module, only a version tells
        if words and not wish.module and ("/" in words[-1] or not places.loaded()) and names.named(words[-1]):
            raise UsageError(
                f"no container given: after {option}, {words[-1]} is a package. Put the container first: "
                f"ebsif extend {words[-1]} {option} ..."
            )
    found = names.find(wish.module)
    if isinstance(found, Path) and (found.parent.parent / lockfile.RECORD).is_file():
        found = places.of_directory(found.parent.parent)
    if isinstance(found, Installation) and shown(found) not in {one.module_or_version for one in names.containers}:
        extended = found.extension[0] if found.extension else None
        if not (extended and wish.name in (None, extended)):
            require_packages(wish, places.word(found), extended)
        return found
    require_packages(wish, getattr(found, "module", str(found)))
    return bases.container_of(found, names)


def require_packages(wish: Wish, found: str, extended: Optional[str] = None) -> None:
    """Raise an error if a new extension would have no packages, or if what only changes an extension was typed."""
    if wish.remove or wish.remove_apt:
        raise ExtendingError(
            f"{'--remove' if wish.remove else '--remove-apt'} changes an extension"
            + (f": leave out --name {wish.name}" if extended else f", but {found} is not one (`ebsif list --mine`)")
        )
    if not any((wish.names_all, wish.add, wish.replace, wish.apt)):
        raise UsageError(
            "say what to add: --add PACKAGE, --apt PACKAGE, -r FILE, --from-venv DIRECTORY, --from-lock FILE, or "
            "--replace PACKAGE==VERSION"
        )


# --- what is made


def on_container(wish: Wish, container: Container) -> Optional[Extension]:
    """Return an extension of a container, of the catalog or an easyconfig; None if the person doesn't go on."""
    name = wish.name or NAME
    container = system.added(container, wish.apt, wish.allow_upgrade)
    installed = places.called(container.module)[:1]
    image = bases.known_image(container, installed)
    wanted = with_commands(wanted_packages(wish, image), wish.commands)
    own = change.packages_of(installed[0]) if wish.replace and installed else {}
    if not is_accepted(wish, container, own):
        return DECLINED
    for installation in installed:
        change.report_left_behind(installation, name, wanted)
    stages, why_not = checked(wish, container, image, wanted, packages_on(container, installed))
    return Extension(
        container,
        name,
        append(container.stages, stages, name),
        installed_base=installed[0] if installed else None,
        added=wish.added,
        problem=why_not,
    )


def on_installed(wish: Wish, installation: Installation) -> Union[Extension, Installation, None]:
    """
    Return an extension that is changed, or a new one on top of an installed module.

    If nothing changes, return the installation; None if the person doesn't go on.
    """
    extended = installation.extension[0] if installation.extension else None
    is_change = bool(extended) and wish.name in (None, extended)
    name = extended if extended and is_change else wish.name or NAME
    # before anything of it is read: another command may be installing the next one
    names = wish.request.names
    earlier = Earlier.of(str(installation.base), name, names.everything) if is_change else None
    container = bases.of_installation(installation, names.site)
    environment = change.environment_of(installation, container, names)
    if not (is_change and wish.request.rebuild):
        # eb keeps what is in the place of a reinstallation
        ownfiles.report_left_behind(installation)
    if not is_accepted(wish, container, environment.packages):
        return DECLINED
    if is_change:
        before = system_of(container.system_packages)
        container = changed(wish, installation, environment, bases.without_extension(container, installation), name)
        is_other = wish.request.rebuild or environment.changed_by_hand or environment.is_changed
        if not is_other and system_of(container.system_packages) == before:
            return installation
    else:
        container = system.added(container, wish.apt, wish.allow_upgrade)
        wanted = with_commands(wanted_packages(wish, environment.image), wish.commands)
        environment.stages = append(environment.stages, wanted, name)
    change.report_projects(environment)
    own = environment.own
    stages, why_not = checked(wish, container, environment.image, own, environment.packages)
    if stages is not own:
        environment.set_own(stages)
    extension = Extension(
        change.pinned(container, environment),
        name,
        environment.stages,
        inherited=environment.stages[: environment.inherited],
        kept=environment.pins,
        problem=why_not,
        before=installation,
        earlier=earlier,
        is_change=is_change,
        added=() if is_change else wish.added,
        date=installation.extension[1] if is_change and wish.request.rebuild and installation.extension else None,
        keeps_all=is_change and not wish.names_all,
    )
    return with_newest(wish, extension, installation, earlier.last) if earlier and earlier.last else extension


def changed(
    wish: Wish, installation: Installation, environment: Environment, container: Container, name: str
) -> Container:
    """Change the packages of an extension as was typed; return its base with the packages of the distribution."""
    if wish.remove_apt:
        container = system.removed(container, wish.remove_apt, installation.module, environment.base)
    if wish.changes_system:
        container = system.added(container, wish.apt, wish.allow_upgrade)
    if wish.remove or wish.remove_apt:
        environment.has_system = bool(system.own(container, environment.base))
    if wish.remove:
        change.remove(environment, wish.remove)
    if wish.names_all:
        change.replace(environment, wanted_packages(wish, environment.image), name)
    elif wish.add:
        change.add(environment, change.parse(wish.add), name)
    if wish.replace:
        environment.set_own(replacing.allow(environment.own, replacing.parse(wish.replace)))
    environment.stages = append(
        environment.stages[: environment.inherited], with_commands(environment.own, wish.commands), name
    )
    if wish.remove_apt and not environment.own and not environment.has_system:
        raise change.nothing_left(installation.module)
    return container


def with_newest(wish: Wish, extension: Extension, installation: Installation, newest: Installation) -> Extension:
    """
    Return a changed extension, from which packages are lost if there is a newer one than the installation it changes.

    Raise ExtendingError if nobody has asked for the earlier one: it is loaded in a shell since before the newer one.
    """
    if newest.root == installation.root:
        return extension
    if not (wish.module or wish.request.date or extension.date):

        def typed(module: str) -> str:
            return join(["ebsif", "extend", module, *wish.request.words[1:]])

        raise ExtendingError(
            f"{shown(installation)} is loaded, but `{extension.name}` means {shown(newest)} now, without whose changes "
            f"the new one would be made. To change the newest: {typed(f'{extension.base.module}-{extension.name}')} "
            f"(or, to go on from the loaded one: {typed(shown(installation))})"
        )
    return dataclasses.replace(extension, keeps_all=False)


def wanted_packages(wish: Wish, image: KnownImage) -> list[Stage]:
    """Return the packages that were typed, as stages, and report what can't be installed."""
    wanted = WantedPackages()
    if wish.from_venv:
        wanted = venv.read(wish.from_venv)
    elif wish.requirements:
        try:
            wanted = requirements.read_all(wish.requirements, image, wish.extras, wish.groups)
        except WrongLinesError as error:
            raise WrongLinesError(str(error), with_added(wish, error.lines)) from None
    lines = with_added(wish, wanted.lines)
    for text in wanted.impossible:
        output.note(text)
    stages = requirements.split_into_stages(lines)
    return replacing.allow(stages, replacing.parse(wish.replace)) if wish.replace else stages


def with_added(wish: Wish, lines: Sequence[str]) -> list[str]:
    """Return the lines of a file with the packages of --add, which override it."""
    return change.joined(lines, change.parse(wish.add)) if wish.add else list(lines)


def problem_besides(wish: Wish, found: Union[Installation, Container], lines: Sequence[str]) -> str:
    """Return why lines can't be installed on what is extended, besides others that can't be used at all."""
    if isinstance(found, Installation):
        container, installed = bases.of_installation(found, wish.request.names.site), [found]
    else:
        container, installed = found, places.called(found.module)[:1]
    image = bases.known_image(container, installed)
    stages = requirements.split_into_stages(list(lines))
    return checked(wish, container, image, stages, packages_on(container, installed))[1]


def packages_on(container: Container, installed: Iterable[Installation]) -> set[str]:
    """Return the normalized names of the packages that a container has besides its image, where it is installed."""
    own = {name for one in installed for name in one.record.venv_versions}
    return own | names_in(lines_of(container.stages))


def checked(
    wish: Wish, container: Container, image: KnownImage, stages: Sequence[Stage], own: Collection[str]
) -> tuple[Sequence[Stage], str]:
    """
    Return why stages can't be installed, as far as it is known, with the stages.

    `own` packages may hide those of the image. Stages look for packages in PyTorch's index, too, if they have to, and
    the person has agreed.
    """
    request = wish.request
    if request.dry_run:
        # perhaps only an easyconfig is asked for, for another machine
        return stages, ""
    if note := replacing.without_compiler(container, image, stages, own, request.image):
        output.note(note)
    texts = [replacing.why_impossible(container, image, stages, own, request.image)]
    if not request.writes:
        answer = indexes.ask(container, image, stages, own, request.image, request.repeated)
        texts.append(answer.problem)
        builds = [] if remedies.NEVERTHELESS[-1] in request.more else answer.builds
        if builds and request.yes and all(one.answers for one in builds):
            output.note(f"pip looks in {builds[0].index}, too: {pytorch.reasons(builds)}")
            stages = pytorch.with_index(stages, builds[0].index)
        elif any(one.is_needed for one in builds):
            texts.append(pytorch.offer(builds))
        elif builds:
            output.note(pytorch.offer(builds))
    return stages, "\n".join(filter(None, texts))


# --- what is asked before


def is_accepted(wish: Wish, container: Container, own: dict[str, VenvPackage]) -> bool:
    """Show what the packages break that replace others (V-01); return whether the person goes on."""
    request = wish.request
    if not wish.replace:
        return True
    replacing.report(container, own, replacing.parse(wish.replace), wish.force, request.image, request.dry_run)
    if not request.installs or request.check or request.yes:
        return True
    if confirmed(
        "Install it?",
        ExtendingError(
            f"nothing was installed, because there is no terminal to ask on: to go on, {request.command_with('--yes')}"
        ),
    ):
        return True
    output.note("nothing was installed")
    return False


# --- a lock


def repeat(wish: Wish, lock: Path) -> int:
    """Install what a lock says; return the exit status."""
    request, names = wish.request, wish.request.names
    record = repeating.read(lock)
    name = wish.name or repeating.name_in(record)
    if wish.module:
        base = names.find(wish.module)
        container = (
            bases.without_extension(bases.of_installation(base, names.site), base)
            if isinstance(base, Installation)
            else bases.container_of(base, names)
        )
    else:
        container = repeating.base_of(record, names.containers, names.site)
    stages = stages_of(record.stages)
    # --check runs commands, too: it tries the installation
    if not trust.is_agreed(request, lock, stages, request.check or request.installs):
        return FOUND
    image = bases.known_image(container, places.called(container.module))
    if repeating.has_other_image(image, record):
        output.note(
            f"{container.module} has another image than {lock}: the packages in {lock} are installed in the "
            "same versions, except those that the image already has"
        )
        container, stages = repeating.adapted(container, image, record)
        return making.make(request, Extension(container, name, stages))
    text = lock.read_text(encoding="utf-8")
    extension = Extension(
        repeating.repeated(container, record),
        name,
        stages,
        companions={"lock": writing.lock_beside(text)},
        is_same=lambda path: repeating.is_same(path, record),
    )
    return making.make(
        request, extension, lambda extended: repeating.check(extended, record, request.more, request.image)
    )
