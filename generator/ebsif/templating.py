"""The jinja2 environments of the packages that have templates."""

import shlex
from functools import cache
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment(*packages: str, html: bool = False) -> "Environment":
    """Return the environment of the folders ``templates`` of packages (``ebsif.jobs``); `html` escapes all values."""
    # not needed by commands that only print, nor when the Tab key is pressed, and slow to import
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=ChoiceLoader([PackageLoader(one) for one in packages]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=html,
    )
    templates.filters["sh"] = quote
    return templates


def quote(value: Union[str, list[str]]) -> str:
    """Return a string, or a list of strings, quoted as words of a shell command."""
    return shlex.quote(value) if isinstance(value, str) else " ".join(shlex.quote(word) for word in value)
