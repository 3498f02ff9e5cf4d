"""Show what takes long: a line for each step with its time; at a terminal, also what it is doing and how far it is."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Optional

from ebsif.report import output

WIDTH = 28  # of the names of steps, so that the details fit on 80 columns
BAR = 14  # characters
COLUMNS = 80  # of a line in a file
# Seconds after which a file or pipe gets a line on a step that isn't done, and each later one: with the pauses between
# looks, nothing is silent for more than five.
EVERY = 4.5


@dataclass(frozen=True)
class Now:
    """What is being done at the moment, and how much of the total is done, if that is known."""

    text: str = ""
    done: int = 0
    total: int = 0


@dataclass
class Step:
    """A step: its name, whether to mention it if it takes less than a second, what watches it, and details."""

    name: str
    important: bool = True
    watch: Optional[Callable[[], Now]] = None
    details: list[str] = field(default_factory=list)
    start: float = field(default_factory=time.monotonic)
    noted: Optional[float] = None

    @property
    def now(self) -> Now:
        """What it is doing."""
        # what is watched may vanish at any time
        with contextlib.suppress(OSError):
            return self.watch() if self.watch else Now()
        return Now()

    @property
    def is_long(self) -> bool:
        """Whether it has taken so long that a file gets a line on it."""
        return time.monotonic() - (self.noted or self.start) >= EVERY

    @property
    def label(self) -> str:
        """The name, with the width of a column."""
        return f"  {shortened(output.escape(self.name), WIDTH):<{WIDTH}}"

    @property
    def time(self) -> str:
        """The time since it began, with the width of a column."""
        return f" {format_time(time.monotonic() - self.start):>10}"


class Steps:
    """
    A list of steps on standard error, one of which is current.

    A step that is done is one line. At a terminal, the current one is below them, with the time that passes. In a file
    or pipe, the name of an important step is written when it begins, and the rest of its line when it ends; if that
    takes long, there are lines on how far it is. There are no control characters.

    Parameters
    ----------
    shown
        Whether to show them; --quiet shows none.
    """

    def __init__(self, shown: bool = True) -> None:
        """Begin without a step."""
        self.shown = shown and not output.is_quiet()
        self.live = None
        self.step: Optional[Step] = None
        self.unfinished = False
        self.lock = threading.RLock()
        self.ended = threading.Event()

    def __enter__(self):
        """Show the current step from now on, at a terminal; return this object."""
        if self.shown and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            # importing it takes longer than many commands run
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            # however this process ends, even killed, the cursor stays visible
            console.show_cursor = lambda show=True: False
            self.live = Live(get_renderable=self.current, console=console, transient=True,
                             refresh_per_second=4, redirect_stdout=False, redirect_stderr=False)
            self.live.start()
        elif self.shown:
            threading.Thread(target=self.note_long_steps, daemon=True).start()
        return self

    def __exit__(self, error, *_) -> None:
        """End the current step."""
        self.ended.set()
        if error:
            self.detail("interrupted" if issubclass(error, KeyboardInterrupt) else "failed")
        self.end()
        if self.live:
            self.live.stop()

    def begin(self, name: str, important: bool = True, watch: Optional[Callable[[], Now]] = None) -> None:
        """
        End the current step and begin another one.

        Parameters
        ----------
        name
            Its name.
        important
            Whether to mention it even if it takes less than a second.
        watch
            Returns what is being done; called several times a second, at a terminal.
        """
        with self.lock:
            self.end()
            self.step = Step(name, important, watch)
            if important and self.shown and not self.live:
                sys.stderr.write(self.step.label)
                sys.stderr.flush()
                self.unfinished = True

    def detail(self, text: str) -> None:
        """Add a text to the line of the current step."""
        if self.step:
            self.step.details.append(text)

    def end(self) -> None:
        """End the current step, if there is one."""
        with self.lock:
            step, self.step = self.step, None
            if step and (step.important or time.monotonic() - step.start >= 1):
                self.write_step(step, ", ".join(step.details))
            self.unfinished = False

    def say(self, text: str) -> None:
        """Print a line between the steps."""
        with self.lock:
            if self.unfinished:
                self.unfinished = False
                self.write("")
            self.write(output.escape(text))

    def note_long_steps(self):
        """Write lines on a step that takes long, until the steps end; in a thread."""
        while not self.ended.wait(EVERY / 10):
            with self.lock:
                step = self.step
                if step and step.is_long:
                    step.noted = time.monotonic()
                    now = step.now
                    text = output.escape(now.text)
                    end = f" ({100 * now.done // now.total} %) ..." if now.total else " ..."
                    fits = len(f"{step.label}{step.time}  {text}{end}") <= COLUMNS
                    self.write_step(step, ((text if fits else "") + end).lstrip())
                    if not fits:
                        self.write(f"    {shortened(text, COLUMNS - 4)}")

    def write_step(self, step, text):
        """Write the line of a step, or the rest of it."""
        rest = f"{step.time}  {text}".rstrip()
        self.write(rest if self.unfinished else step.label + rest)
        self.unfinished = False

    def write(self, line):
        """Print a line, above the current step."""
        if self.live:
            from rich.text import Text

            self.live.console.print(Text(line), soft_wrap=True)
        elif self.shown:
            print(line, file=sys.stderr, flush=True)

    def current(self):
        """Return the line of the current step, for rich, which calls this in a thread."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        line, step = Table.grid(padding=(0, 1)), self.step
        if not step:
            return line
        now = step.now
        label = Text(f"{step.label}{step.time} ")
        line.add_column(min_width=len(label))
        room = self.live.console.width - len(label) - (BAR if now.total else 0) - 3
        line.add_row(label, ProgressBar(now.total, min(now.done, now.total), width=BAR) if now.total else "",
                     Text(shortened(output.escape(now.text), room), overflow="ellipsis", no_wrap=True))
        return line


@contextlib.contextmanager
def working(name: str) -> Iterator[None]:
    """Show a single step while it lasts; afterwards only if it took a second."""
    with Steps() as steps:
        steps.begin(name, important=False)
        yield


def shortened(text: str, width: int) -> str:
    """Return a text without its middle if it is longer than a width: names that begin alike often end differently."""
    if len(text) <= width:
        return text
    end = max(width - 3, 2) // 2
    return f"{text[: max(width - 3, 2) - end]}...{text[-end:]}"


def format_time(seconds: float) -> str:
    """Return a duration in seconds, or minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
