"""What an easyconfig gives for the catalog, and a report on every part of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from easybuild.easyblocks.generic.container.credentials import REMEDY, Credentials
from easybuild.easyblocks.generic.container.written import escape

from ebsif.text import without_end

# EasyBuild replaces this during the installation.
INSTALLATION = "%(installdir)s"
LONGEST = 160  # characters of a value in a message


@dataclass
class Imported:
    """An easyconfig as a record without a family, and a report on each part of it."""

    path: Path
    name: str
    suffix: str = ""
    record: dict[str, Any] = field(default_factory=dict)
    # what our easyblocks do anyway
    recognized: list[str] = field(default_factory=list)
    # what became a field of the record
    data: list[str] = field(default_factory=list)
    # scripts in whose place ours are; what a person has to look at; comments: pairs of line and text
    replaced: list[tuple[int, str]] = field(default_factory=list)
    left: list[tuple[int, str]] = field(default_factory=list)
    comments: list[tuple[int, str]] = field(default_factory=list)
    # the comments before the first statement: who wrote it, and what it is for
    head: list[str] = field(default_factory=list)
    # all binds, the site's and the record's
    binds: list[str] = field(default_factory=list)
    # whether scripts activate Python themselves, and whether any script needs Python
    by_hand: bool = False
    python: bool = False

    @property
    def left_by_line(self) -> list[tuple[int, str]]:
        """What is left to the user, without duplicates, sorted by line."""
        return sorted(dict.fromkeys(self.left), key=lambda pair: pair[0])

    @property
    def messages(self) -> list[str]:
        """Messages about what is left to the user, with file and line."""
        return [f"{self.path}:{line}: {message}" for line, message in self.left_by_line]

    def leave(self, line: int, message: str) -> None:
        """Leave something to the user. The message is put on one line; callers shorten the values in it."""
        self.left.append((line, " ".join(message.split())))

    def put(self, field: str, key: str, value: object, message: str) -> None:
        """Add an entry to a table of the record and report it."""
        self.record.setdefault(field, {})[key] = value
        self.data.append(message)

    def append(self, field: str, value: str, message: str) -> None:
        """Add an item to a list of the record and report it."""
        self.record.setdefault(field, []).append(value)
        self.data.append(message)

    def leave_credentials(self) -> None:
        """Leave fields with credentials to the user; neither record nor report contains them (G-09)."""
        for name, value in list(self.record.items()):
            table = value if isinstance(value, dict) else self.record
            for key in [
                key for key in (list(value) if table is value else [name]) if Credentials.find({key: table[key]})
            ]:
                del table[key]
                self.leave(1, f"{key}: a credential is written out. {REMEDY}")
        for name in ("recognized", "data", "head"):
            setattr(self, name, [Credentials.mask(text) for text in getattr(self, name)])
        for name in ("left", "comments"):
            setattr(self, name, [(line, Credentials.mask(text)) for line, text in getattr(self, name)])


def shortened(value: object) -> str:
    """
    Return a value for a message: on one line, without its end if it is long.

    Credentials are masked first, because part of a credential would not be recognized (G-09).
    """
    return without_end(escape(" ".join(Credentials.mask(value).split())), LONGEST)


def inside(path: str) -> str:
    """Return a path relative to the installation directory; others begin with '/' or './'."""
    if not path.startswith(INSTALLATION):
        return path if path.startswith("/") else f"./{path}"
    return path[len(INSTALLATION) :].strip("/").removeprefix("./")


def is_data(value: object) -> bool:
    """Return whether YAML can hold a value."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_data(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_data, value))
    return isinstance(value, (str, bool, int))


def as_strings(value: Any) -> Any:
    """Return a value with its numbers as strings, as in the catalog."""
    if isinstance(value, dict):
        return {key: as_strings(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_strings(item) for item in value]
    return value if value is None or isinstance(value, bool) else str(value)
