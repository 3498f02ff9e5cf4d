"""Read a call of `pip install` as a stage of requirements."""

import re
from collections.abc import Callable
from typing import Any, Optional

# Options of pip that become lists, strings and switches of a stage; options that stay; options without effect.
PIP_LISTS = {"--extra-index-url": "extra_index_url", "-f": "find_links", "--find-links": "find_links",
             "--no-binary": "no_binary"}
PIP_VALUES = {"-i": "index_url", "--index-url": "index_url"}
PIP_SWITCHES = {"--no-build-isolation": "no_build_isolation", "--no-deps": "no_deps"}
PIP_OTHERS = ("--no-cache-dir", "--pre", "-U", "--upgrade", "-v", "--verbose", "--prefer-binary", "--use-pep517")
PIP_IGNORED = ("--disable-pip-version-check", "-q", "--quiet", "--no-input")


class UnknownFile(Exception):
    """The requirements are in a file that the easyconfig doesn't write."""


def stage_of(words: list[str], environment: dict[str, str],
             lines_of: Callable[[str], Optional[list[str]]]) -> Optional[dict[str, Any]]:
    """
    Return the stage of requirements for the arguments of `pip install`.

    Parameters
    ----------
    words
        The arguments.
    environment
        Variables of the command.
    lines_of
        Returns the requirements in a file, or None if they are unknown.

    Returns
    -------
    dict
        None if a stage can't express them.

    Raises
    ------
    UnknownFile
        If the requirements are in an unknown file.
    """
    stage, lines, words = {}, [], list(words)
    while words:
        option, equals, value = words.pop(0).partition("=")
        if not option.startswith("-"):
            lines.append(f"{option}{equals}{value}")
            continue
        if option in ("-r", "--requirement", *PIP_LISTS, *PIP_VALUES) and not equals:
            if not words:
                return None
            value = words.pop(0)
        if option in ("-r", "--requirement"):
            of_file = lines_of(value)
            if of_file is None:
                raise UnknownFile(value)
            lines += of_file
        elif not add_pip_option(stage, option, value):
            return None
    if not lines or depends_on_place(lines, environment):
        return None
    return {"requirements": lines, **stage, **({"env": dict(environment)} if environment else {})}


def add_pip_option(stage, option, value):
    """Add an option of pip to a stage (dict); return False if a stage can't express it."""
    if option in PIP_LISTS:
        stage.setdefault(PIP_LISTS[option], []).append(value)
    elif option in PIP_VALUES:
        stage[PIP_VALUES[option]] = value
    elif option in PIP_SWITCHES:
        stage[PIP_SWITCHES[option]] = True
    elif option in PIP_OTHERS:
        stage.setdefault("options", []).append(option)
    else:
        return option in PIP_IGNORED
    return True


def depends_on_place(lines, environment):
    """Return whether requirements depend on shell variables, or on the directory in which pip runs."""
    variable = any("$" in text or "`" in text for text in (*lines, *environment.values()))
    return variable or any(re.match(r"\.{1,2}(/|\[|$)", line) for line in lines)
