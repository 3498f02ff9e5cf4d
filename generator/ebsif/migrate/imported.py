"""The result of reading an easyconfig."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Imported:
    """An easyconfig as a record without a family, and a report on each part of it."""

    path: Path
    name: str = ""
    suffix: str = ""
    record: dict[str, Any] = field(default_factory=dict)
    recognized: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    # pairs of line and message
    left: list[tuple[int, str]] = field(default_factory=list)
    # whether scripts activate Python themselves, and whether any script needs Python
    by_hand: bool = False
    python: bool = False
    # whether it uses one of our easyblocks, so that it names all components
    ours: bool = False

    @property
    def left_by_line(self):
        """Return what is left to the user, without duplicates: pairs of line and message (list of tuple), sorted."""
        return sorted(dict.fromkeys(self.left), key=lambda one: one[0])

    @property
    def not_understood(self):
        """Messages about what is left to the user, with file and line (list of str)."""
        return [f"{self.path}:{line}: {message}" for line, message in self.left_by_line]

    def leave(self, line: int, message: str) -> None:
        """Leave something to the user. The message is put on one line; callers shorten the values in it."""
        self.left.append((line, " ".join(message.split())))

    def put(self, field: str, key: str, value: object, message: str) -> None:
        """Add an entry to a dictionary of the record and report it."""
        self.record.setdefault(field, {})[key] = value
        self.data.append(message)
