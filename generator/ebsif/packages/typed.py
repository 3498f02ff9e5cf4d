"""Packages as people type them on a command line: their lines, and what they change in the lines of files."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from ebsif.errors import EbsifError
from ebsif.packages.formats import requirementstxt
from ebsif.packages.lines import extras_in, has_hash, name_in, with_extras
from ebsif.packages.wanted import WantedPackages


def parse(texts: Sequence[str], option: str = "--add") -> WantedPackages:
    """
    Return packages of the command line, which an option has, as lines of a requirements.txt, with absolute paths.

    Each package has one line, which replaces that of the extension.
    """
    for text in texts:
        if Path(text).suffix in (".txt", ".toml", ".lock", ".yml", ".yaml") and Path(text).is_file():
            raise EbsifError(
                f"{option} '{text}' is a file: to add the packages that are in it, use -r {shlex.quote(text)}"
            )
        if (
            ("/" in text or text in (".", ".."))
            and Path(text).is_dir()
            and not any(Path(text, name).exists() for name in ("pyproject.toml", "setup.py"))
        ):
            raise EbsifError(
                f"{option} '{text}' is a directory, and no Python project: it has neither pyproject.toml nor setup.py"
            )
    wanted = requirementstxt.wanted_by([(option, text) for text in texts], Path())
    wanted.lines = list(dict.fromkeys(wanted.lines))
    named: dict[str, str] = {}
    for line in wanted.lines:
        name = name_in(line)
        if name in named:
            raise EbsifError(
                f"{option} has {name} twice ('{named[name]}' and '{line}'): write all that you want of "
                "it in one requirement, such as 'einops>=0.8,<1'"
            )
        named.update({name: line} if name else {})
    if not wanted.lines and not wanted.wrong:
        raise EbsifError(f"{option} names no package: write a name, such as einops")
    return wanted


def joined(lines: Sequence[str], more: Iterable[str]) -> list[str]:
    """
    Return requirement lines with more of them, each in place of those for the same package.

    Raise EbsifError if they are locked: in one call of pip, all packages have a hash or none.
    """
    found: list[str] = list(lines)
    for line in more:
        name = name_in(line)
        places = [number for number, one in enumerate(found) if name and name_in(one) == name]
        if not has_hash(line) and any(map(has_hash, lines)):
            raise EbsifError(
                f"'{line}' can't be added to packages that are locked with hashes: lock it with them, "
                "or add it in an extension of its own, on top of theirs"
            )
        line = with_extras(line, {extra for number in places for extra in extras_in(found[number])})
        found = [one for number, one in enumerate(found) if number not in places[1:]]
        found[places[0] if places else len(found) : places[0] + 1 if places else len(found)] = [line]
    return found
