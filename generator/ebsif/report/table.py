"""Tables: plain columns or, at a terminal that is too narrow for them, a paragraph for each row."""

import shutil
import sys

from ebsif.report import colors, output


def print_table(headings: list[str], rows: list[list[str]]) -> None:
    """Print rows of cells below the names of the columns; a terminal never breaks the first cell, which is a name."""
    rows = [list(map(output.escape, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    # of terminals that don't tell their size, Python 3.9 says 0
    if sys.stdout.isatty() and sum(widths) + 2 * len(widths) > (shutil.get_terminal_size().columns or 80):
        for name, *cells in rows:
            print(colors.paint(name, "name", sys.stdout))
            output.print_wrapped(
                ", ".join(f"{heading} {cell}" for heading, cell in zip(headings[1:], cells) if cell), "    "
            )
        return
    for row in [headings, *rows]:
        name, *cells = (cell.ljust(width) for cell, width in zip(row, widths))
        print("  ".join([colors.paint(name, "name", sys.stdout), *cells]).rstrip())
