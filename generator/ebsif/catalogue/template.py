"""Names with placeholders, such as tool-{version}.sif: read the fields of a name, and put placeholders into one."""

import re

from ebsif.catalogue.fieldtypes import PLACEHOLDER
from ebsif.catalogue.records import Record

# Fields that a name may lack; with a hyphen before them where it has them.
OPTIONAL = ("variant", "label")


def read_fields(template, name, known=None):
    """
    Return the fields of a name that a template gives (dict), None if the template gives other names.

    Versions without dots get one after the first digit: 210 is 2.10.

    Parameters
    ----------
    template : str
        With placeholders.
    name : str
        File name or suffix.
    known : dict, optional
        Values of some fields.
    """
    placeholders = PLACEHOLDER.findall(template)
    match = pattern(template, known or {}).fullmatch(name)
    fields = {}
    for (field, dotless), value in zip(placeholders, match.groups() if match else ()):
        if value:
            value = f"{value[0]}.{value[1:]}" if dotless and len(value) > 1 else value
            if fields.setdefault(field, value) != value:
                return None
    return fields if match else None


def pattern(template, known):
    """Return the regular expression of names that a template gives (re.Pattern), with a group for each placeholder."""
    parts, seen, end = [], [], 0
    for match in PLACEHOLDER.finditer(template):
        again = match.groups() in seen and match.group(1) not in OPTIONAL
        group = rf"(\{seen.index(match.groups()) + 1})" if again else pattern_of_field(*match.groups(), known)
        parts += [re.escape(template[end : match.start()]), group]
        seen.append(match.groups())
        end = match.end()
    return re.compile("".join(parts) + re.escape(template[end:]))


def pattern_of_field(field, dotless, known):
    """Return the regular expression of a placeholder (str)."""
    if field in OPTIONAL:
        return "(?:-([A-Za-z0-9_.+-]+?))?"
    if dotless:
        return "([0-9]+)"
    if field in known:
        return f"({re.escape(known[field])})"
    # hyphens separate fields; versions of components have some
    return "([A-Za-z0-9_.+]+?)" if field in Record.model_fields else "([A-Za-z0-9_.+-]+?)"


def insert_placeholders(text, fields, glued=False):
    """
    Return a text with placeholders for values in it, but not for parts of other numbers: 2.1 within 12.1.3.

    Parameters
    ----------
    text : str
        A name or a description.
    fields : dict
        Values by field.
    glued : bool
        Whether letters may precede a value, and '_' follow it, as in tool1.2_x.
    """
    before, after = ("0-9.{+", "A-Za-z0-9}") if glued else (r"\w.{+", r"\w}")
    for field, value in fields.items():
        if value:
            text = re.sub(rf"(?<![{before}]){re.escape(value)}(?![{after}]|\.[0-9])", f"{{{field}}}", text)
    return text
