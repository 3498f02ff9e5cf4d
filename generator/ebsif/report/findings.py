"""Findings of checks on catalogs, easyconfigs, images and machines: what they are, how they look, what they mean."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from easybuild.easyblocks.generic.container.values import plain_error

from ebsif.errors import FOUND
from ebsif.report import output

ERROR, WARNING, NOTE, OK = "error", "warning", "note", "ok"


@dataclass(frozen=True)
class Finding:
    """
    One result of a check: its level, what it is about (empty: the file), what is the case and what to do.

    A note is worth knowing, but nothing is wrong. A directory has the line 0. `record` is text to paste into a file.
    """

    level: str
    subject: str
    text: str
    path: str = ""
    line: int = 1
    record: str = ""

    def __str__(self) -> str:
        """Return the finding as a line of text, and its record."""
        line = output.escape(f"{self.place}{self.level}: {self.message}")
        return f"{line}:\n{output.printable(self.record.rstrip())}" if self.record else line

    @property
    def place(self) -> str:
        """The file with its line, as the beginning of a line; empty if there is none."""
        return f"{self.path}:{self.line or ''}".removesuffix(":") + ": " if self.path else ""

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
    def data(self) -> dict[str, Union[str, int, None]]:
        """The fields, for JSON; null where there is no file or line."""
        return {
            "level": self.level,
            "subject": self.subject or None,
            "text": f"{self.text}:\n{self.record}" if self.record else self.text,
            "path": self.path or None,
            "line": self.line or None if self.path else None,
        }


def escape(text: str, more: str = "") -> str:
    """Return a text escaped for GitHub's workflow commands; `more` characters are escaped in properties."""
    return re.sub(f"[%\r\n{more}]", lambda match: f"%{ord(match.group()):02X}", text)


def findings_of(error: Exception) -> Iterator[Finding]:
    """Yield a Finding for each problem of an error."""
    for path, line, text in getattr(error, "problems", None) or [("", 1, str(error))]:
        yield Finding(ERROR, "", text, str(path), line or 1)


def print_findings(findings: Iterable[Finding], heading: Optional[str] = None) -> None:
    """
    Print a line for each finding, which a terminal gets in 80 columns; with --quiet only errors and warnings.

    Findings below a heading are indented, and leave out the subject and the file, which the heading names.
    """
    for finding in findings:
        if output.is_quiet() and finding.level in (NOTE, OK):
            continue
        if heading:
            output.print_line(f"{finding.level}: {plain_error(finding.text)}", "  ", finding.level)
        elif finding.record:
            output.print_colored(str(finding), finding.level)
        else:
            output.print_line(str(finding), level=finding.level)


def print_json(findings: Iterable[Finding]) -> None:
    """Print findings as a JSON array."""
    print(json.dumps([finding.data for finding in findings], indent=2))


def summarize(what: str, findings: Sequence[Finding], is_checked: bool = True) -> None:
    """Say how many errors and warnings were found; or that nothing is wrong, if anything was checked."""
    numbers = [(sum(finding.level == level for finding in findings), level) for level in (ERROR, WARNING)]
    counted = [output.format_count(*number) for number in numbers if number[0]]
    output.hint(what + (f": {', '.join(counted)}" if counted else ": nothing is wrong" if is_checked else ""))


def status_of(findings: Iterable[Finding], strict: bool = False) -> int:
    """Return the exit status: FOUND if there are errors, if strict also for warnings, else 0."""
    wrong = (ERROR, WARNING) if strict else (ERROR,)
    return FOUND if any(finding.level in wrong for finding in findings) else 0
