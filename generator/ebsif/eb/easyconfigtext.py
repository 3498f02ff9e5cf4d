"""The text of an easyconfig: who has written it, and how it is changed."""

import re
from collections.abc import Mapping
from typing import Optional

from easybuild.easyblocks.generic.container.literals import assignments, parsed

# Beginnings of the first line: of easyconfigs that commands write for a person, and of those from a catalog.
WRITTEN = "# Written by `ebsif "
RENDERED = re.compile(r"# Rendered by ebsif from the catalog(?:ue)? of the site (\S+):")


def header(command: str) -> str:
    """Return the first line of an easyconfig that a command (``extend``) writes for a person."""
    return f"{WRITTEN}{command}`: yours to change."


def header_of_site(site: str) -> str:
    """Return the first line of an easyconfig that is rendered for a site."""
    return f"# Rendered by ebsif from the catalog of the site {site}: change it there, or copy it (eb --copy-ec)."


def is_written(text: str) -> bool:
    """Return whether a command has written an easyconfig for a person, who may have changed it since."""
    return text.startswith(WRITTEN)


def site_of(text: str) -> Optional[str]:
    """Return the site for which an easyconfig was rendered; None for others."""
    rendered = RENDERED.match(text)
    return rendered[1] if rendered else None


def with_lines(text: str, wanted: Mapping[str, str]) -> str:
    """Return an easyconfig with other lines for some parameters, without its first line if a command wrote that."""
    lines, rest = text.splitlines(keepends=True), dict(wanted)
    statements = assignments(parsed(text))
    for name in sorted(wanted.keys() & statements.keys(), key=lambda name: -statements[name].lineno):
        lines[statements[name].lineno - 1 : statements[name].end_lineno] = [rest.pop(name)]
    if is_written(text) or site_of(text):
        del lines[0]
    return "".join([*lines, *(f"\n{line}" for line in rest.values() if line)])
