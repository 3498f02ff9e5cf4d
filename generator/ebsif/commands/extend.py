"""Add your own Python packages on top of a container: write an easyconfig, check it, install it. Change it later.

The new module has its own name, so it never replaces the module of the plain container. The packages in the image
(torch, mpi4py and all others) are not changed. Packages that are built against torch get a stage of their own.

If CONTAINER is an extension, and --name is not another one, the extension itself is changed: all other packages keep
their versions.

An extension has the date of today (-20261122). If there is one of today with other packages, the new one is
-20261122.2, and the earlier module stays as it is until you remove it. With --rebuild, it is replaced.

With --wheelhouse, CONTAINER is an easyconfig or extension: download or build, in the image, the wheel of every package
that its stages install. Nothing is installed.
"""

from pathlib import Path

from easybuild.easyblocks.generic.container import lockfile

from ebsif.catalogue import selection
from ebsif.catalogue.settings import read_settings
from ebsif.commands.options import add_name, add_outcome, add_settings, complete_asked, complete_packages
from ebsif.eb import framework
from ebsif.environments import bases, byhand, changing, environments, extending, repeating, wheelhouse
from ebsif.environments.outcome import (
    check_name,
    choose_date,
    chosen,
    may_replace,
    nothing_to_do,
    removed_after_failure,
    require_place,
    show_plan,
    write,
    write_file,
)
from ebsif.errors import UsageError
from ebsif.installed import places
from ebsif.installed.names import Names, shown
from ebsif.installed.places import Installation
from ebsif.packages import requirements
from ebsif.report import output

EXAMPLES = """\
  # would it work? (installs nothing)
  ebsif extend PyTorch/2.7.0 -r requirements.txt --name mine --check
  # write the easyconfig and install it
  ebsif extend PyTorch/2.7.0 -r requirements.txt --name mine --install
  ebsif extend PyTorch/2.7.0 --add einops 'rich>=14' --name mine --install
  # change the extension `mine`
  ebsif extend mine --add lightly --install
  ebsif extend mine --remove lightly --install
  ebsif extend mine -r requirements.txt --rebuild
  # write the easyconfig only
  ebsif extend PyTorch/2.7.0 -r environment.yml --name mine
  ebsif extend PyTorch/2.7.0 -r pyproject.toml --extra train --group dev --name mine
  # exactly what is locked, with hashes
  ebsif extend PyTorch/2.7.0 -r uv.lock --name mine --install
  ebsif extend PyTorch/2.7.0 --stage one=a.txt --stage two=b.txt --name mine
  # another extension, on top of `mine`
  ebsif extend mine -r more.txt --name more --install
  # the packages of a virtual environment, with their exact versions
  ebsif extend PyTorch/2.7.0 --from-venv optuna-env.sqsh --name optuna
  # the same environment as somebody else's, from their `ebsif lock > lock.json`
  ebsif extend --from-lock lock.json --name theirs --install
  # collect wheels, for an installation without network access
  ebsif extend PyTorch-mine.eb --wheelhouse ~/wheels
"""

MORE = "OPTION_OF_eb"


def configure(parser):
    """Add the arguments."""
    add_settings(parser)
    add_name(parser, "module", "what to extend, or the extension to change")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-r", "--requirements", metavar="FILE",
                      help="requirements.txt, pyproject.toml, environment.yml, uv.lock or pylock.toml")
    what.add_argument("--stage", metavar="NAME=FILE", action="append", default=[],
                      help="install the requirements in FILE with a separate call of pip, in the given order "
                           "(repeatable)")
    what.add_argument("--from-venv", metavar="PATH", type=Path,
                      help="install the packages of a virtual environment (a directory or a SquashFS file) with "
                           "their exact versions")
    what.add_argument("--from-lock", metavar="FILE", type=Path,
                      help="install exactly what `ebsif lock` has written to FILE, on the container with its image")
    what.add_argument("--wheelhouse", metavar="DIRECTORY", type=Path,
                      help="only collect the wheels of an easyconfig or extension in this directory")
    parser.add_argument("--extra", metavar="NAME", action="append", default=[],
                        help="also install an extra of the project in pyproject.toml or its lock file (repeatable)")
    parser.add_argument("--group", metavar="NAME", action="append", default=[],
                        help="also install a dependency group of that project (repeatable)")
    parser.add_argument("--add", metavar="PACKAGE", nargs="+", default=[],
                        help="add packages, each a line as in a requirements.txt; one that is there already gets "
                             "another version").completer = complete_packages
    parser.add_argument("--remove", metavar="PACKAGE", nargs="+", default=[],
                        help="remove packages from an extension, and what only they need"
                        ).completer = complete_asked
    parser.add_argument("--name", help="name of the extension, part of the version suffix (default: that of the "
                                       "extension that is changed)")
    add_outcome(parser)


def run(options):
    """Write an easyconfig, check or install it; return the exit status."""
    if options.wheelhouse:
        return fill_wheelhouse(options)
    given = [options.requirements, options.stage, options.from_venv, options.from_lock, options.add or options.remove]
    if sum(map(bool, given)) > 1:
        raise UsageError("--add and --remove can't be combined with the other ways to name packages")
    if (options.extra or options.group) and not (options.requirements or options.stage):
        raise UsageError("--extra and --group need -r or --stage")
    names = Names(options)
    if options.from_lock:
        return repeat(options, names)
    found = names.find(options.module)
    if isinstance(found, Path) and (found.parent.parent / lockfile.RECORD).is_file():
        found = places.of_directory(found.parent.parent)
    if isinstance(found, Installation) and shown(found) not in {one.module_or_version for one in names.containers}:
        return change(options, names, found)
    if options.remove:
        raise extending.ExtendingError("--remove changes an extension, but "
                                       f"{getattr(found, 'module', found)} is not one (`ebsif list --mine`)")
    require_packages(options)
    container = chosen(options)
    wanted = wanted_packages(options, container)
    for one in places.known(places.directories_of_modules(), container.module)[:1]:
        byhand.report_left_behind(one, options.name, wanted)
    stages = extending.on_top(container, wanted, options.name)
    check_name(options, container, stages, options.add)
    return write(options, container, stages, options.name)


def fill_wheelhouse(options):
    """Fill a wheelhouse and list its wheels; return 0."""
    if options.add or options.remove or options.name:
        raise UsageError("--wheelhouse collects the wheels of an easyconfig as it is: leave out the other options")
    try:
        easyconfig = Names(options).easyconfig(options.module)
    except selection.UnknownName:
        if not options.module.endswith(".eb"):
            raise
        # eb may find it
        easyconfig = options.module
    wheels = wheelhouse.fill(easyconfig, options.wheelhouse, options.more)
    for wheel in wheels:
        print(wheel)
    folder = options.wheelhouse.resolve()
    output.hint(f"{output.format_count(len(wheels), 'wheel')}; to install without network, add to each stage of the "
                f"easyconfig: 'find_links': ['{folder}'], 'options': ['--no-index']")
    return 0


def require_packages(options):
    """Raise UsageError if a new extension would have no packages or no name."""
    if not any((options.requirements, options.stage, options.from_venv, options.add)):
        raise UsageError("one of the arguments -r/--requirements --stage --from-venv --from-lock --add is required")
    require_name(options)


def require_name(options):
    """Raise UsageError if a new extension has no name."""
    if not options.name:
        raise UsageError("--name is required for a new extension (it becomes part of the module's name)")


def wanted_packages(options, container):
    """Return the packages that the options name, as stages or lines, and report what can't be installed."""
    if options.add:
        return requirements.split_into_stages(changing.parse(options.add))
    if options.from_venv:
        wanted = environments.read(options.from_venv)
        stages, impossible = requirements.split_into_stages(wanted.lines), wanted.impossible
    else:
        stages, impossible = extending.stages_from(
            options.requirements, [parse_stage(text) for text in options.stage], container, options.extra,
            options.group)
    for text in impossible:
        output.error(text)
    return stages


def parse_stage(text):
    """Return the name and file of --stage NAME=FILE (tuple of str)."""
    name, sign, file = text.partition("=")
    if not (name and sign and file):
        raise extending.ExtendingError(f"--stage {text}: should be NAME=FILE")
    return name, file


def change(options, names, found):
    """Change an extension (Installation), or extend a module further under another name; return the exit status."""
    framework.session(tuple(options.more))
    site = read_settings(options).site()
    container = bases.of_installation(found, site)
    environment = byhand.environment_of(found, container, byhand.base_of(found, names, site))
    name, date = found.extension or (None, None)
    changed = True
    if name and options.name in (None, name):
        options.name, container = name, bases.without_extension(container, found)
        changed = change_packages(options, environment, container)
        if options.rebuild:
            options.date = options.date or date
    else:
        add_on_top(options, environment, container)
        check_name(options, container, environment.stages, options.add)
    for text in environment.said:
        output.note(text)
    if not changed:
        return nothing_to_do(found)
    container, stages = changing.pinned(container, environment), changing.simplest(environment.stages)
    changing.start_from(found)
    status = write(options, container, stages, options.name, environment.pins)
    module = extending.extend(container, stages, options.name, options.date).module
    if name == options.name and module != found.module and (options.install or options.rebuild) and status == 0:
        output.hint(f"the earlier module stays as it is: {found.load} (to remove it: ebsif remove {found.module})")
    return status


def add_on_top(options, environment, container):
    """Add the stages of a new extension to those of its base (Environment)."""
    if options.remove:
        raise extending.ExtendingError(
            f"--remove changes an extension: leave out --name {options.name}" if options.name else
            f"--remove changes an extension, but {environment.module} is not one (`ebsif list --mine`)")
    require_packages(options)
    environment.stages = extending.append(environment.stages, wanted_packages(options, container), options.name)


def change_packages(options, environment, container):
    """Change the packages of an extension (Environment) as the options say; return whether anything is different."""
    before = environment.asked
    if options.remove:
        changing.remove(environment, options.remove)
    if options.add:
        changing.add(environment, changing.parse(options.add), options.name)
    elif options.requirements or options.stage or options.from_venv:
        changing.replace(environment, wanted_packages(options, container), options.name)
    return options.rebuild or environment.changed_by_hand or environment.asked != before


def repeat(options, names):
    """Install what a lock says; return the exit status."""
    require_name(options)
    require_place(options)
    framework.session(tuple(options.more))
    record, site = repeating.read(options.from_lock), read_settings(options).site()
    if options.module:
        found = names.find(options.module)
        container = bases.without_extension(bases.of_installation(found, site), found) \
            if isinstance(found, Installation) else chosen(options)
    else:
        container = repeating.base_of(record, names.containers, site)
    check_name(options, container, record[lockfile.STAGES])
    if repeating.has_other_image(container, record):
        output.note(f"{container.module} has another image than {options.from_lock}: the packages in "
                    f"{options.from_lock} are installed in the same versions, except those that the image already has")
        container, stages = repeating.adapted(container, record)
        return write(options, container, changing.simplest(stages), options.name)
    container = repeating.repeated(container, record)
    same = choose_date(options, container, options.name,
                       lambda path, _: repeating.is_same(path, record))
    if same:
        return nothing_to_do(same)
    extended = extending.extend(container, {}, options.name, options.date)
    if options.check:
        status = show_plan(options, extended, repeating.check(extended, record, options.more, options.image))
        if status is not None:
            return status
        options.check = False
    path = options.output / extended.easyconfig_name
    lock = path.with_suffix(lockfile.COPY_SUFFIX)
    with removed_after_failure(lock):
        if not options.dry_run:
            write_file(lock, options.from_lock.read_text(encoding="utf-8"),
                       may_replace(options, path, extended.module), "lock")
        return write(options, container, {"lock": lock.name}, options.name)
