"""A proposed record of the catalogue, as YAML with guesses marked for review, and why an image can't be added."""

import re
from dataclasses import dataclass, field
from typing import Optional

from ebsif.errors import FOUND, EbsifError
from ebsif.report.output import escape


class AddingError(EbsifError):
    """An image can't be added; the message says why, with the record to complete by hand, if there is one."""

    def __init__(self, message: str, record: str = ""):
        """Keep both."""
        super().__init__(f"{message}:\n{record}" if record else message)
        self.message, self.record = message, record


class OtherImage(AddingError):
    """The catalogue has another image of the same name."""

    status = FOUND


@dataclass
class Proposal:
    """A proposed record, and its family if that is new."""

    name: str
    family: str
    values: dict
    reviews: dict = field(default_factory=dict)
    new_family: Optional[dict] = None

    @property
    def text(self) -> str:
        """The record in YAML, with a comment at each guessed field."""
        lines = []
        for number, (key, value) in enumerate(self.values.items()):
            review = f"  # review: {escape(self.reviews[key])}" if key in self.reviews else ""
            lines.append(f"{'  - ' if not number else '    '}{key}: {as_yaml(value)}{review}")
        return "".join(line + "\n" for line in lines)


def as_yaml(value: object) -> str:
    """Return a string, number, boolean, or a list or dictionary of them, as YAML on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(as_yaml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_yaml(item)}" for key, item in value.items()) + "}"
    value = str(value)
    plain = re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9_./+-]*", value) and value not in ("true", "false", "null")
    return value if plain else "'" + value.replace("'", "''") + "'"
