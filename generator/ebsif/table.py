"""Tables: with lines and colours at a terminal, plain columns otherwise."""

import shutil
import sys

from ebsif import output


def print_table(headings: list[str], rows: list[list[str]]) -> None:
    """
    Print rows below headings.

    Parameters
    ----------
    headings
        Names of the columns.
    rows
        The cells.
    """
    if sys.stdout.isatty():
        # importing it takes longer than printing a plain table
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD)
        for heading in headings:
            table.add_column(heading, overflow="fold")
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


def is_too_wide(headings: list[str], rows: list[list[str]]) -> bool:
    """Return whether a table doesn't fit the terminal, so that its cells would be broken."""
    # each column has a blank on either side
    width = sum(max(map(len, column)) + 2 for column in zip(headings, *rows))
    return sys.stdout.isatty() and width > shutil.get_terminal_size().columns
