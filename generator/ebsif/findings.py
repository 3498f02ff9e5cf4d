"""Findings of checks, on catalogues, easyconfigs, images and machines: how serious, on what, where."""

import re
from dataclasses import dataclass

from ebsif import output

ERROR, WARNING, NOTE, OK = "error", "warning", "note", "ok"


@dataclass(frozen=True)
class Finding:
    """
    One result of a check.

    Attributes
    ----------
    level : str
        ERROR, WARNING, NOTE (nothing is wrong, but worth knowing) or OK.
    subject : str
        The container or the part of the machine or image; empty for a whole file.
    text : str
        What was found, and what to do.
    path : str
        The file; empty if there is none.
    line : int
        The line in the file.
    """

    level: str
    subject: str
    text: str
    path: str = ""
    line: int = 1

    def __str__(self):
        """A line for a person."""
        place = f"{self.path}:{self.line}: " if self.path else ""
        return output.plain(f"{place}{self.level}: {self.message}")

    @property
    def message(self):
        """What is wrong with what (str)."""
        return f"{self.subject}: {self.text}" if self.subject else self.text

    @property
    def github(self):
        """The line by which a workflow of GitHub annotates the file."""
        place = f" file={escaped(self.path, ':,')},line={self.line}" if self.path else ""
        return f"::{self.level}{place}::{escaped(self.message)}"

    @property
    def data(self):
        """For a program (dict)."""
        return {"level": self.level, "path": self.path, "line": self.line, "container": self.subject, "text": self.text}


def escaped(text, more=""):
    """Return a text as GitHub's workflow commands have it (str), with more characters escaped in a property."""
    return re.sub(f"[%\r\n{more}]", lambda match: f"%{ord(match.group()):02X}", text)


def findings_of(error):
    """Yield a Finding for each thing that an error says."""
    for path, line, text in getattr(error, "problems", None) or [("", 1, str(error))]:
        yield Finding(ERROR, "", text, str(path), line or 1)
