"""Options that several commands have, under one name."""

import argparse


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
