"""Tables: with lines and colors at a terminal, plain columns otherwise."""

import shutil
import sys

from ebsif.report import output


def print_table(headings: list[str], rows: list[list[str]]) -> None:
    """Print rows of cells below the names of the columns."""
    if sys.stdout.isatty():
        # importing it takes longer than printing a plain table
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD)
        for number, heading in enumerate(headings):
            # names are for copying
            table.add_column(heading, overflow="fold", no_wrap=number == 0)
        for row in rows:
            # Text, because brackets in a string would be markup
            table.add_row(*(Text(output.escape(cell)) for cell in row))
        Console().print(table)
        return
    print_columns(headings, rows)


def print_columns(headings: list[str], rows: list[list[str]]) -> None:
    """Print rows below headings as plain text."""
    rows = [list(map(output.escape, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    for row in [headings, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def is_too_wide(headings: list[str], rows: list[list[str]], wrapped: int = 0, least: int = 0) -> bool:
    """
    Return whether a table doesn't fit the terminal, so that names in its cells would be broken.

    Cells of the column with the number `wrapped`, from 1, may be wrapped to a width of `least`.
    """
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    if wrapped:
        widths[wrapped - 1] = min(widths[wrapped - 1], least)
    # each column has a blank on either side
    # of terminals that don't tell their size, Python 3.9 says 0
    return sys.stdout.isatty() and sum(width + 2 for width in widths) > (shutil.get_terminal_size().columns or 80)
