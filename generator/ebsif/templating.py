"""The jinja2 environment of templates; each room has its own."""

import shlex
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def environment(room):
    """Return the environment (jinja2.Environment) of the templates in ``templates`` of a package, ``ebsif.jobs``."""
    made = Environment(
        loader=PackageLoader(room), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,  # noqa: S701 no HTML
    )
    made.filters["sh"] = quoted
    return made


def quoted(value):
    """Return a text, or a list of texts, as words for a shell."""
    return shlex.quote(value) if isinstance(value, str) else " ".join(shlex.quote(word) for word in value)
