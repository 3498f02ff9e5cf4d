"""Findings of checks on catalogues, easyconfigs, images and machines: level, subject and place."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from easybuild.easyblocks.generic.container.texts import plain_error

from ebsif.report import output

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
        The line in the file; 0 for a directory.
    record : str
        Lines to paste into a file.
    """

    level: str
    subject: str
    text: str
    path: str = ""
    line: int = 1
    record: str = ""

    def __str__(self):
        """Return the finding as a line of text, and its record."""
        place = f"{self.path}:{self.line or ''}".removesuffix(":") + ": " if self.path else ""
        line = output.escape(f"{place}{self.level}: {self.message}")
        return f"{line}:\n{output.printable(self.record.rstrip())}" if self.record else line

    @property
    def message(self) -> str:
        """The text with its subject, and words instead of numbers of errors."""
        return plain_error(f"{self.subject}: {self.text}" if self.subject else self.text)

    @property
    def github(self) -> str:
        """The workflow command by which GitHub annotates the file."""
        place = f" file={escape(self.path, ':,')},line={self.line}" if self.path else ""
        level = {NOTE: "notice"}.get(self.level, self.level)
        return f"::{level}{place}::{escape(self.message)}"

    @property
    def data(self) -> dict[str, Union[str, int]]:
        """The fields, for JSON."""
        return {"level": self.level, "path": self.path, "line": self.line, "container": self.subject,
                "text": f"{self.text}:\n{self.record}" if self.record else self.text}


def escape(text: str, more: str = "") -> str:
    """Return a text escaped for GitHub's workflow commands; `more` characters are escaped in properties."""
    return re.sub(f"[%\r\n{more}]", lambda match: f"%{ord(match.group()):02X}", text)


def findings_of(error: Exception) -> Iterator[Finding]:
    """Yield a Finding for each problem of an error."""
    for path, line, text in getattr(error, "problems", None) or [("", 1, str(error))]:
        yield Finding(ERROR, "", text, str(path), line or 1)
