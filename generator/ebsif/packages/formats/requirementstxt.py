"""Read a requirements.txt, and make its lines independent of where it is."""

import codecs
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from easybuild.easyblocks.generic.container.requirements import VARIABLE, is_editable, with_variables, without_comment
from easybuild.easyblocks.generic.container.written import UnfitError, escape, read_regular

from ebsif.packages.lines import parsed
from ebsif.packages.wanted import RequirementsError, WantedPackages

# As people type it for other programs.
STANDARD_INPUT = Path("-")
# A blank in a path, rather than before extras, a marker or an option.
BLANK = r"\s+(?![\[;\s-])"
# A line that pip takes for a file or directory: because of its beginning, a slash, or its suffix.
LOCAL = re.compile(
    rf"(?P<path>\.(?:[^\s;\[]|{BLANK})*|(?:[^/\s;\[@:]|{BLANK})+/(?:[^\s;\[@:]|{BLANK})*|"
    rf"(?:[^\s;\[@:/]|{BLANK})+\.(?:whl|zip|tar\.\w+))(?P<rest>[\[;\s].*)?"
)
# Options with a file, a directory or a URL.
WITH_PLACE = re.compile(
    r"(?P<option>-[rcfe]|--(?:requirement|constraint|find-links|editable))"
    r"(?:\s*=\s*|\s+|(?<=^-[rcfe]))(?P<place>.+)"
)
# Between the options of a line, outside of quotation marks.
BETWEEN = re.compile(r"""\s+(?=--?[a-z](?:[^'"]|'[^']*'|"[^"]*")*\Z)""")
# A variable in the name of a package: at the start of a line that is neither an option nor a URL.
VARIABLE_IN_NAME = re.compile(r"(?!-|\S*://)[^\[=<>!~;@\s]*\$\{[A-Z0-9_]+\}")
# What a notebook or a shell has before packages.
COMMAND = re.compile(r"[!%]?\s*(?:(?:python\S*\s+-m\s+|uv\s+)?pip\d*\s+install\b|(?:conda|mamba)\s+install\b)\s*")


def read(path: Path, outer: tuple[Path, ...] = ()) -> WantedPackages:
    """
    Return the requirements in a requirements.txt, or in standard input, with those of the files that it includes.

    `outer` are the files that are being read. Raise RequirementsError, which names the file, if it can't be read.
    """
    is_input = path == STANDARD_INPUT and not outer
    name = "standard input" if is_input else str(path)
    if path.resolve() in outer:
        raise RequirementsError(f"{path} includes itself")
    try:
        content = sys.stdin.buffer.read() if is_input else read_regular(str(path), links=True)
        # PowerShell writes it so, and pip reads it
        is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = content.decode("utf-16" if is_wide else "utf-8-sig")
    except (UnicodeDecodeError, UnfitError) as error:
        raise RequirementsError(f"{name} can't be read: {error}") from None
    lines = [(f"{name}:{number}", line) for number, line in logical_lines(text)]
    return wanted_by(lines, path.parent, (*outer, path.resolve()))


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """
    Yield number and text of the lines of a requirements.txt.

    A backslash at the end joins a line with the next, except that of a comment, which also ends what was begun (as in
    pip).
    """
    begun, number = "", 1
    for index, line in enumerate(text.splitlines(), 1):
        if not begun:
            number = index
        is_comment = line.lstrip().startswith("#")
        begun += line.lstrip() if begun else line
        if line.endswith("\\") and not is_comment:
            begun = begun[:-1].rstrip() + " "
            continue
        yield number, begun
        begun = ""
    if begun:
        yield number, begun


def wanted_by(lines: Iterable[tuple[str, str]], folder: Path, outer: tuple[Path, ...] = ()) -> WantedPackages:
    """
    Return the requirements that lines stand for, with absolute paths, so that they work anywhere.

    Each line comes with where it is, for messages. Relative paths start from `folder`; `outer` are the files that are
    being read.
    """
    wanted = WantedPackages()
    for where, line in lines:
        try:
            for written, expanded in parts_of(line):
                option = WITH_PLACE.fullmatch(expanded)
                if option and option["option"] in ("-r", "--requirement"):
                    included = read(included_by(option, folder), outer)
                    wanted.lines += included.lines
                    wanted.wrong += included.wrong
                else:
                    wanted.lines.append(with_place(option, folder) if option else package(written, expanded, folder))
        except RequirementsError as error:
            wanted.wrong.append(f"{where}: {error}")
    return wanted


def parts_of(line: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a line, or its requirement: as it is written, and with the variables that pip expands."""
    written = without_comment(line)
    # pip expands variables as well; in a URL it has to, because they may be credentials
    text = with_variables(written, os.environ)
    if "://" in text:
        text = written
    options = BETWEEN.split(text) if text.startswith("-") and not is_editable(text) else []
    if len(options) > 1:
        for option in options:
            yield from parts_of(option)
    elif text:
        yield written, text


def included_by(option: re.Match[str], folder: Path) -> Path:
    """Return the file that a line includes."""
    place = first_word(option["place"])
    if "://" in place:
        raise RequirementsError(f"{place} is not on this machine: download it, and give its path")
    return resolve(folder / place)


def with_place(option: re.Match[str], folder: Path) -> str:
    """Return an option with an absolute path; raise RequirementsError for a directory that may disappear."""
    place = first_word(option["place"])
    if option["option"] in ("-e", "--editable") and not re.match(r"\w+\+\w+://", place):
        raise RequirementsError(
            f"'{option[0]}' would break the module as soon as the directory is removed: "
            "install a copy (without -e), or use make-venv during development"
        )
    if "://" in place or place.startswith("/"):
        return option[0]
    return f"{option['option']} {shlex.quote(str(resolve(folder / place)))}"


def package(written: str, expanded: str, folder: Path) -> str:
    """Return the line of a package, with the absolute path of a file or directory, or another option, as written."""
    if written.startswith("-"):
        return written
    local = LOCAL.fullmatch(expanded)
    if local:
        path = resolve(folder / local["path"])
        # a path in a requirement can't contain a blank
        return (path.as_uri() if " " in str(path) else str(path)) + (local["rest"] or "")
    if VARIABLE_IN_NAME.match(written):
        # so somebody else's file could send a password to its index
        raise RequirementsError(f"'{written}' has a variable in the name of a package: write its value instead")
    # variables may be set where it is installed
    if "/" not in written and not VARIABLE.search(written) and not parsed(written):
        raise not_a_requirement(written)
    return written


def not_a_requirement(line: str) -> RequirementsError:
    """Return the error for a line that pip can't read: perhaps a command of a notebook, or several packages."""
    text = f"'{escape(line)}' is not a requirement: write each package by itself, such as 'einops>=0.8'"
    is_command = COMMAND.match(line)
    packages = [word for word in COMMAND.sub("", line).split() if not word.startswith("-")]
    if (is_command or packages[1:]) and all(map(parsed, packages)):
        # a sentence has words that look like packages
        begin = "That is:" if is_command else "If all of these are packages, that is:"
        return RequirementsError(f"{text}. {begin}" + "".join(f"\n    {one}" for one in packages))
    return RequirementsError(text)


def first_word(text: str) -> str:
    """Return the first word of what follows an option: pip splits options like a shell, which removes quotes."""
    try:
        first, *_ = shlex.split(text)
    except ValueError:
        raise RequirementsError(f"{text} can't be read: a quotation mark is missing") from None
    if not first:
        raise RequirementsError("there is nothing between the quotation marks")
    return first


def resolve(path: Path) -> Path:
    """Return the absolute path of what a line names; raise RequirementsError if it does not exist."""
    if not path.exists():
        raise RequirementsError(f"{path} can't be read: it does not exist")
    return path.resolve()
