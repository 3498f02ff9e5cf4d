"""Print the record of an installation: its image, its packages and how they were installed, with exact versions.

It lists the current packages, including those added by hand, and those of the image: of Python, of Conda and of its
system. `ebsif diff` compares two installations or saved records. There are other formats: a software bill of materials
(sbom; CycloneDX, JSON), for scanners; and an easyconfig of the current state (eb), with its own name and today's date.
"""

import time
from pathlib import Path

from easybuild.easyblocks.generic.container.lockfile import is_complete

from ebsif import files
from ebsif.commands.options import add_name, add_output
from ebsif.eb import framework
from ebsif.environments import freezing
from ebsif.errors import UsageError
from ebsif.installed import current, lock
from ebsif.installed.names import Names
from ebsif.installed.sbom import bill_of_materials
from ebsif.report import output

EXAMPLES = """\
  ebsif lock                          # of the loaded module
  ebsif lock mine > lock.json
  ebsif lock mine --format sbom -o sbom.json
  ebsif lock mine --format eb -o mine.eb
"""


def configure(parser):
    """Add the arguments."""
    add_name(parser, "module", "what to describe", only_installed=True)
    parser.add_argument("--format", choices=["lock", "sbom", "eb"], default="lock",
                        help="lock: the record (default); sbom: bill of materials; eb: easyconfig")
    parser.add_argument("--name", help="with --format eb: name of the extension (default: the one that the module has)")
    parser.add_argument("--date", help="with --format eb: date at the end of the version suffix (default: today, with "
                                       "a number if there is a module of today)")
    add_output(parser, "write to this file (default: print it)", metavar="FILE")


def run(options):
    """Print an installation in a format; return 0."""
    if (options.name or options.date) and options.format != "eb":
        raise UsageError("--name and --date are for --format eb")
    names = Names(options)
    if options.format == "eb":
        _, text, impossible = freezing.freeze(names.installation(options.module), options.name, options.date)
        for line in impossible:
            output.note(line)
    else:
        record = record_of(names, options.module)
        if not is_complete(record):
            output.note("this module was installed by an earlier version of ebsif: the packages of the image's system "
                        "and of Conda are not in its record; reinstall it (eb --rebuild) to record them")
        text = lock.as_text(record) if options.format == "lock" else bill_of_materials(record, time.time())
    if options.output:
        files.write_new({options.output: text}, options.overwrite)
        print(options.output)
        if options.format == "eb":
            output.hint(f"install it with: {framework.command([options.output])}")
    else:
        print(text, end="")
    return 0


def record_of(names, text):
    """Return the current record of an installation, or a saved one (dict)."""
    found = names.find(text, only_installed=True)
    return lock.read(found) if isinstance(found, Path) else current.record_of(found)
