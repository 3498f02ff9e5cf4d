"""Read a requirements.txt, and make its lines independent of where it is."""

import codecs
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from easybuild.easyblocks.generic.container.written import UnfitError, escape, read_regular

from ebsif.packages.formats.wanted import RequirementsError, collected
from ebsif.packages.lines import parsed

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
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
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
# A line whose other options are those of its package.
EDITABLE = re.compile(r"-e|--editable")


def lines_of(path: Path, outer: tuple[Path, ...]) -> list[str]:
    """Return the requirements in a requirements.txt, or in standard input, with those of the files that it includes."""
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
    return collected(
        logical_lines(text), lambda one: lines_for(one[1], f"{name}:{one[0]}", path.parent, (*outer, path.resolve()))
    )


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


def lines_for(line: str, where: str, folder: Path, outer: tuple[Path, ...]) -> list[str]:
    """
    Return the requirements that a line stands for, with absolute paths, so that they work anywhere.

    `where` is the file and line, for messages; relative paths start from `folder`; `outer` are the files that are being
    read. Raise RequirementsError if a file is missing, or the module would depend on a directory that may disappear.
    """
    bare = re.sub(r"(^|\s)#.*", "", line).strip()
    # pip expands variables as well; in a URL it has to, because they may be credentials
    expanded = VARIABLE.sub(lambda found: os.environ.get(found[1]) or found[0], bare)
    written, bare = bare, bare if "://" in expanded else expanded
    if not bare:
        return []
    options = BETWEEN.split(bare) if bare.startswith("-") and not EDITABLE.match(bare) else []
    if len(options) > 1:
        return [one for option in options for one in lines_for(option, where, folder, outer)]
    option, local = WITH_PLACE.fullmatch(bare), LOCAL.fullmatch(bare)
    if option:
        place = first_word(option.group("place"), where)
        name = option.group("option").lstrip("-")[0]
        if name == "r" and "://" in place:
            raise RequirementsError(f"{where}: {place} is not on this machine: download it, and give its path")
        if name == "r":
            return lines_of(resolve(folder / place, where), outer)
        if name == "e" and not re.match(r"\w+\+\w+://", place):
            raise RequirementsError(
                f"{where}: '{bare}' would break the module as soon as the directory is removed: "
                "install a copy (without -e), or use make-venv during development"
            )
        if "://" in place or place.startswith("/"):
            return [bare]
        return [f"{option.group('option')} {shlex.quote(str(resolve(folder / place, where)))}"]
    if local and not bare.startswith("-"):
        path = resolve(folder / local.group("path"), where)
        # a path in a requirement can't contain a blank
        return [(path.as_uri() if " " in str(path) else str(path)) + (local.group("rest") or "")]
    if VARIABLE_IN_NAME.match(written):
        # so somebody else's file could send a password to its index
        raise RequirementsError(
            f"{where}: '{written}' has a variable in the name of a package: write its value instead"
        )
    # variables may be set where it is installed
    if not written.startswith("-") and "/" not in written and not VARIABLE.search(written) and not parsed(written):
        raise not_a_requirement(written, where)
    return [written]


def not_a_requirement(line: str, where: str) -> RequirementsError:
    """Return the error for a line that pip can't read: perhaps a command of a notebook, or several packages."""
    how = "give each package as a word of its own" if where == "--add" else "write one package per line"
    text = f"{where}: '{escape(line)}' is not a requirement: {how}, such as 'einops>=0.8'"
    is_command = COMMAND.match(line)
    packages = [word for word in COMMAND.sub("", line).split() if not word.startswith("-")]
    if (is_command or packages[1:]) and all(map(parsed, packages)):
        # a sentence has words that look like packages
        begin = "That is:" if is_command else "If all of these are packages, that is:"
        return RequirementsError(f"{text}. {begin}" + "".join(f"\n    {one}" for one in packages))
    return RequirementsError(text)


def first_word(text: str, where: str) -> str:
    """Return the first word of what follows an option: pip splits options like a shell, which removes quotes."""
    try:
        first, *_ = shlex.split(text)
    except ValueError:
        raise RequirementsError(f"{where}: {text} can't be read: a quotation mark is missing") from None
    if not first:
        raise RequirementsError(f"{where}: there is nothing between the quotation marks")
    return first


def resolve(path: Path, where: str) -> Path:
    """Return the absolute path of what a line names; raise RequirementsError if it does not exist."""
    if not path.exists():
        raise RequirementsError(f"{where}: {path} can't be read: it does not exist")
    return path.resolve()
