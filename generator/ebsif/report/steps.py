"""Show what takes long: a line for each step with its time; while it lasts, also what it is doing and how far it is."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Optional

from ebsif.report import output
from ebsif.text import without_middle

WIDTH = 28  # of the names of steps
COLUMNS = 80  # of a terminal that doesn't tell its own
# Seconds after which there is a line on a step that isn't done: at a terminal in place of the last one, in a file or
# pipe below it. With the time that this takes, nothing is silent for more than five seconds.
AT_TERMINAL, IN_FILE = 0.25, 4.5
# How much longer than the last one each further line in a file takes; it comes only if it says something new.
LONGER = 2
CLEAR = "\r\x1b[K"  # what is on the line of a terminal


@dataclass(frozen=True)
class Now:
    """What is being done at the moment, and how much of the total is done, if that is known."""

    text: str = ""
    done: int = 0
    total: int = 0


@dataclass
class Step:
    """A step: its name, whether to mention it even if it takes less than a second, what watches it, and details."""

    name: str
    important: bool = True
    watch: Optional[Callable[[], Now]] = None
    details: dict[str, str] = field(default_factory=dict)
    start: float = field(default_factory=time.monotonic)
    # what the last line in a file said, and how long the next one takes
    said: str = ""
    next_line: float = 0

    @property
    def seconds(self) -> float:
        """The time since it began."""
        return time.monotonic() - self.start

    @property
    def is_shown(self) -> bool:
        """Whether the step has a line once it is done."""
        return self.important or bool(self.details) or self.seconds >= 1

    @property
    def line(self) -> str:
        """The line of a step that is done."""
        return self.label(self.name, ", ".join(self.details.values()))

    def current_line(self, width: Optional[int] = None) -> str:
        """Return the line of a step that isn't done: one that fits a width, or the whole one for a file."""
        now = self.now
        end = f" ({100 * now.done // now.total} %) ..." if now.total else " ..."
        name, text = self.name, output.escape(now.text)
        if width is not None:
            name = without_middle(output.escape(name), WIDTH)
            text = without_middle(text, width - len(self.label(name, "-")) - len(end))
        return self.label(name, text + end)

    @property
    def now(self) -> Now:
        """What is being done."""
        # what is watched may vanish at any time
        with contextlib.suppress(OSError):
            return self.watch() if self.watch else Now()
        return Now()

    def new_line(self) -> str:
        """Return a line in a file on a step that isn't done, if it's time for one that says something new."""
        if self.seconds < (self.next_line or IN_FILE):
            return ""
        self.next_line = max(self.seconds, IN_FILE) * LONGER
        line = self.current_line()
        before, self.said = self.said, line.replace(format_time(self.seconds), "", 1).strip()
        return "" if self.said == before else line

    def label(self, name: str, text: str) -> str:
        """Return a name, the time and a text in columns."""
        return (
            f"  {output.escape(name):<{WIDTH}} {format_time(self.seconds):>10}  {output.escape(text).lstrip()}".rstrip()
        )


class Steps:
    """
    A list of steps on standard error, one of which is current; --quiet shows none.

    A step that is done is one line. Below it is the current one, which changes at a terminal. In a file or pipe there
    are no control characters; a step that takes long has more lines, ever fewer the longer it takes (N-04).
    """

    def __init__(self, shown: bool = True) -> None:
        """Begin without a step."""
        self.shown = shown and not output.is_quiet()
        self.at_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.step: Optional[Step] = None
        self.lock = threading.RLock()
        self.ended = threading.Event()

    def __enter__(self) -> "Steps":
        """Show the current step from now on; return this object."""
        if self.shown:
            threading.Thread(target=self.show_current, daemon=True).start()
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], _: Optional[BaseException], __: Optional[TracebackType]
    ) -> None:
        """End the current step."""
        self.ended.set()
        if kind and self.step and self.step.is_shown:
            self.detail("interrupted" if issubclass(kind, KeyboardInterrupt) else "failed")
        self.end()

    def begin(self, name: str, important: bool = True, watch: Optional[Callable[[], Now]] = None) -> None:
        """End the current step and begin another one; `watch`, which is called repeatedly, returns what it does."""
        with self.lock:
            self.end()
            self.step = Step(name, important, watch)

    def detail(self, text: str, kind: str = "") -> None:
        """Add a text to the line of the current step, in place of the earlier one of its kind."""
        if self.step:
            self.step.details[kind or text] = text

    def end(self) -> None:
        """End the current step, if there is one."""
        with self.lock:
            step, self.step = self.step, None
            if step and step.is_shown:
                self.write(f"{step.line}\n")
            elif self.at_terminal:
                self.write("")

    def say(self, text: str) -> None:
        """Print a line between the steps."""
        with self.lock:
            self.write(f"{output.escape(text)}\n")

    def show_current(self) -> None:
        """Write what the current step does, until the steps end; in a thread."""
        while not self.ended.wait(min(AT_TERMINAL, IN_FILE)):
            with self.lock:
                if self.step and not self.ended.is_set():
                    if self.at_terminal:
                        self.write(self.step.current_line(os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS))
                    elif line := self.step.new_line():
                        self.write(f"{line}\n")

    def write(self, text: str) -> None:
        """Write a text, at a terminal in place of the current step."""
        if self.shown:
            sys.stderr.write(f"{CLEAR}{text}" if self.at_terminal else text)
            sys.stderr.flush()


@contextlib.contextmanager
def working(name: str) -> Iterator[None]:
    """Show a single step while it lasts; afterwards only if it took a second."""
    with Steps() as steps:
        steps.begin(name, important=False)
        yield


def format_time(seconds: float) -> str:
    """Return a duration in seconds, or minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
