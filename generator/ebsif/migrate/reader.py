"""The base class of readers for parts of an easyconfig."""

import re
from typing import Any

from easybuild.easyblocks.generic.container.credentials import Credentials

# EasyBuild replaces this during the installation.
INSTALLATION = "%(installdir)s"

# Binds that every module has.
OWN_BINDS = re.compile(re.escape(INSTALLATION) + r"/(runscripts:/runscripts|user-software)")


class Reader:
    """
    Reads a part of an easyconfig.

    Parameters
    ----------
    values : dict
        Parameters and variables of the easyconfig.
    found : Imported
        Collects the result.
    source : Source
        The text of the easyconfig, for line numbers.
    site : Site
        The site, whose binds and variables are not repeated.
    """

    def __init__(self, values, found, source, site):
        """Set the easyconfig to read."""
        self.values, self.found, self.source, self.site = values, found, source, site
        self.record = found.record


def shortened(value: object, length: int = 160) -> str:
    """
    Return a value for a message: on one line, at most `length` characters, with an ellipsis if it is longer.

    Credentials are masked first, because part of a credential would not be recognized (G-09).
    """
    text = " ".join(Credentials.mask(value).split())
    return text if len(text) <= length else f"{text[:length - 3].rstrip()}..."


def same_path_twice(bind: str) -> str:
    """Return a bind without a target that repeats its source."""
    source, _, target = bind.partition(":")
    return source if target in ("", source) else bind


def is_empty(value: object) -> bool:
    """Return whether a parameter is not set or empty; False and 0 are not empty."""
    return value is None or value in ("", [], {}, ())


def is_data(value: object) -> bool:
    """Return whether YAML can hold a value."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_data(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_data, value))
    return isinstance(value, (str, bool, int))


def as_strings(value: Any) -> Any:
    """Return a value with its numbers as strings, as in the catalogue."""
    if isinstance(value, dict):
        return {key: as_strings(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_strings(item) for item in value]
    return value if value is None or isinstance(value, bool) else str(value)
