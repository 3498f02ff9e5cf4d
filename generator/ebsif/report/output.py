"""
What commands print, according to verbosity, and functions that format values.

Results go to standard output; errors, notes, hints, summaries and progress to standard error.
"""

import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container.written import escape, printable

from ebsif import files
from ebsif.report import colors

QUIET, NORMAL, VERBOSE = -1, 0, 1
WIDTH = 80

_level = NORMAL


def set_level(level: int) -> None:
    """Set the verbosity: QUIET, NORMAL or VERBOSE."""
    # one process, one command line
    global _level
    _level = level


def is_quiet() -> bool:
    """Return whether --quiet was given."""
    return _level == QUIET


def is_verbose() -> bool:
    """Return whether --verbose was given."""
    return _level == VERBOSE


def print_diff(path: Path, before: Optional[str], after: str) -> None:
    """Print a change of a file like `diff -u`; before is None for a new file."""
    # only few commands need it
    import difflib

    lines = difflib.unified_diff(
        (before or "").splitlines(keepends=True),
        after.splitlines(keepends=True),
        "/dev/null" if before is None else str(path),
        str(path),
    )
    sys.stdout.writelines(lines)


def print_file(text: str) -> None:
    """Print the text of a file, which may be redirected into one: with the bytes that `files.replace` writes."""
    sys.stdout.flush()
    sys.stdout.buffer.write(files.encoded(text))
    sys.stdout.buffer.flush()


def print_wrapped(text: object, indent: str = "", level: str = "") -> None:
    """
    Print untrusted text in lines of 80 columns; long words such as paths, and commands in `...`, are not broken.

    `level` is a word of the text that has its color: error, warning, note, ok.
    """
    whole = colors.COMMAND.sub(lambda found: found.group().replace(" ", "\0"), escape(text))
    lines = textwrap.fill(
        whole,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    print_colored(lines.replace("\0", " "), level)


def result(text: object) -> None:
    """Print a result, in which there may be untrusted text, in its lines."""
    print(printable(text))


def print_field(name: str, value: object, width: int) -> None:
    """Print a name and an untrusted value beside it; at a terminal, a list in its width. Commands stay one line."""
    title, text = printable(name), printable(value)
    if sys.stdout.isatty() and ", " in text:
        # of terminals that don't tell their size, Python 3.9 says 0
        columns = (shutil.get_terminal_size().columns or WIDTH) - width
        text = f"\n{' ' * width}".join(textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False))
    gap = " " * max(width - len(title), 0) if text else ""
    print(f"{colors.paint(title, 'name', sys.stdout)}{gap}{text}")


def print_line(text: object, indent: str = "", level: str = "") -> None:
    """Print untrusted text in 80 columns at a terminal, and as one line for other programs; see `print_wrapped`."""
    if sys.stdout.isatty():
        print_wrapped(text, indent, level)
    else:
        print(f"{indent}{escape(text)}")


def print_colored(text: str, level: str) -> None:
    """Print a text with the first `level:` and the commands in their colors."""
    text = colors.paint_commands(text, sys.stdout)
    if level:
        text = text.replace(f"{level}:", f"{colors.paint(level, level, sys.stdout)}:", 1)
    print(text)


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 error, 2 errors."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def hint(text: str) -> None:
    """Print what was done or the next step, to be copied, to standard error, unless --quiet."""
    if _level > QUIET:
        print(colors.paint_commands(printable(text), sys.stderr), file=sys.stderr)


def detail(text: str) -> None:
    """Print what is only of interest with --verbose to standard error."""
    if _level >= VERBOSE:
        print_message(text, "note")


def note(text: str) -> None:
    """Print what may go wrong or differs from what one expects to standard error, unless --quiet."""
    if _level > QUIET:
        print_message(text, "warning")


def done(text: str) -> None:
    """Print that what was asked for is done to standard error, unless --quiet."""
    if _level > QUIET:
        print_message(text, "ok")


def error(text: object) -> None:
    """Print what is wrong, in one line, to standard error."""
    print_message(text, "error")


def print_message(text: object, level: str) -> None:
    """Print a message to standard error; at a terminal, the name of the program has the color of its level."""
    name = colors.paint("ebsif:", level, sys.stderr)
    print(f"{name} {colors.paint_commands(printable(text), sys.stderr)}", file=sys.stderr)


def command(words: Iterable[Union[str, Path]]) -> None:
    """Print a command that is about to be run to standard error, with --verbose."""
    if _level >= VERBOSE:
        print("+ " + " ".join(shlex.quote(str(word)) for word in words), file=sys.stderr)
