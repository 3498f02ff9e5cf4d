"""Build the pages: ``python -m manual``, run by ``make docs``."""

import argparse
import sys
from pathlib import Path

from manual import build


def main() -> int:
    """Build the pages and say where they are."""
    parser = argparse.ArgumentParser(prog="scripts/docs", description="Build the project's own web pages.")
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIRECTORY",
        type=Path,
        default=build.CHECKOUT / ".demo/docs",
        help="directory for the pages (default: .demo/docs)",
    )
    directory = parser.parse_args().output
    try:
        number = build.build(directory)
    except build.ManualError as error:
        sys.exit(f"docs: {error}")
    print(f"{number} pages; open {directory / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
