"""
Make a module, for every command that does: write its easyconfig, show what pip would do, or let eb install it.

A command asks for that with a Request. What is made is an Extension (`ebsif extend`, `upgrade`, `pull`), or a container
of the catalog (`ebsif install`).
"""

import contextlib
import itertools
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional

from easybuild.easyblocks.generic.container import newest
from easybuild.easyblocks.generic.container.requirements import package_lines
from easybuild.easyblocks.generic.container.values import system_names

from ebsif import files, remedies
from ebsif.catalog import selection
from ebsif.catalog.container import Container
from ebsif.catalog.records import system_of
from ebsif.catalog.selection import plain
from ebsif.catalog.stages import lines_of
from ebsif.eb import framework, running
from ebsif.environments import bases, downloads, plan
from ebsif.environments import extension as extensions
from ebsif.environments.extension import DatedExtension, ExtendingError, Extension
from ebsif.environments.plan import Plan
from ebsif.errors import FOUND, EbsifError
from ebsif.installed import places
from ebsif.installed.names import Names, shown
from ebsif.installed.places import Installation
from ebsif.packages.requirements import names_in
from ebsif.render import easyconfig, rendering
from ebsif.render.rendering import Rendered
from ebsif.report import output
from ebsif.report.steps import format_time

# Options of eb to install a module again.
FORCING = frozenset(("--rebuild", "--force", "-f"))
# Options of eb to install in other places.
ELSEWHERE = ("--prefix", "--installpath", "--configfiles")
# EasyBuild's message if another eb installs the same module, or if its lock stayed.
LOCKED = re.compile(r"Lock (.*) already exists, aborting!")
# What to do about a file with other content: of any time, and of one that wasn't there when the date was chosen.
REPLACING = "use --rebuild to replace and install it again, or choose another --name or --date"
MEANWHILE = "another command is installing it: run this one again when that is done"
# Where EasyBuild installs by default, below the home directory.
DEFAULT_PREFIX = ".local/easybuild"


@dataclass(frozen=True)
class Request:
    """
    What is to be done with a module: the options of a command, which was typed with `words`.

    `repeated` is a command of `ebsif extend` that asks for the same, to which remedies add options; empty if there is
    none. `names` are those that are taken. `output` is the directory for the easyconfig, by default that of this
    account. The module is installed, unless the request `writes` only its easyconfig, is a `dry_run` that prints it, or
    a `check`, which takes an `image` if eb doesn't find it. `yes`: nobody is asked. `json`: the result is for
    programs. `more` are options of eb.
    """

    command: str
    words: Sequence[str] = ()
    repeated: Sequence[str] = ()
    date: Optional[str] = None
    output: Optional[Path] = None
    image: Optional[Path] = None
    dry_run: bool = False
    check: bool = False
    writes: bool = False
    rebuild: bool = False
    yes: bool = False
    json: bool = False
    names: Names = field(default_factory=Names)
    more: Sequence[str] = ()

    @property
    def installs(self) -> bool:
        """Whether the module is installed."""
        return not (self.dry_run or self.check or self.writes)

    @property
    def folder(self) -> Path:
        """The directory for the easyconfig."""
        return self.output or own_folder()

    @property
    def again(self) -> bool:
        """Whether a module is to be installed again if it is there."""
        return self.rebuild or not FORCING.isdisjoint(self.more)

    def command_with(self, option: str) -> str:
        """Return the command with one more option, before those of eb."""
        return command_with(self.words, option)


class InUseError(ExtendingError):
    """Another eb installs the module, perhaps from the files that this attempt has written."""


def require_places(request: Request) -> None:
    """Raise ExtendingError if a request installs, and can't write where it has to."""
    wrong = closed_place(request) if request.installs else None
    if wrong:
        raise ExtendingError(wrong)


def own_folder() -> Path:
    """Return the directory with the easyconfigs that this account installs, below its data directory."""
    return files.data_folder() / "easyconfigs"


# --- extensions


def make(request: Request, extension: Extension, planned: Optional[Callable[[Container], Plan]] = None) -> int:
    """
    Write the easyconfig of an extension, check it, or install it; return the exit status.

    What pip would do is asked of eb, unless it is `planned`.
    """
    there = request.names.everything
    require_free_name(request.names, extension, there)
    earlier = extensions.of_name(extension.base.module, extension.name, there)
    known = extension.known
    if known is None:
        known = extensions.times_of_records(extension.base.module, extension.name, there)
    report_lost(extension, list(earlier.values()))
    dated, same = choose_date(request, extension, earlier)
    if same:
        return nothing_to_do(same, as_json=request.json)
    if request.check:
        return show_plan(request, dated, planned)
    if extension.problem and not request.dry_run:
        raise ExtendingError(extension.problem)
    if request.dry_run:
        print(dated.text(request.command), end="")
        return 0
    path = request.folder / dated.file_name
    written = write(request, dated, path, known)
    if request.installs:
        report_earlier(request, extension)
        if request.json:
            print_result(installed_from(path), is_new=True)
        return 0
    if request.json:
        print(json.dumps({"module": dated.module, "files": list(map(str, written))}))
        return 0
    for one in written:
        print(one)
    output.hint(f"install it with: {framework.command([path])}")
    output.hint(f"then: {framework.place_of(path.resolve()).load}")
    return 0


def write(request: Request, dated: DatedExtension, path: Path, known: Mapping[str, int]) -> list[Path]:
    """Write the easyconfig of an extension and the files that it names, and install it if asked to; return them."""
    extension = dated.extension
    beside = {path.with_suffix(companion.suffix): companion for companion in extension.companions.values()}
    is_date_given = bool(request.date or extension.date)
    with removed_after_failure(path, *beside) as written:
        again = may_replace(request, path, dated.module)
        for place, companion in beside.items():
            companion.write(place, again)
            written.append(place)
        # another command may have written the same
        if beside or not path.exists() or not dated.is_in(path):
            remedy = REPLACING if is_date_given else MEANWHILE
            write_file(path, dated.text(request.command), again, remedy=remedy)
            written.append(path)
        if request.installs:
            with remedies.whole(request.repeated):
                kept = downloads.for_installation(extension)
                install(
                    path,
                    request.rebuild,
                    [*request.more, bases.sources(dated.container)],
                    {**extension.variables(known), **kept},
                )
                downloads.remove(kept)
            for place in beside:
                # the installation has it, and user software is large
                place.unlink(missing_ok=True)
    return [*beside, path]


def report_earlier(request: Request, extension: Extension) -> None:
    """Say that the module that was changed stays, once its successor is installed."""
    if extension.is_change and extension.before and not request.again:
        output.hint(
            f"the earlier module stays as it is: {extension.before.load} (to remove it: ebsif remove "
            f"{extension.before.module})"
        )


def require_free_name(names: Names, extension: Extension, there: Sequence[Installation]) -> None:
    """Raise ExtendingError if the name of a new extension would be taken for another one, or for another module."""
    base, name = extension.base.module, extension.name
    others = {other: one for other, _, one in extensions.of_base(base, there)}
    if name in others:
        return
    for other, one in others.items():
        if other.lower() == name.lower():
            raise ExtendingError(
                f"`{other}` exists ({shown(one)}), and commands take `{name}` for that, too: change "
                f"that (ebsif extend {other}), or choose another --name"
            )
    for short in (f"{base}-{name}", f"{base.rpartition('/')[0]}/{name}"):
        # which the modules tool would no longer load, or only that
        is_in_catalog = any(plain(known) == plain(short) for known, _ in selection.named(names.recorded))
        there_already = names.installed_as(short)
        is_of_name = there_already and there_already.extension and there_already.extension[0] == name
        if is_in_catalog or (there_already and not is_of_name):
            raise ExtendingError(
                f"{short} is another module, {'of the catalog' if is_in_catalog else 'installed'}"
                f", so it can't be the name of this extension: choose another --name than {name}"
            )


def report_lost(extension: Extension, earlier: Sequence[Installation]) -> None:
    """
    Say which packages the name of an extension would no longer stand for, because an earlier one has that name.

    What the command line adds is not meant as all that the extension has: raise ExtendingError if any would be lost.
    """
    if extension.keeps_all or not earlier or earlier[-1].damage:
        return
    last, name = earlier[-1], extension.name
    now = {
        *names_in(lines_of(extension.stages)),
        *system_names(system_of(extension.base.system_packages).packages),
    }
    lost = ", ".join(
        sorted({*names_in(package_lines(last.record.stages)), *system_names(last.record.system_layer.requested)} - now)
    )
    if lost and extension.added:
        raise ExtendingError(
            f"`{name}` exists ({shown(last)}); to add to it: ebsif extend {name} "
            f"{shlex.join(extension.added)}; otherwise choose another --name"
        )
    if lost:
        output.note(f"the new `{name}` is made without {lost}, which {shown(last)} was made with")


def choose_date(
    request: Request, extension: Extension, earlier: Mapping[str, Installation]
) -> tuple[DatedExtension, Optional[Installation]]:
    """Return an extension with its date, with a number if it isn't the first, and its installation if it is done."""

    def is_done(installation: Installation, dated: DatedExtension) -> bool:
        path = installation.easyconfig
        return path is not None and not request.again and dated.is_in(path)

    chosen = request.date or extension.date
    if chosen:
        later = [one for date, one in earlier.items() if newest.date_key(date) > newest.date_key(chosen)]
        if later:
            output.note(f"`{extension.name}` goes on to mean {shown(later[-1])}, because that has a later date")
        dated, everything = extension.at(chosen), request.names.everything
        there = places.installed_as(dated.module, everything) if request.check or request.installs else None
        return dated, there if there and is_done(there, dated) else None
    for date in extensions.of_today(earlier)[-1:]:
        dated = extension.at(date)
        if request.again or is_done(earlier[date], dated):
            return dated, None if request.again else earlier[date]
    for date in extensions.free_dates(earlier):
        dated = extension.at(date)
        path = request.folder / dated.file_name
        if not path.exists() or request.rebuild or dated.is_in(path):
            break
    return dated, None


def show_plan(request: Request, dated: DatedExtension, known: Optional[Callable[[Container], Plan]]) -> int:
    """Show what pip would do; return the exit status."""
    extension, container, module = dated.extension, dated.container, dated.module
    if extension.problem:
        planned = Plan(problem=extension.problem)
    elif known:
        planned = known(container)
    else:
        of_base = [] if extension.kept else packages_of_base(extension)
        planned = check(request, extension, container, extension.kept or of_base)
        planned.unchanged = "of the base, unchanged" if of_base else planned.unchanged
    is_replaced = not request.again and places.installed_as(module, request.names.everything) is not None
    if is_replaced:
        output.note(f"{module} is installed already, with other packages: it would be replaced")
    planned.problem = remedies.completed(planned.problem, request.repeated)
    if request.json:
        print(json.dumps(plan.data(planned, container)))
        return FOUND if planned.problem else 0
    plan.show(planned, container, install_command(request.words, is_replaced))
    wrong = None if planned.problem else closed_place(request)
    if wrong:
        output.note(f"but {wrong}")
    return FOUND if planned.problem else 0


def check(request: Request, extension: Extension, container: Container, kept: Sequence[str]) -> Plan:
    """Return what pip does for an extension; what it has downloaded is kept if the installation can follow."""
    kept_downloads = downloads.for_check(extension)
    planned = Plan(problem="unknown")
    try:
        planned = plan.check(container, request.more, request.image, kept, {**extension.variables(), **kept_downloads})
        return planned
    finally:
        if planned.problem or not downloads.are_left(kept_downloads):
            downloads.remove(kept_downloads)


def packages_of_base(extension: Extension) -> list[str]:
    """Return the packages that the base of an extension has besides its image, where that is installed."""
    installed = places.called(extension.base.module)[:1]
    return [line for one in installed if not one.damage for line in one.record.venv_packages]


def installed_from(path: Path) -> Installation:
    """Return the installation that an easyconfig makes."""
    place = framework.place_of(path.resolve())
    return Installation(place.installation, place.module, place.file, place.use)


def print_result(installation: Installation, is_new: bool) -> None:
    """Print an installation as JSON, in one line."""
    print(
        json.dumps(
            {
                "module": shown(installation),
                "name": places.word(installation),
                "load": installation.load,
                "root": str(installation.root),
                "new": is_new,
            }
        )
    )


def nothing_to_do(installation: Installation, state: str = "has these packages already", as_json: bool = False) -> int:
    """Say that a module is installed already, and how to load it; return the exit status."""
    if as_json:
        print_result(installation, is_new=False)
    output.done(f"{places.word(installation)} {state}: nothing to do (--rebuild installs it again)")
    output.hint(f"load it with: {installation.load}")
    return 0


def install_command(arguments: Sequence[str], again: bool = False) -> str:
    """Return the command that installs what one with --check has checked, perhaps in place of a module."""
    words = [word for word in arguments if word != "--check"]
    return command_with(words, *(["--rebuild"] if again else []))


def command_with(arguments: Sequence[str], *options: str) -> str:
    """Return a command of ebsif with more options, before those of eb."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return shlex.join(["ebsif", *arguments[:end], *options, *arguments[end:]])


# --- containers of the catalog


@dataclass(frozen=True)
class ToInstall:
    """A container to install: its easyconfig, and its installation if it has one here."""

    rendered: Rendered
    there: Optional[Installation]

    @property
    def has_changed(self) -> bool:
        """Whether the record has changed since the installation, whose easyconfig EasyBuild keeps."""
        kept = self.there.easyconfig if self.there else None
        return kept is not None and without_comments(
            kept.read_text(encoding="utf-8", errors="replace")
        ) != without_comments(self.rendered.text)


def without_comments(text: str) -> list[str]:
    """Return the lines of an easyconfig without comments, whose words may differ between versions of ebsif."""
    return [line for line in text.splitlines() if not line.startswith("#")]


def look(container: Container, request: Request) -> ToInstall:
    """Return what is to be installed; raise EbsifError if its image can change."""
    problem = easyconfig.moving_problem(container)
    if problem:
        raise EbsifError(f"{container.module} can't be installed: {problem}")
    return ToInstall(rendering.render(container, request.folder), places.of_container(container))


def install_container(wanted: ToInstall, request: Request) -> int:
    """Write the easyconfig of a container and install it, unless it is there; return the exit status."""
    rendered, container = wanted.rendered, wanted.rendered.container
    if request.dry_run:
        print(rendered.text, end="")
        output.hint(f"{container.module} would be installed from {rendered.path}")
        return 0
    if wanted.there and not request.again:
        return nothing_to_do(
            wanted.there,
            "is installed already" + (", though its record has changed since" if wanted.has_changed else ""),
            request.json,
        )
    rendering.require_replaceable(rendered, request.folder)
    with removed_after_failure(rendered.path) as written:
        rendering.write([rendered], request.folder)
        written.append(rendered.path)
        install(rendered.path, request.rebuild, [*request.more, bases.sources(container)], otherwise="")
        if request.json:
            print_result(installed_from(rendered.path), is_new=True)
    return 0


# --- files


def may_replace(request: Request, path: Path, module: str) -> bool:
    """Return whether an easyconfig may be replaced; raise ExtendingError while eb installs it, and reads it again."""
    lock = (
        places.easybuild_lock(framework.place_of(path.resolve()).installation)
        if request.rebuild and path.exists()
        else None
    )
    if lock:
        raise ExtendingError(f"{path} is in use: {places.locked(module, lock)}")
    return request.rebuild


def write_file(path: Path, text: str, again: bool, kind: str = "easyconfig", remedy: str = REPLACING) -> None:
    """
    Write an easyconfig or another file; if `again` is true, a different one of that name is renamed first.

    Otherwise raise an error with a remedy.
    """
    if again and files.differs(path, text):
        set_aside(path, kind)
    files.write_new({path: text}, remedy=remedy)


@contextlib.contextmanager
def removed_after_failure(*paths: Path) -> Iterator[list[Path]]:
    """
    Yield a list for those of some files that an attempt has written; remove them if it fails (C-04).

    Those that were there before or are in use stay, and all stay after Ctrl-C.
    """
    new, written = [path for path in paths if not path.exists()], list[Path]()
    try:
        yield written
    except InUseError:
        raise
    except Exception:
        for path in new:
            if path in written:
                path.unlink(missing_ok=True)
        raise


def set_aside(path: Path, kind: str) -> None:
    """Rename a file that is going to be replaced to NAME.old, or with a number if that exists; say so."""
    numbers = itertools.count(2)
    kept = path.with_name(f"{path.name}.old")
    while kept.exists():
        kept = path.with_name(f"{path.name}.old{next(numbers)}")
    path.replace(kept)
    output.hint(f"the previous {kind} is now {kept}")


# --- eb


def install(
    path: Path,
    again: bool,
    more: list[str],
    variables: Optional[Mapping[str, str]] = None,
    otherwise: str = ", or choose another --name or --date",
) -> None:
    """Install an easyconfig with more variables for eb, and print how to load the module."""
    place = framework.place_of(path.resolve())
    if place.file.exists() and not again and FORCING.isdisjoint(more) and not is_installed(path, place):
        raise ExtendingError(
            f"{place.module} is installed already, from a different version of {path}: use --rebuild to install it "
            f"again{otherwise}"
        )
    start, is_new = time.monotonic(), not files.is_there(place.installation)
    try:
        done = running.install([path.resolve(), *(["--rebuild"] if again else []), *more], **(variables or {}))
    except KeyboardInterrupt:
        print(f"ebsif: interrupted; the easyconfig is {path}", file=sys.stderr)
        raise
    if done.status:
        if not done.is_explained:
            done.print_program()
        lock = LOCKED.fullmatch(done.reason)
        raise (
            InUseError(places.locked(place.module, Path(lock[1])))
            if lock
            else ExtendingError(plan.with_similar_names(done.message))
        )
    if place.file.exists():
        there = installed_from(path)
        if not done.skipped:
            word = places.word(there)
            name = shown(there) if word == shown(there) else f"{word} ({shown(there)})"
            say = output.note if done.warned else output.done
            say(f"installed {name} in {format_time(time.monotonic() - start)}{plan.SEE_WARNING if done.warned else ''}")
        if done.imported:
            # imports say nothing about what packages do
            own = (
                ""
                if "'verify':" in path.read_text(encoding="utf-8")
                else "; to add a test of your own: --verify COMMAND"
            )
            output.hint(f"tested: import of {output.format_count(done.imported, 'package')}{own}")
        if is_new and not done.skipped and can_be_removed(there, more):
            output.hint(f"undo: ebsif remove {shown(there)}")
        output.hint(f"load it with: {there.load}")


def can_be_removed(installation: Installation, options: Sequence[str]) -> bool:
    """Return whether the whole name of an installation, made with options of eb, means it without these, too."""
    found = places.installed_as(shown(installation), places.everything())
    return bool(found and places.is_same(found.root, installation.root)) and not any(
        one.startswith(ELSEWHERE) for one in options
    )


def is_installed(path: Path, place: framework.ModulePlace) -> bool:
    """Return whether an installation was made from an easyconfig as it is now; eb keeps a copy of what it used."""
    copy = place.installation / "easybuild" / path.name
    return copy.is_file() and copy.read_bytes() == path.read_bytes()


# --- directories in which an installation has to write


def closed_place(request: Request) -> Optional[str]:
    """Return why an installation can't write where it has to, and what to do; None if it can."""
    folder = request.folder
    if closed := closed_part(folder):
        return (
            f"the easyconfig can't be written to {folder.resolve()}, because you can't write to {closed}: choose a "
            "directory of your own (-o DIRECTORY)"
        )
    for directory in framework.prefix():
        if closed := closed_part(directory):
            home = os.environ.get("HOME")
            own = f"$HOME/{DEFAULT_PREFIX}" if home and not closed_part(Path(home, DEFAULT_PREFIX)) else "DIRECTORY"
            return (
                f"nothing can be installed in {directory}, EasyBuild's directory here, because you can't write to "
                f"{closed}: choose one of your own (export EASYBUILD_PREFIX={own}, or at the end of the command: "
                "-- --prefix=DIRECTORY)"
            )
    return None


def closed_part(directory: Path) -> Optional[Path]:
    """Return the part of a path, or all of it, that keeps this account from writing there; None if it can."""
    there = directory.absolute()
    while not files.is_there(there):
        there = there.parent
    return None if there.is_dir() and os.access(there, os.W_OK | os.X_OK) else there
