"""The result of reading an easyconfig."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Imported:
    """An easyconfig as a record without a family, and what happened to each part of it."""

    path: Path
    name: str = ""
    suffix: str = ""
    record: dict = field(default_factory=dict)
    recognised: list = field(default_factory=list)
    data: list = field(default_factory=list)
    # pairs of line and message
    left: list = field(default_factory=list)
    # whether scripts activate Python themselves, whether there are any that need Python
    by_hand: bool = False
    python: bool = False
    # whether it is for one of our easyblocks, and so names all components
    ours: bool = False

    @property
    def left_by_line(self):
        """Pairs of line and message that are left to the user, each once, in the order of lines (list of tuple)."""
        return sorted(dict.fromkeys(self.left), key=lambda one: one[0])

    @property
    def not_understood(self):
        """Messages about what is left to the user, with file and line (list of str)."""
        return [f"{self.path}:{line}: {message}" for line, message in self.left_by_line]

    def leave(self, line, message):
        """Leave something to the user; the message becomes one line, values in it are shortened by the caller."""
        self.left.append((line, " ".join(message.split())))

    def put(self, field, key, value, message):
        """Add an entry to a dictionary of the record, and report it."""
        self.record.setdefault(field, {})[key] = value
        self.data.append(message)
