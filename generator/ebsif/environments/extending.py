"""From what was typed to an Extension: of a container or an installed module, or an extension that is changed."""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import Callable, Optional, Union

from ebsif.catalog.container import Container
from ebsif.catalog.stages import Stage, with_commands
from ebsif.environments import bases, change, impossible, installing, making, repeating, replacing
from ebsif.environments.change import Environment
from ebsif.environments.earlier import Earlier
from ebsif.environments.extension import ExtendingError, Extension
from ebsif.environments.replacing import Replacement
from ebsif.environments.request import Request, require_places
from ebsif.errors import FOUND, UsageError
from ebsif.installed import ownfiles, places
from ebsif.installed.names import shown
from ebsif.installed.places import DEFAULT_NAME, Installation
from ebsif.packages import requirements, typed, venv
from ebsif.packages.wanted import KnownImage, WantedPackages
from ebsif.report import output

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

    def on(self, module: str, without: Collection[str] = ()) -> str:
        """Return the command that was typed, for another module, and without some options that have a value."""
        words = list(self.request.words[1:])
        if self.module in words:
            del words[words.index(self.module)]
        end = words.index("--") if "--" in words else len(words)
        kept = [
            word
            for before, word in zip(["", *words], words[:end])
            if before not in without and word.partition("=")[0] not in without
        ]
        return join(["ebsif", "extend", module, *kept, *words[end:]])

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


# Changes an environment as was typed: the name of the extension, requirement lines, and packages that are replaced.
Changing = Callable[[Wish, Environment, str, Sequence[str], Sequence[Replacement]], Environment]


def make(wish: Wish) -> int:
    """Write the easyconfig of an extension, check or install it, as was typed; return the exit status."""
    check_combinations(wish)
    require_places(wish.request)
    if wish.from_lock:
        return repeating.repeat(wish.request, wish.from_lock, wish.module, wish.name)
    found = find_base(wish)
    made = on_installed(wish, found) if isinstance(found, Installation) else on_container(wish, found)
    if made is DECLINED:
        return FOUND
    if isinstance(made, Installation):
        return installing.nothing_to_do(made, as_json=wish.request.json)
    return making.make(wish.request, made)


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
    found = bases.whole(names.find(wish.module))
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
    name, installation = wish.name or DEFAULT_NAME, next(iter(places.called(container.module)), None)
    request = wish.request
    before = change.environment_on(
        container, installation, request.names, request.image, with_packages=bool(wish.replace)
    )
    environment = as_typed(wish, before, name, extended_as_typed)
    if environment is DECLINED:
        return DECLINED
    if installation:
        change.report_left_behind(installation, name, environment.own)
    return Extension(
        environment.container,
        name,
        environment.stages,
        installed_base=installation,
        to_add=to_add(wish, name),
        problem=environment.problem,
    )


def on_installed(wish: Wish, installation: Installation) -> Union[Extension, Installation, None]:
    """
    Return an extension that is changed, or a new one on top of an installed module.

    If nothing changes, return the installation; None if the person doesn't go on.
    """
    extended, date = installation.extension or (None, None)
    request, is_change = wish.request, extended is not None and wish.name in (None, extended)
    name = extended if extended and is_change else wish.name or DEFAULT_NAME
    # before anything of it is read: another command may be installing the next one
    earlier = Earlier.of(str(installation.base), name, request.names.everything) if is_change else None
    before = change.environment_of(installation, request.names, request.image)
    if not (is_change and request.rebuild):
        # eb keeps what is in the place of a reinstallation
        ownfiles.report_left_behind(installation)
    environment = as_typed(wish, before, name, changed_as_typed if is_change else extended_as_typed)
    if environment is DECLINED:
        return DECLINED
    if is_change and not (request.rebuild or environment.is_changed):
        return installation
    change.report_projects(environment)
    container = environment.pinned
    extension = Extension(
        bases.without_extension(container, installation) if is_change else container,
        name,
        environment.stages,
        inherited=environment.inherited,
        kept=environment.pins,
        problem=environment.problem,
        before=installation,
        earlier=earlier,
        is_change=is_change,
        to_add="" if is_change else to_add(wish, name),
        date=date if is_change and request.rebuild else None,
        keeps_all=is_change and not wish.names_all,
    )
    return with_newest(wish, extension, installation, earlier.last) if earlier and earlier.last else extension


def to_add(wish: Wish, name: str) -> str:
    """Return the command for an extension that has the name already, unless this one names all that it is to have."""
    return "" if wish.names_all else wish.on(name, ("--name", "--date"))


def as_typed(wish: Wish, before: Environment, name: str, change_it: Changing) -> Optional[Environment]:
    """Return an environment as it was typed, with why it can't be installed; None if the person doesn't go on."""
    request = wish.request
    image = before.image
    replaced = replacing.parse(wish.replace)
    wanted = typed_packages(wish, image.known)
    environment = change_it(wish, before, name, wanted.lines, replaced)
    # nobody is asked about what can't be installed anyway
    if not wanted.wrong and not replacing.is_accepted(request, image, before.packages, replaced, wish.force):
        return DECLINED
    if not (request.rebuild or environment.is_changed or wanted.wrong):
        return environment
    own, why_not = impossible.checked(request, image, environment.own)
    if wanted.wrong:
        raise ExtendingError("\n".join(filter(None, [*wanted.wrong, why_not])))
    return environment.replace(own=tuple(own), problem=why_not)


def extended_as_typed(
    wish: Wish, environment: Environment, name: str, lines: Sequence[str], replaced: Sequence[Replacement]
) -> Environment:
    """Return the environment of a new extension, of a name, on top of a module or container."""
    environment = change.with_system(environment, wish.apt, wish.allow_upgrade)
    wanted = replacing.allow(requirements.split_into_stages(list(lines)), replaced)
    return environment.with_own(environment.own, with_commands(wanted, wish.commands), name)


def changed_as_typed(
    wish: Wish, environment: Environment, name: str, lines: Sequence[str], replaced: Sequence[Replacement]
) -> Environment:
    """Return the environment of an extension, of a name, with other packages."""
    environment = change.with_system(environment, wish.apt, wish.allow_upgrade, wish.remove_apt)
    removed = list[str]()
    if wish.remove:
        environment, removed = change.remove(environment, wish.remove)
    if wish.names_all:
        environment = change.with_all(environment, requirements.split_into_stages(list(lines)), name)
    elif wish.add:
        environment = change.add(environment, lines, name)
    own = replacing.allow(environment.own, replaced)
    environment = environment.with_own((), with_commands(own, wish.commands), name)
    if wish.remove or wish.remove_apt:
        # only now: what is added may take the place of what is removed, or need it
        change.require_rest(environment)
        change.report_removal(environment, removed)
    return environment


def with_newest(wish: Wish, extension: Extension, installation: Installation, newest: Installation) -> Extension:
    """
    Return a changed extension, from which packages are lost if there is a newer one than the installation it changes.

    Raise ExtendingError if nobody has asked for the earlier one: it is loaded in a shell since before the newer one.
    """
    if newest.root == installation.root:
        return extension
    if not (wish.module or wish.request.date or extension.date):
        raise ExtendingError(
            f"{shown(installation)} is loaded, but `{extension.name}` means {shown(newest)} now, without whose changes "
            f"the new one would be made. To change the newest: {wish.on(f'{extension.base.module}-{extension.name}')} "
            f"(or, to go on from the loaded one: {wish.on(shown(installation))})"
        )
    return dataclasses.replace(extension, keeps_all=False)


def typed_packages(wish: Wish, image: KnownImage) -> WantedPackages:
    """Return the packages that were typed, and report what can't be installed; --add overrides files."""
    wanted, added = WantedPackages(), WantedPackages()
    if wish.from_venv:
        wanted = venv.read(wish.from_venv)
    elif wish.requirements:
        wanted = requirements.read_all(wish.requirements, image, wish.extras, wish.groups)
    for text in wanted.impossible:
        output.note(text)
    if wish.add:
        added = typed.parse(wish.add)
    return WantedPackages(typed.joined(wanted.lines, added.lines), wrong=[*wanted.wrong, *added.wrong])
