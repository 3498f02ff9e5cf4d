"""
Colors of errors, warnings, names and commands at a terminal.

There are none in a file or pipe, at a terminal without colors (TERM=dumb), or if NO_COLOR has a value
(https://no-color.org).
"""

import os
import re
from typing import TextIO

# Parameters of the escape sequence for colors and bold text (ECMA-48, "select graphic rendition").
STYLES = {"error": "1;31", "warning": "1;33", "note": "1;36", "ok": "1;32", "name": "1", "command": "36"}
COMMAND = re.compile("`[^`]+`")


def are_on(stream: TextIO) -> bool:
    """Return whether a stream gets colors."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def paint(text: str, style: str, stream: TextIO) -> str:
    """Return a text in the style of errors, names ..., if the stream gets colors."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if text and are_on(stream) else text


def paint_commands(text: str, stream: TextIO) -> str:
    """Return a text in which commands to type, `in backquotes`, have their color."""
    return COMMAND.sub(lambda found: paint(found.group(), "command", stream), text) if are_on(stream) else text
