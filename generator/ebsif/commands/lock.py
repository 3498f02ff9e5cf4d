"""Print the record of an installation: its image, its packages and how they were installed, with exact versions.

It lists the current packages, including packages added by hand, and all packages of the image (Python, Conda, system).
`ebsif diff` compares two installations or saved records. With --format, print something else instead: sbom, a software
bill of materials (CycloneDX, JSON), or eb, an easyconfig with exact versions of the packages.
"""

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Union

from ebsif import files
from ebsif.commands.options import add_name, add_output, names_of
from ebsif.eb import running
from ebsif.environments import freezing
from ebsif.errors import UsageError
from ebsif.installed import current, lock
from ebsif.installed.places import Installation
from ebsif.installed.sbom import bill_of_materials
from ebsif.report import output

EXAMPLES = """\
  ebsif lock                          # of the loaded module
  ebsif lock mine > lock.json
  ebsif lock mine --format sbom -o sbom.json
  ebsif lock mine --format eb -o easyconfigs/
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_name(parser, "module", "what to print the record of, or a saved record", only_installed=True)
    parser.add_argument(
        "--format",
        choices=["lock", "sbom", "eb"],
        default="lock",
        help="what to print (the record, a bill of materials, or an easyconfig; default: lock)",
    )
    parser.add_argument("--name", help="with eb: name of the extension (default: the module's)")
    parser.add_argument(
        "--date",
        help="with eb: date at the end of the version suffix (default: today, with a number "
        "if there is a module of today)",
    )
    add_output(parser, "write to this file, or with eb into this directory (default: print it)", metavar="FILE")


def run(options: Namespace) -> int:
    """Print or write the record of an installation, or what is made of it; return 0."""
    found = names_of(options).installed_or_file(options.module)
    if options.format == "eb":
        return write_easyconfig(options, found)
    if options.name or options.date:
        raise UsageError("--name and --date are for --format eb")
    record = lock.read_record(found) if isinstance(found, Path) else current.record_of(found)
    if not record.is_complete:
        output.note(
            "this module was installed by an earlier version of ebsif: the packages of the image's system and "
            "of Conda are not in its record; reinstall it (eb --rebuild) to record them"
        )
    text = bill_of_materials(record, time.time()) if options.format == "sbom" else lock.for_others(record)
    if options.output:
        files.write_new({options.output: text}, options.overwrite)
        print(options.output)
    else:
        print(text, end="")
    return 0


def write_easyconfig(options: Namespace, found: Union[Path, Installation]) -> int:
    """Print or write the easyconfig of an installation; return 0."""
    if isinstance(found, Path):
        raise UsageError(f"--format eb needs an installed module: {found} is a file")
    name, text, impossible = freezing.freeze(found, options.name, options.date)
    for line in impossible:
        output.note(line)
    if not options.output:
        print(text, end="")
        return 0
    path = options.output if options.output.suffix == ".eb" else options.output / name
    files.write_new({path: text}, options.overwrite)
    print(path)
    output.hint(f"install it with: {running.command([path])}")
    return 0
