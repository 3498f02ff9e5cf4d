##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Tell the scripts that a hand-written easyconfig has written, as LUMI's recipes do, from those that a person has.
"""
import glob
import os
import re
from typing import Collection, Iterable, List

from .written import MOST_TEXT, UnfitError, read_regular

# In an easyconfig: the beginning and the end of the text of a script, and what it or the shell replaces in it.
TEXT_BEGINS, TEXT_ENDS = re.compile(r'(\"""|\'\'\'|<<\s*[\'"]?EOF[\'"]?)\Z'), re.compile(r'(\"""|\'\'\'|EOF\b)')
PLACEHOLDER = re.compile(r'%\(\w+\)s|(?<!\$)\{\w+\}|`[^`]*`')
# Numbers and words of this length are in most easyconfigs.
SHORT = 7


def scripts_of_recipe(root: str, names: Iterable[str], places: Collection[str]) -> List[str]:
    """
    Return those scripts of an installation, by relative path, that its easyconfig has written.

    Their whole text is in the easyconfig. Whatever a person has changed isn't. `root` is where the installation is now,
    `places` are the paths where it was made.
    """
    texts = [recipe_lines(path) for path in glob.glob(os.path.join(glob.escape(root), 'easybuild', '*.eb'))]
    paths = {name: os.path.join(root, name) for name in names}
    found = [name for name, path in paths.items() if not os.path.islink(path)
             and any(is_in_recipe(path, lines, root, places) for lines in texts)]
    return found + [name for name, path in paths.items() if os.path.islink(path) and os.path.normpath(
        os.path.join(os.path.dirname(name), os.readlink(path))) in found]


def recipe_lines(path: str) -> List[str]:
    """Return the lines of an easyconfig or a script, as the script has them; none if it can't be read."""
    try:
        text = read_regular(path, MOST_TEXT, links=True).decode('utf-8', 'replace')
    except (OSError, UnfitError):
        return []
    # what Python, its f-strings and the shell need
    for written, meant in (('\\', ''), ('{{', '{'), ('}}', '}'), ('%%', '%')):
        text = text.replace(written, meant)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def is_in_recipe(path: str, lines: List[str], root: str, places: Collection[str]) -> bool:
    """Return whether a script is one of the texts in an easyconfig, from its first line to its last."""
    script = recipe_lines(path)
    for number, line in enumerate(lines):
        after = number + 1 + len(script)
        if script and TEXT_BEGINS.search(line) and after < len(lines) and TEXT_ENDS.match(lines[after].strip()) and all(
                is_made_from(*pair, lines, root, places) for pair in zip(script, lines[number + 1:after])):
            return True
    return False


def is_made_from(line: str, written: str, lines: List[str], root: str, places: Collection[str]) -> bool:
    """
    Return whether a line of a script is made from a line of an easyconfig, which may have placeholders.

    What a person has written in the place of a placeholder must not count. So its value has to be the installation, a
    file in it, such as the image, or a longer text that the easyconfig has elsewhere.
    """
    if line == written:
        return True
    parts = PLACEHOLDER.split(written)
    found = re.fullmatch('(.*)'.join(map(re.escape, parts)), line) if len(parts) > 1 else None
    return found is not None and all(is_value_of_recipe(value, lines, root, places) for value in found.groups())


def is_value_of_recipe(value: str, lines: List[str], root: str, places: Collection[str]) -> bool:
    """Return whether a text is the installation, a file in it, or a longer text of an easyconfig."""
    if value in places:
        return True
    if len(value) > SHORT and any(value in line for line in lines):
        return True
    return value not in ('', '.', '..') and '/' not in value and os.path.lexists(os.path.join(root, value))
