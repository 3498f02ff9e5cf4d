"""
Write, check and install the easyconfig of an extension, for `ebsif extend`, `ebsif pull` and `ebsif upgrade`.

`ebsif install` installs what is in the catalogue in the same way (`installing.py`).
"""

import contextlib
import itertools
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container import modulerc, newest
from easybuild.easyblocks.generic.container.texts import system_names

from ebsif import files, remedies
from ebsif.catalogue import selection
from ebsif.catalogue.container import Container
from ebsif.catalogue.records import system_of
from ebsif.catalogue.selection import plain
from ebsif.eb import framework, running
from ebsif.environments import extending, plan
from ebsif.environments.extending import ExtendingError
from ebsif.environments.plan import Plan
from ebsif.errors import FOUND
from ebsif.installed import places
from ebsif.installed.names import Names, shown
from ebsif.installed.places import WRITTEN, Installation
from ebsif.packages.requirements import names_in
from ebsif.render import easyconfig
from ebsif.report import output
from ebsif.report.steps import format_time

# Options of eb to install a module again.
FORCING = frozenset(("--rebuild", "--force", "-f"))
# EasyBuild's message if another eb installs the same module, or if its lock stayed.
LOCKED = re.compile(r"Lock (.*) already exists, aborting!")
HEADER = WRITTEN + "{}`: yours to change."
# Where EasyBuild installs by default, below the home directory.
DEFAULT_PREFIX = ".local/easybuild"


@dataclass(frozen=True)
class Request:
    """
    What is to be done with an extension: the options of a command, which was typed with `words`.

    `repeated` is a command of `ebsif extend` that asks for the same, to which remedies add options; empty if there is
    none. `names` are those that are taken. `output` is the directory for the easyconfig, `image` what to check with if
    eb doesn't find it, and `more` are options of eb.
    """

    command: str
    words: Sequence[str] = ()
    repeated: Sequence[str] = ()
    date: Optional[str] = None
    output: Optional[Path] = None
    image: Optional[Path] = None
    dry_run: bool = False
    check: bool = False
    install: bool = False
    rebuild: bool = False
    names: Names = field(default_factory=Names)
    more: Sequence[str] = ()

    @property
    def installs(self) -> bool:
        """Whether the module is installed."""
        return self.install or self.rebuild

    @property
    def folder(self) -> Path:
        """The directory for the easyconfig: by default the current one, or that of this account for installations."""
        return self.output or (own_folder() if self.installs or self.check else Path())

    @property
    def again(self) -> bool:
        """Whether a module is to be installed again if it is there."""
        return self.rebuild or not FORCING.isdisjoint(self.more)


class InUseError(ExtendingError):
    """Another eb installs the module, perhaps from the files that this attempt has written."""


@dataclass(frozen=True)
class Companion:
    """A file that an easyconfig names: the suffix that replaces `.eb`, and what writes it, perhaps over another one."""

    suffix: str
    write: Callable[[Path, bool], None]


@dataclass(frozen=True)
class Extension:
    """
    An extension to make: packages on top of a container, under a name.

    `known` are the extensions of that name to start from; see `times_of_records`. By default, they are those that are
    there when it is made.

    `wanted` are stages or lines of a requirements.txt, and `kept` constraints: packages of the extension that is
    changed, which keep their version. The extension may repeat a lock instead, which is a companion, by the key of the
    easyconfig parameter `requirements`; `is_same` then says whether an easyconfig repeats it, and `planned` what pip
    would do.
    """

    base: Container
    name: str
    wanted: Sequence[Union[str, dict]] = ()
    kept: Sequence[str] = ()
    companions: Mapping[str, Companion] = field(default_factory=dict)
    is_same: Optional[Callable[[Path], bool]] = None
    planned: Optional[Callable[[Container], Plan]] = None
    known: Optional[Mapping[str, int]] = None

    def container(self, date: str) -> Container:
        """Return the extended container with a date; see `extending.extend`."""
        extended = extending.extend(self.base, self.wanted, self.name, date)
        names = {key: Path(extended.easyconfig_name).with_suffix(companion.suffix).name
                 for key, companion in self.companions.items()}
        return extending.extend(self.base, names, self.name, date) if names else extended

    def module(self, date: str) -> str:
        """Return the name of its module with a date."""
        return f"{self.base.module}-{self.name}-{date}"

    def text(self, date: str, command: str) -> str:
        """Return the text of its easyconfig with a date, as written by a command."""
        return easyconfig.render(self.container(date), HEADER.format(command))

    def is_in(self, path: Path, date: str) -> bool:
        """Return whether an easyconfig is that of this extension, whichever command has written it."""
        if self.is_same:
            return self.is_same(path)
        first, _, rest = path.read_text(encoding="utf-8").partition("\n")
        return first.startswith(WRITTEN) and rest == self.text(date, "").partition("\n")[2]

    def plan(self, date: str, request: Request) -> Plan:
        """Return what pip would do."""
        extended = self.container(date)
        return self.planned(extended) if self.planned else plan.check(extended, request.more, request.image, self.kept)


def own_folder() -> Path:
    """Return the directory with the easyconfigs that this account installs, below its data directory."""
    return files.data_folder() / "easyconfigs"


def make(request: Request, extension: Extension) -> int:
    """Write the easyconfig of an extension, check it, or install it; return the exit status."""
    if request.installs or request.check:
        # report mistakes in eb's options or configuration before anything is written
        framework.session(tuple(request.more))
    require_place(request)
    require_free_name(request.names, extension)
    known = extension.known
    if known is None:
        known = extending.times_of_records(extension.base.module, extension.name)
    date, same = choose_date(request, extension)
    if same:
        return nothing_to_do(same)
    if request.check:
        status = show_plan(request, extension, date)
        if status is not None:
            return status
    text = extension.text(date, request.command)
    if request.dry_run:
        print(text, end="")
        return 0
    path = request.folder / extension.container(date).easyconfig_name
    if not extension.companions and path.exists() and extension.is_in(path, date):
        text = path.read_text(encoding="utf-8")
    beside = {path.with_suffix(companion.suffix): companion for companion in extension.companions.values()}
    with removed_after_failure(path, *beside):
        again = may_replace(request, path, extension.module(date))
        for place, companion in beside.items():
            companion.write(place, again)
        write_file(path, text, again)
        if request.installs:
            with remedies.whole(request.repeated):
                status = install(path, request.rebuild, [*request.more, extending.sources(extension.container(date))],
                                 known)
            for place in beside if not request.output else ():
                # the installation has it, and user software is large
                place.unlink(missing_ok=True)
            return status
    for one in (*beside, path):
        print(one)
    output.hint(f"install it with: {framework.command([path])}")
    output.hint(f"then: {framework.place_of(path.resolve()).load}")
    return 0


def require_free_name(names: Names, extension: Extension) -> None:
    """Raise ExtendingError if the name of a new extension would be taken for another one, or for another module."""
    base, name = extension.base.module, extension.name
    there = {one.extension[0]: one for one in places.everything() if one.base == base and one.extension}
    if name in there:
        return
    for other, one in there.items():
        if other.lower() == name.lower():
            raise ExtendingError(f"`{other}` exists ({shown(one)}), and commands take `{name}` for that, too: change "
                                 f"that (ebsif extend {other}), or choose another --name")
    for short in (f"{base}-{name}", f"{base.rpartition('/')[0]}/{name}"):
        # which the modules tool would no longer load, or only that
        is_in_catalogue = any(plain(known) == plain(short) for known, _ in selection.named(names.recorded))
        there_already = names.installed_as(short)
        is_of_name = there_already and there_already.extension and there_already.extension[0] == name
        if is_in_catalogue or (there_already and not is_of_name):
            raise ExtendingError(f"{short} is another module, {'of the catalogue' if is_in_catalogue else 'installed'}"
                                 f", so it can't be the name of this extension: choose another --name than {name}")


def check_name(request: Request, extension: Extension, added: Sequence[str] = ()) -> None:
    """
    Say which packages the name of a new extension would no longer stand for, because an earlier one has that name.

    `added` are the options with the packages that the command line adds, which are not meant as all that the extension
    has: raise ExtendingError if any would be lost.
    """
    # --prefix and others say where it would be
    framework.session(tuple(request.more))
    name = extension.name
    extensions = list(extending.of_name(extension.base.module, name).values())
    if not extensions or extensions[-1].damage:
        return
    earlier = extensions[-1]
    there = {*names_in(list(extension.wanted)), *system_names(system_of(extension.base.system_packages).packages)}
    before = {*names_in(earlier.record.stages), *system_names(earlier.record.system_layer.requested)}
    lost = ", ".join(sorted(before - there))
    if lost and added:
        raise ExtendingError(f"`{name}` exists ({shown(earlier)}); to add to it: ebsif extend {name} "
                             f"{shlex.join(added)}; otherwise choose another --name")
    if lost:
        output.note(f"the new `{name}` is made without {lost}, which {shown(earlier)} was made with")


def show_plan(request: Request, extension: Extension, date: str) -> Optional[int]:
    """Show what pip would do; return the exit status, or None if the installation follows."""
    planned, module = extension.plan(date, request), extension.module(date)
    is_replaced = not request.again and places.installed_as(module) is not None
    if is_replaced:
        output.note(f"{module} is installed already, with other packages: it would be replaced")
    planned.problem = remedies.completed(planned.problem, request.repeated)
    plan.show(planned, extension.container(date), install_command(request.words, is_replaced))
    if not planned.problem and request.installs:
        return None
    wrong = None if planned.problem else closed_place(request)
    if wrong:
        output.note(f"but {wrong}")
    return FOUND if planned.problem else 0


def choose_date(request: Request, extension: Extension) -> tuple[str, Optional[Installation]]:
    """Return the date of an extension, with a number if it isn't the first, and its installation if it is done."""
    def is_done(installation: Installation, date: str) -> bool:
        path = installation.easyconfig
        return path is not None and not request.again and extension.is_in(path, date)

    if request.date:
        later = [one for date, one in extending.of_name(extension.base.module, extension.name).items()
                 if newest.date_key(date) > newest.date_key(request.date)]
        if later:
            output.note(f"`{extension.name}` goes on to mean {shown(later[-1])}, because that has a later date")
        there = places.installed_as(extension.module(request.date)) if request.check or request.install else None
        return request.date, there if there and is_done(there, request.date) else None
    earlier = extending.of_today(extension.base.module, extension.name)
    for date, last in list(earlier.items())[-1:]:
        if request.again or is_done(last, date):
            return date, None if request.again else last
    for date in extending.free_dates(extension.base.module, extension.name):
        path = request.folder / f"{extension.module(date).replace('/', '-')}.eb"
        if not path.exists() or request.rebuild or extension.is_in(path, date):
            break
    return date, None


def nothing_to_do(installation: Installation, state: str = "has these packages already") -> int:
    """Say that a module is installed already, and how to load it; return the exit status."""
    output.note(f"{places.word(installation)} {state}: nothing to do (--rebuild installs it again)")
    output.hint(f"load it with: {installation.load}")
    return 0


def may_replace(request: Request, path: Path, module: str) -> bool:
    """Return whether an easyconfig may be replaced; raise ExtendingError while eb installs it, and reads it again."""
    lock = places.easybuild_lock(framework.place_of(path.resolve()).installation) \
        if request.rebuild and path.exists() else None
    if lock:
        raise ExtendingError(f"{path} is in use: {places.locked(module, lock)}")
    return request.rebuild


def write_file(path: Path, text: str, again: bool, kind: str = "easyconfig") -> None:
    """Write an easyconfig or another file; if `again` is true, a different one of that name is renamed first."""
    if path.exists() and path.read_bytes() != text.encode():
        require_replaceable(path, again)
        set_aside(path, kind)
    files.replace(path, text)


@contextlib.contextmanager
def removed_after_failure(*paths: Path) -> Iterator[None]:
    """Remove files of a failed attempt (C-04), except those that were there before or are in use, and after Ctrl-C."""
    new = [path for path in paths if not path.exists()]
    try:
        yield
    except InUseError:
        raise
    except Exception:
        for path in filter(Path.exists, new):
            path.unlink()
        raise


def require_replaceable(path: Path, again: bool) -> None:
    """Raise ExtendingError because of a file with other content, unless it is to be replaced."""
    if not again:
        raise ExtendingError(f"{path} exists already, with different content: use --rebuild to replace and install it "
                             "again, or choose another --name or --date")


def set_aside(path: Path, kind: str) -> None:
    """Rename a file that is going to be replaced to NAME.old, or with a number if that exists; say so."""
    numbers = itertools.count(2)
    kept = path.with_name(f"{path.name}.old")
    while kept.exists():
        kept = path.with_name(f"{path.name}.old{next(numbers)}")
    path.replace(kept)
    output.hint(f"the previous {kind} is now {kept}")


def install(path: Path, again: bool, more: list[str], known: Optional[Mapping[str, int]] = None,
            otherwise: str = ", or choose another --name or --date") -> int:
    """
    Install an easyconfig, and print how to load the module; return the exit status.

    eb stops if there are other extensions of the name than those that are `known`.
    """
    variables = {} if known is None else {modulerc.KNOWN_VARIABLE: json.dumps(known)}
    place = framework.place_of(path.resolve())
    if place.file.exists() and not again and FORCING.isdisjoint(more) and not is_installed(path, place):
        raise ExtendingError(
            f"{place.module} is installed already, from a different version of {path}: use --rebuild to install it "
            f"again{otherwise}")
    start = time.monotonic()
    try:
        done = running.install([path.resolve(), *(["--rebuild"] if again else []), *more], **variables)
    except KeyboardInterrupt:
        print(f"ebsif: interrupted; the easyconfig is {path}", file=sys.stderr)
        raise
    if done.status:
        if not done.is_explained:
            done.print_program()
        lock = LOCKED.fullmatch(done.reason)
        raise InUseError(places.locked(place.module, Path(lock[1]))) if lock else ExtendingError(done.message)
    if place.file.exists():
        there = Installation(place.installation, place.module, place.file, place.use)
        if not done.skipped:
            word = places.word(there)
            name = shown(there) if word == shown(there) else f"{word} ({shown(there)})"
            output.note(f"installed {name} in {format_time(time.monotonic() - start)}"
                        f"{plan.SEE_WARNING if done.warned else ''}")
        if done.imported:
            # imports say nothing about what packages do
            own = "" if "'verify':" in path.read_text(encoding="utf-8") else "; for a test of yours: --verify COMMAND"
            output.hint(f"tested: import of {output.format_count(done.imported, 'package')}{own}")
        output.hint(f"load it with: {there.load}")
    return 0


def is_installed(path: Path, place: framework.Place) -> bool:
    """Return whether an installation was made from an easyconfig as it is now; eb keeps a copy of what it used."""
    copy = place.installation / "easybuild" / path.name
    return copy.is_file() and copy.read_bytes() == path.read_bytes()


def install_command(arguments: Sequence[str], again: bool = False) -> str:
    """Return the command that installs what one with --check has checked, perhaps in place of a module."""
    # argparse also accepts --che, for example
    words = [word for word in arguments if not ("--check".startswith(word) and len(word) > len("--c"))]
    if again or not {"--install", "--rebuild"} & set(words):
        end = words.index("--") if "--" in words else len(words)
        words.insert(end, "--rebuild" if again else "--install")
    return shlex.join(["ebsif", *words])


# --- directories in which an installation has to write


def require_place(request: Request) -> None:
    """Raise ExtendingError if EasyBuild is going to install and can't write to its directories, or we to ours."""
    wrong = None if request.dry_run or not request.installs else closed_place(request)
    if wrong:
        raise ExtendingError(wrong)


def closed_place(request: Request) -> Optional[str]:
    """Return why an installation can't write where it has to, and what to do; None if it can."""
    folder = request.output or own_folder()
    if closed := closed_part(folder):
        return (f"the easyconfig can't be written to {folder.resolve()}, because you can't write to {closed}: choose a "
                "directory of your own (-o DIRECTORY)")
    framework.session(tuple(request.more))
    for directory in framework.prefix():
        if closed := closed_part(directory):
            home = os.environ.get("HOME")
            own = f"$HOME/{DEFAULT_PREFIX}" if home and not closed_part(Path(home, DEFAULT_PREFIX)) else "DIRECTORY"
            return (f"nothing can be installed in {directory}, EasyBuild's directory here, because you can't write to "
                    f"{closed}: choose one of your own (export EASYBUILD_PREFIX={own}, or at the end of the command: "
                    "-- --prefix=DIRECTORY)")
    return None


def closed_part(directory: Path) -> Optional[Path]:
    """Return the part of a path, or all of it, that keeps this account from writing there; None if it can."""
    there = directory.absolute()
    while not files.is_there(there):
        there = there.parent
    return None if there.is_dir() and os.access(there, os.W_OK | os.X_OK) else there
