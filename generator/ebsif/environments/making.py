"""
Make an extension, for every command that does: from its request to a plan of pip, a written easyconfig, or a module.

A command asks with a Request, and says with an Extension what is made (`ebsif extend`, `upgrade`, `pull`). First, the
extension gets its date. Then the plan is shown, or its files are written, and eb installs it.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional

from easybuild.easyblocks.generic.container import newest
from easybuild.easyblocks.generic.container.requirements import package_lines
from easybuild.easyblocks.generic.container.values import system_names

from ebsif import remedies
from ebsif.catalog.container import Container
from ebsif.catalog.stages import commands_in, stages_of
from ebsif.eb import framework, running
from ebsif.eb.framework import ModulePlace
from ebsif.environments import bases, downloads, installing, plan, writing
from ebsif.environments.earlier import Earlier
from ebsif.environments.extension import DatedExtension, ExtendingError, Extension
from ebsif.environments.plan import Plan
from ebsif.environments.request import Request, closed_place, install_command
from ebsif.errors import FOUND, EbsifError
from ebsif.installed import places
from ebsif.installed.names import Names, shown
from ebsif.installed.places import Installation
from ebsif.packages.lines import names_in
from ebsif.report import output

# What to do about a file with other content that wasn't there when the date was chosen.
MEANWHILE = "another command is installing it: run this one again when that is done"


def make(request: Request, extension: Extension, planned: Optional[Callable[[Container], Plan]] = None) -> int:
    """
    Write the easyconfig of an extension, check it, or install it; return the exit status.

    What pip would do is asked of eb, unless it is `planned`.
    """
    earlier = extension.earlier or Earlier.of(extension.base.module, extension.name, request.names.everything)
    require_free_name(request.names, extension, earlier)
    report_lost(extension, earlier.last)
    dated, same = choose_date(request, extension, earlier)
    if same:
        return installing.nothing_to_do(same, as_json=request.json)
    if request.check:
        return show_plan(request, dated, planned)
    if extension.problem and not request.dry_run:
        raise ExtendingError(extension.problem)
    if request.dry_run:
        print(dated.text(request.command), end="")
        return 0
    carry_out(request, dated, earlier)
    return 0


# --- what is there


def require_free_name(names: Names, extension: Extension, earlier: Earlier) -> None:
    """Raise ExtendingError if the name of a new extension would be taken for another one, or for another module."""
    base, name = extension.base.module, extension.name
    if earlier.by_date:
        return
    for other, one in earlier.others.items():
        if other.lower() == name.lower():
            raise ExtendingError(
                f"`{other}` exists ({shown(one)}), and commands take `{name}` for that, too: change "
                f"that (ebsif extend {other}), or choose another --name"
            )
    for short in (f"{base}-{name}", f"{base.rpartition('/')[0]}/{name}"):
        # which the modules tool would no longer load, or only that
        whose = names.taken_by_other(short, name)
        if whose:
            raise ExtendingError(
                f"{short} is another module, {whose}, so it can't be the name of this extension: choose another "
                f"--name than {name}"
            )


def report_lost(extension: Extension, last: Optional[Installation]) -> None:
    """
    Say which packages and commands the name of an extension would no longer stand for, as the last one has that name.

    What the command line adds is not meant as all that the extension has: raise ExtendingError if any would be lost.
    """
    if extension.keeps_all or not last or last.damage:
        return
    name = extension.name
    had = {*names_in(package_lines(last.record.stages)), *system_names(last.record.system_layer.requested)}
    commands: list[str] = []
    # somebody else may have written the record: what is no stage has no commands
    with contextlib.suppress(EbsifError):
        commands = commands_in(stages_of(last.record.stages))
    kept = commands_in(extension.stages)
    lost_commands = [f"the command '{one}'" for one in commands if one not in kept]
    lost = ", ".join([*sorted(had - extension.package_names), *lost_commands])
    if lost and extension.to_add:
        raise ExtendingError(
            f"`{name}` exists ({shown(last)}); to add to it: {extension.to_add}; otherwise choose another --name"
        )
    if lost:
        output.note(f"the new `{name}` is made without {lost}, which {shown(last)} was made with")


def choose_date(
    request: Request, extension: Extension, earlier: Earlier
) -> tuple[DatedExtension, Optional[Installation]]:
    """Return an extension with its date, with a number if it isn't the first, and its installation if it is done."""

    def is_installed(dated: DatedExtension) -> bool:
        there = earlier.by_date.get(dated.date)
        return there is not None and there.easyconfig is not None and dated.is_in(there.easyconfig)

    def done(dated: DatedExtension) -> Optional[Installation]:
        # only the easyconfig may be asked for
        is_enough = (request.check or request.installs) and not request.again and is_installed(dated)
        return earlier.by_date[dated.date] if is_enough else None

    chosen = request.date or extension.date
    if chosen:
        later = [one for date, one in earlier.by_date.items() if newest.date_key(date) > newest.date_key(chosen)]
        if later:
            output.note(f"`{extension.name}` goes on to mean {shown(later[-1])}, because that has a later date")
        dated = DatedExtension(extension, chosen)
        return dated, done(dated)
    for date in earlier.of_today[-1:]:
        dated = DatedExtension(extension, date)
        if request.again or is_installed(dated):
            return dated, done(dated)
    for date in earlier.free_dates():
        dated = DatedExtension(extension, date)
        path = request.folder / dated.file_name
        if not path.exists() or request.rebuild or dated.is_in(path):
            break
    return dated, None


# --- plan


def show_plan(request: Request, dated: DatedExtension, known: Optional[Callable[[Container], Plan]]) -> int:
    """Show what pip would do; return the exit status."""
    extension, container, module = dated.extension, dated.container, dated.module
    if extension.problem:
        planned = Plan(problem=extension.problem)
    elif known:
        planned = known(container)
    else:
        planned = check(request, extension, container)
    is_replaced = not request.again and module in map(shown, request.names.everything)
    if is_replaced:
        output.note(f"{module} is installed already, with other packages: it would be replaced")
    planned.problem = remedies.completed(planned.problem, request.repeated)
    if request.json:
        print(json.dumps(plan.data(planned, container)))
        return FOUND if planned.problem else 0
    place = framework.place_of(Path(dated.file_name), dated.text(request.command))
    name = places.short_once_installed(place, container.aliases)
    plan.show(planned, name, install_command(request.words, is_replaced))
    wrong = None if planned.problem else closed_place(request)
    if wrong:
        output.note(f"but {wrong}")
    return FOUND if planned.problem else 0


def check(request: Request, extension: Extension, container: Container) -> Plan:
    """Return what pip does for an extension; what it has downloaded is kept if the installation can follow."""
    of_base = [] if extension.kept else packages_of_base(extension)
    kept = extension.kept or of_base
    with downloads.of_check(extension, request.names.everything) as left:
        planned = plan.check(container, request, kept, {**extension.variables, **left.variables})
        left.are_useful = not planned.problem
    planned.unchanged = "of the base, unchanged" if of_base else planned.unchanged
    return planned


def packages_of_base(extension: Extension) -> list[str]:
    """Return the packages that the base of an extension has besides its image, where that is installed."""
    installed = places.called(extension.base.module)[:1]
    return [line for one in installed if not one.damage for line in one.record.venv_packages]


# --- write and install


def carry_out(request: Request, dated: DatedExtension, earlier: Earlier) -> None:
    """Write the easyconfig of an extension and the files that it names, and install it if asked to."""
    extension, path = dated.extension, request.folder / dated.file_name
    text = dated.text(request.command)
    beside = {path.with_suffix(companion.suffix): companion for companion in extension.companions.values()}
    is_date_given = bool(request.date or extension.date)
    place = framework.place_of(path, text)
    # by another command
    is_written = not beside and path.exists() and dated.is_in(path)
    with writing.removed_after_failure(path, *beside) as written:
        if request.rebuild:
            writing.require_unused(place)
        for other, companion in beside.items():
            companion.write(other, request.rebuild)
            written.append(other)
        if not is_written:
            writing.write(path, text, request.rebuild, remedy=writing.REPLACING if is_date_given else MEANWHILE)
            written.append(path)
        if request.installs:
            there = request.names.everything
            with downloads.left_by_check(extension, there) as left:
                variables = {**extension.variables, **earlier.variables, **left}
                installing.install(place, request, bases.sources(dated.container, there), variables)
            for other in beside:
                # the installation has it, and user software is large
                other.unlink(missing_ok=True)
    if not request.installs:
        report_written(request, dated, place, [*beside, path])
        return
    report_earlier(request, extension, installing.made_in(place))


def report_written(request: Request, dated: DatedExtension, place: ModulePlace, written: Sequence[Path]) -> None:
    """Say which files were written, and how to install from them."""
    if request.json:
        print(json.dumps({"module": dated.module, "files": list(map(str, written))}))
        return
    for one in written:
        print(one)
    output.hint(f"install it with: {running.command([place.easyconfig])}")
    output.hint(f"then: {place.load}")


def report_earlier(request: Request, extension: Extension, new: Installation) -> None:
    """Say that the module that was changed stays, once its successor is installed."""
    before = extension.before
    if extension.is_change and before and not request.again:
        # it may be in another prefix, its name that of other extensions, too, and a date may have been chosen
        older = request.names.older(new) if new.extension else []
        is_removed = any(places.is_same(one.root, before.root) for one in older)
        remedy = f" (to keep only the newest: ebsif remove {places.word(new)} --older)" if is_removed else ""
        output.hint(f"the earlier module stays as it is: {before.load}{remedy}")
