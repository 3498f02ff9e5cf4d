"""Remove a module: its module file, its installation, and everything that belongs to them.

Before asking, the command lists everything that it will delete. This includes the easyconfig, if `ebsif` wrote it and
it is unchanged, and EasyBuild's archived copy of it; user software and scripts that reinstallations have set aside;
additional names of the module; locks of killed attempts. A module that is loaded, or whose image other modules need, is
not removed. Such modules are searched in EasyBuild's prefix, on MODULEPATH, and in the directories that --users names.
The exit status is 1 if you don't confirm.
"""

import sys

from easybuild.easyblocks.generic.container.texts import format_size

from ebsif.commands.options import add_dry_run, add_name
from ebsif.errors import FOUND
from ebsif.files import is_there
from ebsif.installed import places, removal
from ebsif.installed.names import Names, shown
from ebsif.report import output
from ebsif.report.steps import working

EXAMPLES = """\
  ebsif remove mine --dry-run     # only list what would be removed
  ebsif remove PyTorch/2.7.0-rocm-6.2.4-python-3.12-singularity-mine-20261121
  ebsif remove torch-2.7.0 --users /projects/p1/EasyBuild  # as an administrator
"""

# Nothing records where these are.
MADE_WITH_IT = ("environments of make-venv and files of `ebsif python --write` that were made with it stop working. "
                "With another module loaded, `extend-venv-activate DIRECTORY` lets an environment use that one, and "
                "`ebsif python --write` writes a file anew")


def configure(parser):
    """Add the arguments."""
    add_name(parser, "container", "the module to remove", only_installed=True, required=True)
    add_dry_run(parser, "only show what would be removed")
    parser.add_argument("--users", metavar="DIRECTORY", action="append", default=[],
                        help="also search this prefix of EasyBuild or directory of modules for modules that use the "
                             "image (repeatable); for administrators whose users install elsewhere")
    parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")


def run(options):
    """Remove a module after asking; return the exit status."""
    found = places.with_module_file(Names(options).installation(options.container, careful=True))
    planned = removal.plan(found, options.users)
    with working("adding up sizes"):
        size = places.size_of(found.root)
    print(f"{shown(found)}, {format_size(size)}:")
    for path in planned.paths:
        print(f"  {path}")
    for path, text in planned.lines.items():
        print(f"  {path}" + (": additional names of the module" if text else ""))
    for text in planned.kept:
        output.note(f"kept: {text}")
    if is_there(found.root / "bin/make-venv"):
        output.note(MADE_WITH_IT)
    if options.dry_run:
        return 0
    if not options.yes and not confirmed():
        output.note("nothing was removed")
        return FOUND
    with working("removing"):
        removal.remove(planned)
    output.hint(f"removed {shown(found)}")
    return 0


def confirmed():
    """Return whether the user confirms; raise RemovalError without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise removal.RemovalError("nothing was removed, because there is no terminal to ask on: add --yes to remove "
                                   "all this without confirmation")
    print("Remove all this? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
