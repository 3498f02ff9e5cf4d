"""Write an easyconfig of the current state of an installation, with exact versions.

Packages added by hand (`pip install`, make-squashfs) are included, removed ones are not. The new module has its own
name, with today's date.
"""

from pathlib import Path

from ebsif import files
from ebsif.commands.options import add_dry_run
from ebsif.eb import framework
from ebsif.environments import freezing
from ebsif.installed.names import Names, add_name_argument
from ebsif.report import output

EXAMPLES = """\
  ebsif freeze                      # the loaded module
  ebsif freeze mine -o easyconfigs
  ebsif freeze PyTorch/2.7.0 --name mine --dry-run
"""


def configure(parser):
    """Add the arguments."""
    add_name_argument(parser, "container", "what to freeze", only_installed=True)
    parser.add_argument("--name", help="name of the extension (default: the one that the module has)")
    parser.add_argument("--date", help="date at the end of the version suffix (default: today, with a number if "
                                       "there is a module of today)")
    parser.add_argument("-o", "--output", metavar="DIRECTORY", type=Path, default=Path(),
                        help="directory for the easyconfig (default: the current one)")
    add_dry_run(parser, "only print the easyconfig")


def run(options):
    """Write an easyconfig; return 0."""
    name, text, impossible = freezing.freeze(Names(options).installation(options.container), options.name,
                                             options.date)
    for line in impossible:
        output.note(line)
    if options.dry_run:
        print(text, end="")
        return 0
    path = options.output / name
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise freezing.FreezingError(f"{path} exists already, with different content: choose another --name, --date or "
                                     "--output")
    files.replace(path, text)
    print(path)
    output.hint(f"install it with: {framework.command([path])}")
    return 0
