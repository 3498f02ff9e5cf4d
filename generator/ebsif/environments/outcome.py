"""Write, check and install the easyconfig of an extension, for `ebsif extend`, `ebsif pull` and `ebsif upgrade`."""

import contextlib
import itertools
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.requirements import stages_of

from ebsif import files
from ebsif.catalogue.container import Container
from ebsif.catalogue.settings import read_settings
from ebsif.eb import framework, running
from ebsif.environments import bases, closedplaces, extending, plan
from ebsif.errors import FOUND
from ebsif.installed import places, removal
from ebsif.installed.names import Names, shown
from ebsif.installed.places import WRITTEN, Installation
from ebsif.packages.requirementline import lines_of, name_in
from ebsif.render import easyconfig
from ebsif.report import output
from ebsif.report.steps import format_time

# Options of eb to install a module again.
FORCING = frozenset(("--rebuild", "--force", "-f"))
HEADER = WRITTEN + "{}`: yours to change."
WRITING = ("extend", "pull", "upgrade")


def chosen(options: Namespace) -> Container:
    """Return the container that the options name: one of the catalogue, else that of an installation or easyconfig."""
    names = Names(options)
    found = names.find(options.module)
    if isinstance(found, Container):
        return found
    if isinstance(found, Installation) and (container := names.record_of(found)):
        return container
    framework.session(tuple(options.more))
    return bases.read(names.easyconfig(options.module), read_settings(options).site())


def write(options: Namespace, container: Container, stages: Union[list, dict], name: str,
          kept: Iterable[str] = ()) -> int:
    """
    Write the easyconfig of an extended container, check it, install it; return the exit status.

    Parameters
    ----------
    options
        The options.
    container, stages, name
        See `extending.extend`.
    kept
        Constraints: packages of the extension that is changed, which keep their version.
    """
    installing = options.install or options.rebuild
    if installing or options.check:
        # report mistakes in eb's options or configuration before anything is written
        framework.session(tuple(options.more))
    require_place(options)

    def text_with(date):
        return easyconfig.render(extending.extend(container, stages, name, date), HEADER.format(options.command))

    same = choose_date(options, container, name, lambda path, date: has_content(path, text_with(date)))
    if same:
        return nothing_to_do(same)
    extended, text = extending.extend(container, stages, name, options.date), text_with(options.date)
    if options.check:
        status = show_plan(options, extended, plan.check(extended, options.more, options.image, kept))
        if status is not None:
            return status
    if options.dry_run:
        print(text, end="")
        return 0
    path = options.output / extended.easyconfig_name
    if path.exists() and has_content(path, text):
        text = path.read_text(encoding="utf-8")
    with removed_after_failure(path):
        write_file(path, text, may_replace(options, path, extended.module))
        if installing:
            return install(path, options.rebuild, [*options.more, extending.sources(extended)])
    output.hint(f"install it with: {framework.command([path])}")
    output.hint(f"then: module load {extended.module}")
    return 0


def check_name(options: Namespace, container: Container, wanted: list, added: Sequence[str] = ()) -> None:
    """
    Say which packages the name of a new extension would no longer stand for, because an earlier one has that name.

    Parameters
    ----------
    options
        The options, with the name.
    container
        The container to extend.
    wanted
        All that the new extension has: stages, or lines of a requirements.txt.
    added
        The packages that the command line adds, which are not meant as all that the extension has.

    Raises
    ------
    ExtendingError
        If there is an earlier one with other packages, and the new one is made by adding some.
    """
    # --prefix and others say where it would be
    framework.session(tuple(options.more))
    earlier = extending.newest(container.module, options.name)
    if not earlier or earlier.damage:
        return
    before, now = names_in(earlier.record.get(lockfile.STAGES, [])), names_in(wanted)
    lost = ", ".join(sorted(before - now))
    if lost and added:
        raise extending.ExtendingError(
            f"`{options.name}` exists ({shown(earlier)}); to add to it: ebsif extend {options.name} --add "
            f"{shlex.join(added)}; otherwise choose another --name")
    if lost:
        output.note(f"the new `{options.name}` is made without {lost}, which {shown(earlier)} was made with")


def names_in(wanted: list) -> set[str]:
    """Return the normalized names of the packages in stages, or lines of a requirements.txt."""
    return {name_in(line) for stage in stages_of(wanted) for line in lines_of(stage)} - {""}


def show_plan(options: Namespace, extended: Container, planned: plan.Plan) -> Optional[int]:
    """Show a plan for an extension; return the exit status, or None if the installation follows."""
    installed = None if asks_again(options) else installed_as(extended.module)
    if installed:
        output.note(f"{installed.module} is installed already, with other packages: it would be replaced")
    plan.show(planned, extended, install_command(sys.argv[1:], bool(installed)))
    if planned.problem or not (options.install or options.rebuild):
        wrong = None if planned.problem else closed_place(options)
        if wrong:
            output.note(f"but {wrong}")
        return FOUND if planned.problem else 0
    return None


def choose_date(options: Namespace, container: Container, name: str,
                is_same: Callable[[Path, str], bool]) -> Optional[Installation]:
    """
    Set `options.date` if it isn't set: today, with a number if there is an extension of today with other packages.

    Parameters
    ----------
    options
        The options, with --date and --rebuild.
    container, name
        The container to extend, and the name of the extension.
    is_same
        Whether an easyconfig with a certain date is of the same packages.

    Returns
    -------
    Installation
        The newest extension of today, or that of the date, if it is what was asked for, and is not to be installed
        again; else None.
    """
    if options.date:
        there = installed_as(f"{container.module}-{name}-{options.date}") if options.check or options.install else None
        return there if there and there.easyconfig and not asks_again(options) and is_same(
            there.easyconfig, options.date) and bases.is_as_installed(there) else None
    earlier = extending.of_today(container.module, name)
    last = earlier[max(earlier)] if earlier else None
    if last and last.extension:
        options.date = last.extension[1]
        if asks_again(options):
            return None
        if last.easyconfig and is_same(last.easyconfig, options.date) and bases.is_as_installed(last):
            return last
    for options.date in extending.free_dates(container.module, name):
        module = f"{container.module}-{name}-{options.date}"
        path = options.output / f"{module.replace('/', '-')}.eb"
        if not path.exists() or may_replace(options, path, module) or is_same(path, options.date):
            break
    return None


def nothing_to_do(installation: Installation) -> int:
    """Say that an extension is installed already, and how to load it; return the exit status."""
    output.note(f"{installation.module} has these packages already: nothing to do (--rebuild installs it again)")
    output.hint(f"load it with: {installation.load}")
    return 0


def asks_again(options: Namespace) -> bool:
    """Return whether a module is to be installed again if it is there."""
    return options.rebuild or not FORCING.isdisjoint(options.more)


def installed_as(module: str) -> Optional[Installation]:
    """Return the installation of a module."""
    return next((one for one in places.everything() if shown(one) == module), None)


def may_replace(options: Namespace, path: Path, module: str) -> bool:
    """
    Return whether the easyconfig of a module may be replaced: --rebuild says so, or it is left over.

    While eb installs the module, it may not: eb reads the easyconfig again at the end.
    """
    if not (options.rebuild or ((options.install or options.check) and is_left_over(path, module))):
        return False
    lock = removal.easybuild_lock(framework.place_of(path.resolve()).installation) if path.exists() else None
    if not lock:
        return True
    if options.rebuild:
        raise extending.ExtendingError(f"{path} is in use: {removal.locked(module, lock)}")
    output.note(f"eb is installing {module}")
    return False


def is_left_over(path: Path, module: str) -> bool:
    """Return whether we have written an easyconfig whose module is not installed: because it failed, for example."""
    return path.exists() and path.read_text(encoding="utf-8").startswith(tuple(map(HEADER.format, WRITING))) and \
        not installed_as(module)


def has_content(path: Path, text: str) -> bool:
    """Return whether an easyconfig is a text, whichever command has written it, as the first line says."""
    found, sign, rest = path.read_text(encoding="utf-8").partition("\n")
    return found.startswith(WRITTEN) and sign + rest == "".join(text.partition("\n")[1:])


def write_file(path: Path, text: str, again: bool, kind: str = "easyconfig") -> None:
    """
    Write an easyconfig or another file; a different one with that name is renamed if `again` is true.

    Raises
    ------
    ExtendingError
        If there is a different one, and `again` is false.
    """
    if path.exists() and path.read_bytes() != text.encode():
        require_replaceable(path, again)
        set_aside(path, kind)
    files.replace(path, text)
    print(path)


@contextlib.contextmanager
def removed_after_failure(*paths: Path) -> Iterator[None]:
    """
    Remove files of a failed attempt (C-04), except those that were there before.

    After Ctrl-C they stay: a message says where the easyconfig is.
    """
    new = [path for path in paths if not path.exists()]
    try:
        yield
    except Exception:
        for path in filter(Path.exists, new):
            path.unlink()
            output.note(f"removed {path}, because the installation failed")
        raise


def require_replaceable(path: Path, again: bool) -> None:
    """Raise ExtendingError because of a file with other content, unless it is to be replaced."""
    if not again:
        raise extending.ExtendingError(f"{path} exists already, with different content: use --rebuild to replace "
                                       "and install it again, or choose another --name or --date")


def set_aside(path: Path, kind: str) -> None:
    """Rename a file that is going to be replaced to NAME.old, or with a number if that exists; say so."""
    numbers = itertools.count(2)
    kept = path.with_name(f"{path.name}.old")
    while kept.exists():
        kept = path.with_name(f"{path.name}.old{next(numbers)}")
    path.replace(kept)
    output.hint(f"the previous {kind} is now {kept}")


def install(path: Path, again: bool, more: list[str]) -> int:
    """Install an easyconfig, and print how to load the module; return the exit status."""
    place = framework.place_of(path.resolve())
    if place.file.exists() and not again and FORCING.isdisjoint(more) and not is_installed(path, place):
        raise extending.ExtendingError(
            f"{place.module} is installed already, from a different version of {path}: use --rebuild to install it "
            "again, or choose another --name or --date")
    start, begun = time.monotonic(), time.time()
    try:
        done = running.install([path.resolve(), *(["--rebuild"] if again else []), *more])
    except KeyboardInterrupt:
        print(f"ebsif: {outcome_of_interruption(place, begun)}; the easyconfig is {path}", file=sys.stderr)
        raise
    if done.status:
        done.print_program()
        raise extending.ExtendingError(done.message)
    if place.file.exists():
        if not done.skipped:
            output.note(f"installed {place.module} in {format_time(time.monotonic() - start)}"
                        f"{plan.SEE_WARNING if done.warned else ''}")
        output.hint(f"load it with: {place.load}")
        if not framework.is_searched_later(place.use):
            use = f"module use {shlex.quote(str(place.use))}"
            output.hint(f"to find it in each new shell, add this line to ~/.bashrc: {use}")
    return 0


def outcome_of_interruption(place, begun):
    """Return whether a module is installed (str) after an interruption of eb, which began at a time."""
    if not place.file.exists():
        return f"interrupted: {place.module} is not installed"
    # eb writes the module file last
    done = place.file.stat().st_mtime >= begun
    return f"interrupted: {place.module} is {'installed' if done else 'as it was before'}"


def require_place(options: Namespace) -> None:
    """
    Check that EasyBuild can install into its directories if it is going to, before anything is written.

    Raises
    ------
    ExtendingError
        If not; the message says how to choose another place.
    """
    wrong = None if options.dry_run or not (options.install or options.rebuild) else closed_place(options)
    if wrong:
        raise extending.ExtendingError(wrong)


def closed_place(options: Namespace) -> Optional[str]:
    """Return why an installation can't write where it has to, and what to do; None if it can."""
    if closed := closedplaces.closed_part(options.output.resolve()):
        return (f"the easyconfig can't be written to {options.output.resolve()}, because you can't write to {closed}: "
                "choose a directory of your own (-o DIRECTORY)")
    framework.session(tuple(options.more))
    return closedplaces.closed_place(framework.prefix(), framework.other_directories(),
                                     "at the end of the command: -- ")


def is_installed(path, place):
    """Return whether an installation was made from an easyconfig as it is now; eb keeps a copy of what it used."""
    copy = place.installation / "easybuild" / path.name
    return copy.is_file() and copy.read_bytes() == path.read_bytes()


def install_command(arguments: Sequence[str], again: bool = False) -> str:
    """Return the command line that installs what one with --check has checked, perhaps in place of a module."""
    # argparse also accepts --che, for example
    words = [word for word in arguments if not ("--check".startswith(word) and len(word) > len("--c"))]
    if again or not {"--install", "--rebuild"} & set(words):
        end = words.index("--") if "--" in words else len(words)
        words.insert(end, "--rebuild" if again else "--install")
    return shlex.join(["ebsif", *words])
