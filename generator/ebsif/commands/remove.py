"""Remove modules: their module files, their installations, and everything that belongs to them.

Before asking, the command lists everything that it will delete. This includes the easyconfig, if `ebsif` wrote it and
it is unchanged; user software and scripts that reinstallations have set aside; additional names of the module; its
kernels in your list. A module that is loaded, or whose image other modules need, is not removed. Such modules are
searched in EasyBuild's prefix, on MODULEPATH, and in the directories that --users names.

The name of an extension is its newest one. With --older, all earlier ones are removed, and the newest one stays. If an
earlier one has packages that the newest one never had, or files that you have added by hand, they are named, and with
--yes, that one stays, too. The exit status is 1 if you don't confirm, or something stays.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from easybuild.easyblocks.generic.container.image.installed import InstalledImage
from easybuild.easyblocks.generic.container.values import format_size

from ebsif.commands.options import (
    INSTALLED,
    add_dry_run,
    add_yes,
    complete_installed,
    names_of,
    offer,
)
from ebsif.environments import kernels
from ebsif.errors import FOUND, EbsifError
from ebsif.files import is_there
from ebsif.installed import interpreter, places, removal, report
from ebsif.installed.names import Names, shown
from ebsif.installed.places import Installation
from ebsif.report import output
from ebsif.report.asking import confirmed
from ebsif.report.steps import working
from ebsif.text import instead_of

EXAMPLES = """\
  ebsif remove mine --dry-run     # only list what would be removed
  ebsif remove mine --older       # keep only the newest one
  ebsif remove PyTorch/2.7.0-rocm-6.2.4-python-3.12-singularity-mine-20261121
  ebsif remove torch-2.7.0 --users /projects/p1/EasyBuild  # as an administrator
"""

other_words = partial(instead_of, {"--all": "the names of all modules", "--force": "--yes", "-f": "--yes"})

# Nothing records where these are.
MADE_WITH_IT = (
    "environments of make-venv, files of `ebsif interpreter --write` and kernels of `ebsif kernel install "
    "--prefix` that were made with it stop working. With another module loaded, `extend-venv-activate "
    "DIRECTORY` lets an environment use that one; the other two commands write their files anew"
)
# No account can look into the home directories of others.
SEARCHED = (
    "modules that use its image were only searched in EasyBuild's prefix and on MODULEPATH: extensions elsewhere, such "
    "as in other people's home directories, will stop working (`--users DIRECTORY` searches there, too)"
)


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    offer(complete_installed, parser.add_argument("containers", metavar="CONTAINER", nargs="+", help=INSTALLED))
    parser.add_argument("--older", action="store_true", help="remove the earlier ones of these extensions instead")
    add_dry_run(parser, "only show what would be removed")
    parser.add_argument(
        "--users",
        metavar="DIRECTORY",
        action="append",
        default=[],
        help="also search here for modules that use the image (in a prefix of EasyBuild or a directory of modules; "
        "repeatable; for administrators whose users install elsewhere)",
    )
    add_yes(parser)


def run(options: Namespace) -> int:
    """Remove modules after asking; return the exit status."""
    names = names_of(options)
    modules = places.once(names.installation(text) for text in options.containers)
    earlier = {module: names.older(module) for module in modules} if options.older else {}
    if options.older:
        modules = [older for module in modules for older in earlier[module]]
        if not modules:
            places_of_newest = sorted({str(module.root.parent) for module in earlier})
            output.hint(f"there is no earlier one in {' or '.join(places_of_newest)}")
            return 0
    kept = [older for newest, several in earlier.items() for older in missed(newest, several, options.yes)]
    modules = [module for module in modules if module not in kept]
    if not modules:
        return FOUND
    plans = plan(names, places.with_module_files(modules), options.users, has_newer=options.older)
    for planned in plans:
        show(planned)
    if any(is_there(module.root / "bin/make-venv") and is_last(module, modules) for module in modules):
        output.note(MADE_WITH_IT)
    if not options.users and any(is_base(module) for module in modules):
        output.note(SEARCHED)
    if options.dry_run:
        return 0
    if not options.yes and not confirmed(
        "Remove all this?",
        EbsifError(
            "nothing was removed, because there is no terminal to ask on: add --yes to remove all this without "
            "confirmation"
        ),
    ):
        output.note("nothing was removed")
        return FOUND
    for newest, older in earlier.items():
        kernels.follow(
            newest.root,
            shown(newest),
            [folder for one in older if one not in kept for folder in kernels.of_installation(one.root, [one.root])],
        )
    for planned in plans:
        with working("removing"):
            removal.remove(planned)
        output.hint(f"removed {shown(planned.installation)}")
        if planned.heir:
            output.hint(planned.heir)
    return FOUND if kept else 0


def missed(newest: Installation, older: Sequence[Installation], is_confirmed: bool) -> list[Installation]:
    """
    Name what earlier extensions have and the newest one never had; return those that stay.

    These are what nobody has seen before with --yes: the person decides on each.
    """
    found = removal.not_in(newest, older)
    for one, packages in found.items():
        stays = f": it stays (to remove it, too: ebsif remove {shown(one)} --yes)" if is_confirmed else ""
        output.note(f"{shown(one)} has {', '.join(packages)}, which {shown(newest)} doesn't have{stays}")
    return list(found) if is_confirmed else []


def plan(names: Names, modules: Sequence[Installation], users: Sequence[str], has_newer: bool) -> list[removal.Removal]:
    """
    Return how to remove modules: those that use the image of another one come first.

    Kernels go with their module, unless another one is left that they start then.
    """
    possible = names.newest_first(removal.possible_users(users))
    order = sorted(modules, key=lambda module: bool(removal.users_of(module.root, modules)))
    going = {os.path.realpath(module.root) for module in modules}
    staying = [one for one in possible if os.path.realpath(one.root) not in going]
    plans = []
    for module in order:
        left = [
            one for one in (names.older(module) if module.extension else []) if os.path.realpath(one.root) not in going
        ]
        starting = () if has_newer else kernels.of_installation(module.root, [one.root for one in modules])
        plans.append(removal.plan(module, starting, staying, left))
    return plans


def is_base(module: Installation) -> bool:
    """Return whether extensions may use the image in the directory of a module."""
    return not module.extension and is_there(Path(InstalledImage(str(module.root)).own_path))


def is_last(module: Installation, going: Sequence[Installation]) -> bool:
    """Return whether nothing is left of what a module is called without its date, if all these are removed (V-07)."""
    same = interpreter.extensions(interpreter.without_date(module.root)) if module.extension else []
    return {os.path.realpath(root) for root in same} <= {os.path.realpath(one.root) for one in going}


def show(planned: removal.Removal) -> None:
    """Print what will be removed, and what stays."""
    with working("adding up sizes"):
        size = report.size_of(planned.installation.root)
    output.result(f"{shown(planned.installation)}, {format_size(size)}:")
    for path in planned.paths:
        output.result(f"  {path}")
    for path in planned.lines:
        output.result(f"  {path}: additional names of the module")
    for text in planned.kept:
        output.note(f"kept: {text}")
