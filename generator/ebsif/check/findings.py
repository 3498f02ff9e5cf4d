"""What a check finds: an error or a warning, with its place."""

import re
from dataclasses import asdict, dataclass

from ebsif import output

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong (error) or may be (warning)."""

    level: str
    path: str
    line: int
    container: str
    text: str

    def __str__(self):
        """A line for a person."""
        place = f"{self.path}:{self.line}: " if self.path else ""
        return output.plain(f"{place}{self.level}: {self.message}")

    @property
    def message(self):
        """What is wrong with what (str)."""
        return f"{self.container}: {self.text}" if self.container else self.text

    @property
    def github(self):
        """The line by which a workflow of GitHub annotates the file."""
        place = f" file={escaped(self.path, ':,')},line={self.line}" if self.path else ""
        return f"::{self.level}{place}::{escaped(self.message)}"

    @property
    def data(self):
        """For a program (dict)."""
        return asdict(self)


def escaped(text, more=""):
    """Return a text as GitHub's workflow commands have it (str), with more characters escaped in a property."""
    return re.sub(f"[%\r\n{more}]", lambda match: f"%{ord(match.group()):02X}", text)


def findings_of(error):
    """Yield a Finding for each thing that an error says."""
    for path, line, text in getattr(error, "problems", None) or [("", 1, str(error))]:
        yield Finding(ERROR, str(path), line or 1, "", text)
