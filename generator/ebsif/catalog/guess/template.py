"""Templates of names, such as tool-{version}.sif: extract the fields of a name, and insert placeholders into one."""

import re
from collections.abc import Mapping
from typing import Optional

from ebsif.catalog.fieldtypes import PLACEHOLDER
from ebsif.catalog.records import ContainerRecord

# Optional fields of a name; a hyphen precedes them if they are present.
OPTIONAL = ("variant", "label")


def read_fields(template: str, name: str) -> Optional[dict[str, str]]:
    """Return the fields of a name that matches a template (a dotless 210 becomes 2.10), or None."""
    placeholders = PLACEHOLDER.findall(template)
    match = pattern(template).fullmatch(name)
    fields: dict[str, str] = {}
    for (field, dotless), value in zip(placeholders, match.groups() if match else ()):
        if value:
            value = f"{value[0]}.{value[1:]}" if dotless and len(value) > 1 else value
            if fields.setdefault(field, value) != value:
                return None
    return fields if match else None


def pattern(template: str) -> re.Pattern:
    """Return the regular expression that matches the names of a template; each placeholder is a group."""
    parts: list[str] = []
    seen: list[tuple] = []
    end = 0
    for match in PLACEHOLDER.finditer(template):
        again = match.groups() in seen and match.group(1) not in OPTIONAL
        group = rf"(\{seen.index(match.groups()) + 1})" if again else pattern_of_field(match[1], match[2])
        parts += [re.escape(template[end : match.start()]), group]
        seen.append(match.groups())
        end = match.end()
    return re.compile("".join(parts) + re.escape(template[end:]))


def pattern_of_field(field: str, dotless: str) -> str:
    """Return the regular expression for a placeholder."""
    if field in OPTIONAL:
        return "(?:-([A-Za-z0-9_.+-]+?))?"
    if dotless:
        return "([0-9]+)"
    if field == "version":
        # other words (latest, julia) are no versions
        return "(v?[0-9][A-Za-z0-9_.+]*?)"
    # hyphens separate fields, but versions of components may contain them
    return "([A-Za-z0-9_.+]+?)" if field in ContainerRecord.model_fields else "([A-Za-z0-9_.+-]+?)"


def insert_placeholders(text: str, fields: Mapping[str, Optional[str]], glued: bool = False) -> str:
    """Return a text with placeholders instead of values, but not within other numbers (2.1 in 12.1.3)."""
    # glued: letters may precede a value, and '_' may follow it, as in tool1.2_x
    before, after = ("0-9.{+", "A-Za-z0-9}") if glued else (r"\w.{+", r"\w}")
    for field, value in fields.items():
        if value:
            text = re.sub(rf"(?<![{before}]){re.escape(value)}(?![{after}]|\.[0-9])", f"{{{field}}}", text)
    return text
