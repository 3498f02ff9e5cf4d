"""A proposed record of the catalog, as YAML with guesses marked for review, and why an image can't be added."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ebsif.catalog.yamltext import as_yaml
from ebsif.errors import FOUND, EbsifError
from ebsif.report.output import escape


class AddingError(EbsifError):
    """An image can't be added; the message says why and what to do."""

    def __init__(self, message: str, record: str = ""):
        """Keep both."""
        super().__init__(f"{message}:\n{record}" if record else message)
        self.message, self.record = message, record


class OtherImageError(AddingError):
    """The catalog has another image of the same name."""

    status = FOUND


@dataclass
class Proposal:
    """A proposed record, its family if that is new, and the image file if the module uses it where it is."""

    name: str
    family: str
    values: dict
    reviews: dict = field(default_factory=dict)
    new_family: Optional[dict] = None
    in_place: Optional[Path] = None

    @property
    def text(self) -> str:
        """The record in YAML, with a comment at each guessed field."""
        return f"  - {reviewed(self.values, self.reviews)[4:]}"

    @property
    def head(self) -> str:
        """The family in YAML if it is new, with a comment at each guessed field."""
        if self.new_family is None:
            return ""
        return f"families:\n  {self.family}:\n{reviewed(self.new_family, self.reviews)}"


def reviewed(values: dict, reviews: dict[str, str]) -> str:
    """Return fields as YAML, each line indented, with a comment at each field to review."""
    text = ""
    for key, value in values.items():
        first, end, rest = as_yaml({key: value}, 4).partition("\n")
        text += first + (f"  # review: {escape(reviews[key])}" if key in reviews else "") + end + rest
    return text
