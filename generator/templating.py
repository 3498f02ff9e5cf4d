"""The jinja2 environment of all templates."""

import shlex
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@lru_cache(maxsize=1)
def environment():
    """Return the environment (jinja2.Environment); templates are found in the folder ``templates``."""
    made = Environment(
        loader=PackageLoader("ebsif"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,  # noqa: S701 no HTML
    )
    made.filters["sh"] = quoted
    return made


def quoted(value):
    """Return a text, or a list of texts, as words for a shell."""
    return shlex.quote(value) if isinstance(value, str) else " ".join(shlex.quote(word) for word in value)
