"""Print the record of an installation: its image, its packages and how they were installed, with exact versions.

It lists the current packages, including those added by hand, and those of the image: of Python, of Conda and of its
system. With --sbom, print a software bill of materials instead (CycloneDX, JSON). `ebsif diff` compares two
installations or saved records.
"""

import argparse
import time
from pathlib import Path

from easybuild.easyblocks.generic.container.lockfile import is_complete

from ebsif import files
from ebsif.commands.options import add_overwrite
from ebsif.errors import UsageError
from ebsif.installed import current, lock
from ebsif.installed.changes import print_changes
from ebsif.installed.names import Names, complete_installed
from ebsif.installed.sbom import bill_of_materials
from ebsif.report import output

EXAMPLES = """\
  ebsif lock                          # of the loaded module
  ebsif lock mine > lock.json
  ebsif lock mine --sbom -o sbom.json
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("words", metavar="CONTAINER", nargs="*",
                        help="an installed module, an installation directory, or a part of a name (default: the loaded "
                             "module)").completer = complete_installed
    parser.add_argument("--sbom", action="store_true", help="print the software bill of materials")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to this file (default: print it)")
    add_overwrite(parser)
    # options of `ebsif diff`, for the earlier spelling
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)


def run(options):
    """Print the record or the bill of materials of an installation; return 0, or 1 if two differ."""
    names, words = Names(options), options.words
    if words[:1] == ["diff"]:
        if len(words) != 3:
            raise UsageError("lock diff needs two installations or lock files")
        output.note("`ebsif lock diff` is now `ebsif diff`, which also compares what the modules do")
        return print_changes(lock.compare(*(record_of(names, word) for word in words[1:])), options.json)
    if words[:1] == ["sbom"]:
        output.note("`ebsif lock sbom` is now `ebsif lock --sbom`")
        words, options.sbom = words[1:], True
    if len(words) > 1:
        raise UsageError(f"one container at a time, not {' and '.join(words)}")
    record = record_of(names, words[0] if words else None)
    if not is_complete(record):
        output.note("this module was installed by an earlier version of ebsif: the packages of the image's system and "
                    "of Conda are not in its record; reinstall it (eb --rebuild) to record them")
    text = bill_of_materials(record, time.time()) if options.sbom else lock.as_text(record)
    if options.output:
        files.write_new({options.output: text}, options.overwrite)
    else:
        print(text, end="")
    return 0


def record_of(names, text):
    """Return the current record of an installation, or a saved one (dict)."""
    found = names.installed_or_file(text)
    return lock.read(found) if isinstance(found, Path) else current.record_of(found)
