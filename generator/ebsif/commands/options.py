"""Options that several commands have, under one name."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ebsif.environments.outcome import Request


def add_dry_run(parser: argparse.ArgumentParser, text: str) -> None:
    """Add -n, --dry-run with a help."""
    parser.add_argument("-n", "--dry-run", action="store_true", help=text)


def add_overwrite(parser: argparse._ActionsContainer) -> None:
    """Add --overwrite."""
    parser.add_argument("--overwrite", action="store_true",
                        help="with -o: replace files that this command has not written, or that were changed since")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_outcome(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that write the easyconfig of an extension."""
    parser.add_argument("--date", help="date at the end of the version suffix (default: today, with a number if there "
                                       "is an extension of today)")
    parser.add_argument("-o", "--output", metavar="DIRECTORY", type=Path,
                        help="directory for the easyconfig (default: the current one; with --install "
                             "~/.local/share/ebsif/easyconfigs)")
    parser.add_argument("--image", metavar="FILE", type=Path,
                        help="image to use for --check, if eb does not find it")
    add_dry_run(parser, "only print the easyconfig")
    parser.add_argument("--check", action="store_true",
                        help="only show what pip would install, without installing it")
    parser.add_argument("--install", action="store_true", help="also install the module with eb")
    parser.add_argument("--rebuild", action="store_true",
                        help="replace an easyconfig of the same name (the old one is kept as .old), and install "
                             "again")


def request_of(options: argparse.Namespace) -> "Request":
    """Return what the options of `add_outcome` ask for."""
    # only the commands that need it import EasyBuild
    from ebsif.environments.outcome import Request

    return Request(options.command, sys.argv[1:], options.date, options.output, options.image,
                   options.dry_run, options.check, options.install, options.rebuild, tuple(options.more))
